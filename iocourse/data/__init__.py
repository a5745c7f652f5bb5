"""Real input for the lessons: heads of a small sentence encoder on a text written for this course.

>>> from iocourse.data import real_head, real_heads
>>> real_head(0, 2).Q.shape
(471, 32)
"""

from .attention_heads import Head, provenance, real_head, real_heads

__all__ = ["Head", "provenance", "real_head", "real_heads"]
