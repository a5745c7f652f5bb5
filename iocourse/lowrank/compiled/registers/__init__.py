"""The passes with their numbers in vector registers, for float32 on processors with AVX-512.

`writer` is a small language of vectors; `rows`, `steps` and `guarding` are what a pass is made of; `dense`
and `causal` are the passes, and `calls` calls them with arrays.
"""
