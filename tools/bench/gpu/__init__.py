"""What the benchmarks on a GPU share: the place, the contenders, the clock, the values and the verdict."""
