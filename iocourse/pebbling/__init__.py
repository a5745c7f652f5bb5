"""Red–blue pebble game on small graphs: play it by hand, or find a cheapest pebbling by exact search.

A red pebble on a vertex is a word in fast memory, a blue one is in slow memory. There are M red pebbles.
Every load and store moves one word. At the start all inputs have blue pebbles, at the end all outputs.
"""

from .graphs import Graph, Vertex, attention, compulsory, dot, matmul, softmax_row
from .rules import Game, IllegalMove, Move, State, cost_of, ledger_of, replay
from .search import MAX_STATES, NoPebbling, Pebbling, TooLarge, optimum

__all__ = [
    "MAX_STATES",
    "Game",
    "Graph",
    "IllegalMove",
    "Move",
    "NoPebbling",
    "Pebbling",
    "State",
    "TooLarge",
    "Vertex",
    "attention",
    "compulsory",
    "cost_of",
    "dot",
    "ledger_of",
    "matmul",
    "optimum",
    "replay",
    "softmax_row",
]
