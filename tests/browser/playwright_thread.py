"""Playwright in a thread of its own.

Its synchronous API leaves an event loop running in the thread that starts it. As long as it does, nothing
else there can run one: neither `asyncio.run` nor a notebook's client. Here that thread is not pytest's.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

_this = threading.local()
_thread = ThreadPoolExecutor(1, "browser", initializer=lambda: setattr(_this, "is_the_browsers", True))


class InPlaywrightThread:
    """An object or a function of Playwright: whatever is asked of it, its thread does."""

    def __init__(self, one):
        self._one = one

    def __getattr__(self, name):
        return _in_thread(getattr, self._one, name)

    def __call__(self, *given, **told):
        return _in_thread(self._one, *given, **told)

    def __enter__(self):
        return _in_thread(self._one.__enter__)

    def __exit__(self, *raised):
        return _in_thread(self._one.__exit__, *raised)

    def __repr__(self):
        return repr(self._one)


def _in_thread(call, *given, **told):
    given, told = [_bare(one) for one in given], {name: _bare(one) for name, one in told.items()}
    if getattr(_this, "is_the_browsers", False):  # a test's function that Playwright calls
        return _wrapped(call(*given, **told))
    return _wrapped(_thread.submit(call, *given, **told).result())


def _bare(one):
    return one._one if isinstance(one, InPlaywrightThread) else one


def _wrapped(value):
    if isinstance(value, list):
        return [_wrapped(one) for one in value]
    return (
        InPlaywrightThread(value)
        if callable(value) or type(value).__module__.startswith("playwright.")
        else value
    )
