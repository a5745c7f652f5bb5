"""Almost-linear time: attention whose exponential is a polynomial, so that n × n is never formed.

Read in this order: `monomials` (features of a row), `polynomials` (which polynomial stands for exp, and how far
off it is), `forward`, `gradient`, `causal`.
"""
