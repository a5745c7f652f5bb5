"""How a student's work is tried where calling it is not enough: kernels, pieces of rows, counted work."""
