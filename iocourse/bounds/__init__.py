"""Lower bounds on the memory traffic in words, each with its source and its status (proved, published, …).

A bound holds for every schedule of its class and every fast memory of M words. `BOUNDS` contains all of them
by id. `lower_bound` returns the largest one that applies, evaluated at M + 4, because four scalar registers
are free on the machine.
"""

# BOUNDS keeps the order of these imports, which is the order of the course.
# isort: off
from .bound import BOUNDS, STATUSES, Bound, NotProved, OnlyAsymptotic, OutsideRegime
from .forward import (
    compulsory,
    theorem_A,
    theorem_A_large,
    theorem_A_small,
    theorem_B,
    theorem_B_line,
    theorem_B_prime,
    theorem_B_prime_line,
)
from .backward import (
    compulsory_backward,
    compulsory_gradient,
    gradient_forward,
    theorem_C,
    theorem_C_line,
    theorem_C_prime,
    theorem_C_prime_line,
    theorem_C_second,
    theorem_C_second_line,
    theorem_C_small,
)
from .row_schedules import min_pair_cost, theorem_A_rows, theorem_E, theorem_E_prime
from .relatives import compulsory_tied, theorem_latent, theorem_low_rank, theorem_tied
from .sparse import (
    compulsory_sparse,
    compulsory_sparse_backward,
    theorem_D,
    theorem_D_B,
    theorem_D_B_prime,
    theorem_D_C,
    theorem_D_C_prime,
    theorem_D_C_second,
    theorem_D_C_small,
)
from .literature import (
    matmul,
    omega_fast_matmul,
    omega_sparse,
    saha_ye,
    saha_ye_small,
    square_side,
    theta_attention,
    theta_gradient,
)
from .segments import all_products_per_segment, products_per_segment
from .best_bound import Pairs, lower_bound
# isort: on

__all__ = [
    "BOUNDS",
    "STATUSES",
    "Bound",
    "NotProved",
    "OnlyAsymptotic",
    "OutsideRegime",
    "Pairs",
    "all_products_per_segment",
    "compulsory",
    "compulsory_backward",
    "compulsory_gradient",
    "compulsory_sparse",
    "compulsory_sparse_backward",
    "compulsory_tied",
    "gradient_forward",
    "lower_bound",
    "matmul",
    "min_pair_cost",
    "omega_fast_matmul",
    "omega_sparse",
    "products_per_segment",
    "saha_ye",
    "saha_ye_small",
    "square_side",
    "theorem_A",
    "theorem_A_large",
    "theorem_A_rows",
    "theorem_A_small",
    "theorem_B",
    "theorem_B_line",
    "theorem_B_prime",
    "theorem_B_prime_line",
    "theorem_C",
    "theorem_C_line",
    "theorem_C_prime",
    "theorem_C_prime_line",
    "theorem_C_second",
    "theorem_C_second_line",
    "theorem_C_small",
    "theorem_D",
    "theorem_D_B",
    "theorem_D_B_prime",
    "theorem_D_C",
    "theorem_D_C_prime",
    "theorem_D_C_second",
    "theorem_D_C_small",
    "theorem_E",
    "theorem_E_prime",
    "theorem_latent",
    "theorem_low_rank",
    "theorem_tied",
    "theta_attention",
    "theta_gradient",
]
