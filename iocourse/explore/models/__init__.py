"""What pictures say: numbers, computed or read from a record. Nothing here draws.

`schedule_selection` which schedules are asked for, `memory_states` fast memory move by move, `word_moves`
word by word; `tile_tuner`, `traffic_map`, `roofline_explorer`, `kernel_tuner` and `lowrank_explorer` what the
figures of these names know, with `compiler_reports` (the record of a tile), `tile_footprint` (what a program
holds) and `logits` beside them; `lowrank_record` what recorded low-rank runs say.
"""
