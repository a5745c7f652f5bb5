"""Run a student's function under observation: Triton kernels, streamed rows, counted operations, ranks."""
