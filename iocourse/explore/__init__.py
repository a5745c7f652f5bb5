"""Pictures and sliders: pure figure functions, and thin widgets around them.

A figure is a `Picture`: it has `alt` (what it shows, in sentences) and `numbers` (the values behind it).
matplotlib is imported when a PNG is made, ipywidgets when a widget is made.
"""

from .bench_picture import bench_bars
from .block_mask import block_mask
from .causal_tiles_picture import causal_tiles
from .charts import bars, curve, words_against_memory
from .crossing_picture import words_against_length
from .depth_picture import depth_errors, training_curves
from .figure import FIGURES
from .grids import attention_map, tile_order
from .kernel_tuner import KernelTuner, kernel_tuner
from .kernel_tuner_picture import kernel_tuner_picture
from .low_rank_explorer import LowRankExplorer, low_rank_explorer
from .low_rank_explorer_picture import low_rank_explorer_picture
from .lowrank_picture import lowrank_contenders, lowrank_rows, lowrank_scaling
from .mask_painter import MaskPainter, mask_painter
from .memory import footprint_bar, memory_timeline
from .memory_explorer import MemoryExplorer, memory_explorer
from .memory_map import memory_map
from .pebble_player import PebblePlayer, pebble_player
from .pebbles import pebbles
from .picture import Picture
from .polynomial_pictures import polynomial_errors, rank_growth
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
    "LowRankExplorer",
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
    "causal_tiles",
    "curve",
    "depth_errors",
    "footprint_bar",
    "grid_of_programs",
    "kernel_resources",
    "kernel_tuner",
    "kernel_tuner_picture",
    "low_rank_explorer",
    "low_rank_explorer_picture",
    "lowrank_contenders",
    "lowrank_rows",
    "lowrank_scaling",
    "mask_painter",
    "memory_explorer",
    "memory_map",
    "memory_timeline",
    "pebble_player",
    "pebbles",
    "polynomial_errors",
    "rank_growth",
    "roofline",
    "roofline_explorer",
    "roofline_explorer_picture",
    "shadows",
    "tile_order",
    "tile_tuner",
    "tile_tuner_picture",
    "training_curves",
    "words_against_length",
    "words_against_memory",
]
