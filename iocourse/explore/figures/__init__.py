"""The figures: pure functions that return a `Picture`.

A new one is one file here, or stands beside those of its family: a function under `@figure`, above it an
`@example` for the tests.
"""
