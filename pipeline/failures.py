"""Turn what Spark says of a failed job into the error that a worker met."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..store import errors
from ..store.errors import StoreError
from .spark import telling_line


class JobFailed(StoreError):
    """Spark gave up on a job."""


@contextmanager
def failures() -> Iterator[None]:
    """Raise the error of a worker, in one line, instead of Spark's account of it."""
    try:
        yield
    except Exception as error:  # Spark has its own kind for every layer a failure passes
        require_no_interrupt(error)
        raise failure_of(str(error)) from error


def require_no_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt for an error that followed one: Ctrl-C cuts the talk with the JVM in the middle, and
    Spark's next requests to clean up get no answer."""
    before = error.__context__
    while before is not None:
        if isinstance(before, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        before = before.__context__


def failure_of(text: str) -> StoreError:
    """Return the error of `store.errors` that a worker's traceback names, else JobFailed with the exception."""
    found = re.findall(r"^\s*mqstore\.[\w.]+\.(\w+): (.*)$", text, re.MULTILINE)
    kinds = [(getattr(errors, name, None), message) for name, message in found]
    for kind, message in kinds:
        if isinstance(kind, type) and issubclass(kind, StoreError):
            return kind(message)
    ended = _WORKER_ENDED.search(text)
    return JobFailed(f"the Spark job failed: {ended[0] if ended else telling_line(text)}")


_WORKER_ENDED = re.compile(r"Python worker exited unexpectedly.*")
"""Spark names it below the exceptions that it has led to."""
