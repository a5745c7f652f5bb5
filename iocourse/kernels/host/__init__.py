"""Launch of the kernels: check arguments, choose tiles, start grids of programs, and register operators."""
