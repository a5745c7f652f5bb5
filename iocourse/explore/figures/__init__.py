"""The figures, a file each: pure functions that return a `Picture` and are listed by `@figure`."""
