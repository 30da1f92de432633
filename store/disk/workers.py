"""Work for another core: a function runs in a copy of this process, and its result comes back."""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from .byte_reader import refusing

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

T = TypeVar("T")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def beside(work: Callable[[], T], *, worth: bool) -> Iterator[Callable[[], T]]:
    """Runs `work` in a child process from now on, where that is worth a process; what it gives waits
    for the result. The child ends with the context.
    """
    if not worth:
        yield work
        return
    with Forked(work) as child:

        def wait() -> T:
            found = child.result()
            return work() if found is None else found

        yield wait


class Forked(Generic[T]):
    """Runs `work` in a child process from now on; leave the context to be rid of it.

    pid: of the child, 0 where there is none any more.

    The result has to be small: it is pickled. A child that fails in any way has no result; whoever
    asked does the work itself then, and meets the error at first hand.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.pid, self._pipe = 0, -1
        if not hasattr(os, "fork"):
            return
        self._folder = _folder()
        self._pipe, into = os.pipe()
        _give_back()
        self.pid = os.fork()
        if not self.pid:
            _work(work, into, self._folder)
        os.close(into)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._wait()

    def ready(self, wait_s: float) -> bool:
        """Wait for the result for so long; True where `result` has something to say."""
        return not self.pid or bool(select.select([self._pipe], [], [], wait_s)[0])

    def result(self) -> T | None:
        """Wait for the result; None where there is none."""
        if not self.pid:
            return None
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            data = pipe.read()
        failed = self._wait()
        found: T | None = None if failed else pickle.loads(data)
        return found

    def _wait(self) -> int:
        """Take leave of the child; returns its exit code."""
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if self._folder is not None:
            self._folder.cleanup()
        return os.waitstatus_to_exitcode(status)


def _give_back() -> None:
    """Give memory that nobody uses back to the system: a child would keep all that it was forked with."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the GNU C library has it
    if trim is not None:
        trim(0)


def _folder() -> TemporaryDirectory[str] | None:
    """Where a child makes its temporary files: it ends at once, and leaves them to its parent. None: nowhere."""
    from tempfile import TemporaryDirectory

    try:
        return TemporaryDirectory(prefix="mqstore-work-", ignore_cleanup_errors=True)
    except OSError:
        return None


def _work(work: Callable[[], Any], into: int, folder: TemporaryDirectory[str] | None) -> None:
    """The child's whole life: nothing of the parent's is run or flushed here a second time."""
    code = 1
    if folder is not None:
        import tempfile

        tempfile.tempdir = folder.name
    try:
        with refusing():
            found = work()
        data = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
        with os.fdopen(into, "wb") as pipe:
            pipe.write(data)
        code = 0
    finally:
        os._exit(code)
