"""How many threads NumPy, torch and Numba take: variables that each reads once, when it is loaded."""

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """What tells a process that is about to start to take so many."""
    return dict.fromkeys(VARIABLES, str(threads))
