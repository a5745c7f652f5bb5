"""Spans of tokens, each worked on by a thread of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

SPAN = 8192  # tokens: a thread's share is not shorter

Found = TypeVar("Found")


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lowrank")


if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def many(threads: int, n: int) -> int:
    """How many spans n tokens are cut into."""
    return min(threads, n // SPAN)


def each(work: Callable[[int, int], Found], n: int, threads: int) -> list[Found]:
    """work(start, stop) of equal shares of n tokens, and what each returned, in order."""
    count = many(threads, n)
    if count < 2:
        return [work(0, n)]
    edges = [n * part // count for part in range(count + 1)]
    return list(_pool(threads).map(work, edges[:-1], edges[1:]))
