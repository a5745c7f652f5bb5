"""What the chip offers: facts, what a compiled kernel takes of it, timing, and the roofline."""

from .chips import CHIPS, Chip, chip_of
from .compilation import CompilationFailed, Resources, resources

__all__ = ["CHIPS", "Chip", "CompilationFailed", "Resources", "chip_of", "resources"]
