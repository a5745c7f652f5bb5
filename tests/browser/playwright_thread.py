"""Run Playwright in a separate thread.

Its synchronous API keeps an event loop running in the thread that starts it. In that thread neither
`asyncio.run` nor the client of a notebook works, so it must not be the thread of pytest.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

_this = threading.local()
_thread = ThreadPoolExecutor(1, "browser", initializer=lambda: setattr(_this, "is_the_browsers", True))


class InPlaywrightThread:
    """Proxy of an object or function of Playwright that forwards every access to its thread."""

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
    if getattr(_this, "is_the_browsers", False):  # a function of a test, called by Playwright
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
