"""What pictures say: numbers, computed or read from a record. Nothing here draws.

`chosen` which schedules are asked for, `trace` fast memory move by move, `travel` word by word;
`tile_tuner`, `memory_map`, `roofline_explorer`, `kernel_tuner` and `lowrank_explorer` what the figures of
these names know, with `compiled_tiles` (the record of a tile), `kernel_tiles` (what a program holds) and
`logits` beside them; `records/` what recorded runs say.
"""
