"""iocourse: attention is a question about moving words."""

__version__ = "0.1.0"
