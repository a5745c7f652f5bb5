"""What pictures say: numbers, computed or read from a record. Nothing here draws.

`schedule_selection` which schedules are requested, `memory_states` fast memory move by move and word by word,
`memory_regimes` which schedule moves the fewest words at each M; `tile_tuner`, `kernel_tuner`,
`roofline_explorer` and `lowrank_explorer` what the figures of these names know; `lowrank_record` what
recorded low-rank runs say.
"""
