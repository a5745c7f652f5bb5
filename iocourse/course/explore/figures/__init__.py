"""Figures: pure functions that return a `Picture`.

To add one, decorate a function with `@figure` in a new file, or in the file of a related figure. `@example`
above it adds a call that the tests draw.
"""
