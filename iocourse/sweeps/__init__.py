"""Every way to do a pass in sweeps, and the cheapest: the search that keeps `schedules.best` honest.

A sweep goes through the N x N pairs once: blocks of one side stay in fast memory, the other side passes by.
With r arrays of width d that stay, M/(r·d) rows fit; with t that pass, t·N·d words go by for each block. A
sum that passes is read and written, so it counts twice. Each N x N matrix read or written is N² words. In
units of N² and with x = d/√M a sweep costs r·t·x² + n. A sweep with a single product can also be cut:

- in tiles, to make a matrix: √M x √M of it stay, a column of each factor passes at a time. 2x + n;
- in two slices, to use one, up to x = 2: half the width of the sum stays, so twice the rows: x²/2 instead of
  x², and the matrix is read twice;
- in tiles, to use one, from x = 2 on: √M x √M of the sum stay, x slices. 2x with the matrix. Slices are whole
  in number, which is left out here: it costs nothing at x = 2, 3, ..., and 2 per cent at most, at x = √6.

These are leading terms, for 1 << d << N and M << N·d. Numbers a row (log-sum-exp, D) are of lower order.
They are there in time, for a sweep ends before the next begins: stored scores S serve as stored weights P.
What is found is the least of these sweeps, and no bound: another kind of schedule may move less.
"""

from .products import TASKS, Product, Task
from .search import Found, Piece, lower_envelope, min_cost
from .transitions import State, Sweep, Terms, moves

__all__ = [
    "TASKS",
    "Found",
    "Piece",
    "Product",
    "State",
    "Sweep",
    "Task",
    "Terms",
    "lower_envelope",
    "min_cost",
    "moves",
]
