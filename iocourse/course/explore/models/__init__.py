"""Data behind the figures: numbers that are computed or read from a record, without drawing.

- `schedule_selection`: the schedules that a figure draws
- `memory_states`: contents of fast memory after each move, and word by word
- `memory_regimes`: the schedule with the least traffic at each M, and the lower bounds
- `tile_tuner`, `kernel_explorer`, `tuning_table`, `lowrank_explorer`: data of the figures of the same name
- `lowrank_record`: the recorded runs of low-rank attention
"""
