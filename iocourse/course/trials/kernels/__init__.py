"""Trying a student's kernels: launched in the interpreter, watched, and put to the compiler."""
