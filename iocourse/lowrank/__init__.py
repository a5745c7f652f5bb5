"""Almost-linear time: attention whose exponential is a polynomial, so that n × n is never formed.

`attention` and `gradient` are the faces, `advise` says for given data whether they are worth it. Read in this
order: `monomials` (features of a row, one room up), `polynomials` (which polynomial stands for exp, and how
far off it is), `setting`, `passes` (forward and gradient, of all keys or causal), `paper_gradient` (the
paper's own form of the gradient), `guards`; then `compiled` (the same passes compiled) and `tensors` (for
torch, with autograd). `neighbours` are other ways to linear time, for comparison.
"""

from .advice import Advice, advise
from .api import Gradient, attention, gradient
from .error_certificates import NotCertified, RankTooLarge
from .polynomials import Polynomial, largest_error, polynomial, smallest_degree

__all__ = [
    "Advice",
    "Gradient",
    "NotCertified",
    "Polynomial",
    "RankTooLarge",
    "advise",
    "attention",
    "gradient",
    "largest_error",
    "polynomial",
    "smallest_degree",
]
