"""The figures: pure functions that return a `Picture`.

A new one is one file here: a function under `@figure`, above it an `@example` for the tests.
"""
