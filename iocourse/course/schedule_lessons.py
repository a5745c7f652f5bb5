"""Section of the course that teaches each schedule of the library, such as "4.1": lesson 04, section 4.1.

The library does not know these numbers. The site links to the sections, and a test compares them with the
registries and with the lessons. A schedule that no lesson names needs no entry.
"""

from __future__ import annotations

SECTION_OF = {
    # on one machine: iocourse.schedules
    "naive": "2.7",
    "flash2": "4.1",
    "flash1": "4.2",
    "flash_optimal": "4.3",
    "standard_backward": "6.2",
    "flash1_backward": "6.5",
    "flash2_backward": "6.6",
    "fused_backward": "6.6",
    "split_backward": "6.8",
    "square_tiling": "7.3",
    "small_cache": "7.4",
    "scores_stored": "7.5",
    "gradient": "7.9",
    "gradient_small_cache": "7.9",
    "gradient_reassociated": "7.9",
    "gradient_dp_materialised": "7.9",
    "gradient_scores_materialised": "7.9",
    "scores_stored_tiled": "7.11",
    "small_cache_fused": "7.12",
    "block_sparse": "8.3",
    "window": "8.4",
    "small_cache_backward": "9.2",
    "score_gradients_stored": "9.2",
    "weights_stored": "9.2",
    "weights_precomputed": "9.2",
    "small_cache_precomputed": "9.2",
    "resident_keys": "9.4",
    "shared_key_value": "9.11",
    "low_rank": "15.4",
    "low_rank_backward": "16.4",
    # between ranks: iocourse.distributed.schedules
    "ring": "18.3",
    "grid": "18.5",
    "ring_backward_columns": "18.6",
    "ring_backward_rows": "18.6",
    "grid_backward": "18.6",
    "ulysses": "18.7",
    "ulysses_ring": "18.7",
    "causal_contiguous": "19.2",
    "causal_zigzag": "19.2",
    "causal_striped": "19.2",
    "packed": "19.3",
    "decode": "19.4",
    "states": "19.5",
    "states_causal": "19.5",
}
