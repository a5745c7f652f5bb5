"""Pictures and sliders: pure figure functions, and thin widgets around them.

A figure is a `Picture`: it has `alt` (what it shows, in sentences) and `numbers` (the values behind it).
matplotlib is imported when a PNG is made, ipywidgets when a widget is made.
"""

from .bench_picture import bench_bars
from .block_mask import block_mask
from .charts import bars, curve, words_against_memory
from .figure import FIGURES
from .grids import attention_map, tile_order
from .kernel_tuner import KernelTuner, kernel_tuner
from .kernel_tuner_picture import kernel_tuner_picture
from .mask_painter import MaskPainter, mask_painter
from .memory import footprint_bar, memory_timeline
from .memory_explorer import MemoryExplorer, memory_explorer
from .memory_map import memory_map
from .pebble_player import PebblePlayer, pebble_player
from .pebbles import pebbles
from .picture import Picture
from .programs_picture import grid_of_programs
from .resources_picture import kernel_resources
from .roofline_explorer import RooflineExplorer, roofline_explorer
from .roofline_explorer_picture import roofline_explorer_picture
from .roofline_picture import roofline
from .segments_picture import shadows
from .tuner import TileTuner, tile_tuner
from .tuner_picture import tile_tuner_picture

__all__ = [
    "FIGURES",
    "KernelTuner",
    "MaskPainter",
    "MemoryExplorer",
    "PebblePlayer",
    "Picture",
    "RooflineExplorer",
    "TileTuner",
    "attention_map",
    "bars",
    "bench_bars",
    "block_mask",
    "curve",
    "footprint_bar",
    "grid_of_programs",
    "kernel_resources",
    "kernel_tuner",
    "kernel_tuner_picture",
    "mask_painter",
    "memory_explorer",
    "memory_map",
    "memory_timeline",
    "pebble_player",
    "pebbles",
    "roofline",
    "roofline_explorer",
    "roofline_explorer_picture",
    "shadows",
    "tile_order",
    "tile_tuner",
    "tile_tuner_picture",
    "words_against_memory",
]
