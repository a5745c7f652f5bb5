"""Environment variables for the number of threads of NumPy, torch and Numba, which read them at import."""

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """Return the environment variables that limit a new process to this number of threads."""
    return dict.fromkeys(VARIABLES, str(threads))
