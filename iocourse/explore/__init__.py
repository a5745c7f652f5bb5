"""Pictures and sliders: pure figure functions, and thin widgets around them.

A figure is a `Picture`: it has `alt` (what it shows, in sentences) and `numbers` (the values behind it).
matplotlib is imported when a PNG is made, ipywidgets when a widget is made.
"""

from .draw.figure import FIGURES
from .draw.picture import Picture
from .figures.bench import bench_bars
from .figures.block_mask import block_mask
from .figures.causal_tiles import causal_tiles
from .figures.charts import bars, curve, words_against_memory
from .figures.crossing import words_against_length
from .figures.depth import depth_errors, training_curves
from .figures.grids import attention_map, tile_order
from .figures.kernel_tuner import kernel_tuner_picture
from .figures.lowrank_explorer import low_rank_explorer_picture
from .figures.lowrank_record import lowrank_contenders, lowrank_rows, lowrank_scaling
from .figures.memory import footprint_bar, memory_timeline
from .figures.memory_map import memory_map
from .figures.pebbles import pebbles
from .figures.polynomials import polynomial_errors, rank_growth
from .figures.programs import grid_of_programs
from .figures.resources import kernel_resources
from .figures.roofline import roofline
from .figures.roofline_explorer import roofline_explorer_picture
from .figures.shadows import shadows
from .figures.tile_tuner import tile_tuner_picture
from .widgets.kernel_tuner import KernelTuner, kernel_tuner
from .widgets.lowrank_explorer import LowRankExplorer, low_rank_explorer
from .widgets.mask_painter import MaskPainter, mask_painter
from .widgets.memory_explorer import MemoryExplorer, memory_explorer
from .widgets.pebble_player import PebblePlayer, pebble_player
from .widgets.roofline_explorer import RooflineExplorer, roofline_explorer
from .widgets.tile_tuner import TileTuner, tile_tuner

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
