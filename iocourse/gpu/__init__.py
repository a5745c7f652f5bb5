"""GPU facts, resource use of compiled kernels, timing, and the roofline."""

from .chips import CHIPS, Chip, chip_of
from .compilation import CompilationFailed, Resources, resources

__all__ = ["CHIPS", "Chip", "CompilationFailed", "Resources", "chip_of", "resources"]
