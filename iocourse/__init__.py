"""iocourse: attention is a question about moving words.

Everything the course runs writes a `Ledger`; `costs` says what a schedule must move, `bounds` what any must.
"""

from .ledger import Ledger
from .machine import FastMemoryFull, Machine, MachineError, RowStats, Run, run

__version__ = "0.1.0"

__all__ = ["FastMemoryFull", "Ledger", "Machine", "MachineError", "RowStats", "Run", "run"]
