"""Playwright in a thread of its own.

Its synchronous API leaves an event loop running in the thread that starts it. As long as it does, nothing
else there can run one: neither `asyncio.run` nor a notebook's client. Here that thread is not pytest's.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

_this = threading.local()
_thread = ThreadPoolExecutor(1, "browser", initializer=lambda: setattr(_this, "is_the_browsers", True))


class Apart:
    """An object or a function of Playwright: whatever is asked of it, its thread does."""

    def __init__(self, one):
        self._one = one

    def __getattr__(self, name):
        return _there(getattr, self._one, name)

    def __call__(self, *given, **told):
        return _there(self._one, *given, **told)

    def __enter__(self):
        return _there(self._one.__enter__)

    def __exit__(self, *raised):
        return _there(self._one.__exit__, *raised)

    def __repr__(self):
        return repr(self._one)


def _there(call, *given, **told):
    given, told = [_bare(one) for one in given], {name: _bare(one) for name, one in told.items()}
    if getattr(_this, "is_the_browsers", False):  # a test's function that Playwright calls
        return _apart(call(*given, **told))
    return _apart(_thread.submit(call, *given, **told).result())


def _bare(one):
    return one._one if isinstance(one, Apart) else one


def _apart(value):
    if isinstance(value, list):
        return [_apart(one) for one in value]
    return Apart(value) if callable(value) or type(value).__module__.startswith("playwright.") else value
