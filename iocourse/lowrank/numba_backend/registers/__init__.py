"""The passes with their numbers in vector registers, for float32 on processors with AVX-512, or AVX2 and FMA.

`writer` is a small language of vectors; `rows`, `steps` and `guarding` are what a pass is made of, `sixteen`
what differs where there are 16 registers and not 32; `dense` and `causal` are the passes, and `calls` calls
them with arrays.
"""
# <!-- 16 as definition -->
