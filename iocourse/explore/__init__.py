"""Pictures and sliders: pure figure functions, and thin widgets around them.

A figure is a `Picture`: it has `alt` (what it shows, in sentences) and `numbers` (the values behind it).
matplotlib is imported when a PNG is made, ipywidgets when a widget is made.
"""

from .block_mask import block_mask
from .charts import bars, curve, words_against_memory
from .figure import FIGURES
from .grids import attention_map, tile_order
from .mask_painter import MaskPainter, mask_painter
from .memory import footprint_bar, memory_timeline
from .memory_explorer import MemoryExplorer, memory_explorer
from .memory_map import memory_map
from .pebble_player import PebblePlayer, pebble_player
from .pebbles import pebbles
from .picture import Picture
from .segments_picture import shadows
from .tuner import TileTuner, tile_tuner
from .tuner_picture import tile_tuner_picture

__all__ = [
    "FIGURES",
    "MaskPainter",
    "MemoryExplorer",
    "PebblePlayer",
    "Picture",
    "TileTuner",
    "attention_map",
    "bars",
    "block_mask",
    "curve",
    "footprint_bar",
    "mask_painter",
    "memory_explorer",
    "memory_map",
    "memory_timeline",
    "pebble_player",
    "pebbles",
    "shadows",
    "tile_order",
    "tile_tuner",
    "tile_tuner_picture",
    "words_against_memory",
]
