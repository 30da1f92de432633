"""Run a function in a forked copy of this process, on another core, and get its result back."""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..errors import NoSpace
from .byte_reader import refusing
from .temporary import TemporaryBytes

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

T = TypeVar("T")

_LARGE_BYTES = 1 << 12
_ALIGNED = 16
"""Arrays in the file begin at a multiple of this."""


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def beside(work: Callable[[], T], *, worth: bool) -> Iterator[Callable[[], T]]:
    """Run `work` in a child process in this block if it is `worth` a process; yield a function that waits for and
    returns the result. The child ends with the block.
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
    """Runs `work` in a child process from now on; leaving the context kills the child.

    pid: of the child, 0 if it has ended. The result is pickled; large arrays in it come back mapped from a temporary
    file. A child that fails in any way has no result: the caller then does the work itself and meets the error.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.pid, self._pipe = 0, -1
        if not hasattr(os, "fork"):
            return
        self._folder, self._large = _folder(), _large_file()
        self._pipe, pipe_end = os.pipe()
        _trim_memory()
        self.pid = os.fork()
        if not self.pid:
            _run_child(work, pipe_end, self._folder, self._large)
        os.close(pipe_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self._wait()

    def ready(self, wait_s: float) -> bool:
        """Wait up to `wait_s` seconds; True if `result` will not wait, or there is no child."""
        return not self.pid or bool(select.select([self._pipe], [], [], wait_s)[0])

    def result(self) -> T | None:
        """Wait for the result; None if there is none."""
        if not self.pid:
            return None
        with os.fdopen(self._pipe, "rb", closefd=False) as pipe:
            data = pipe.read()
        failed = self._wait()
        return None if failed else self._unpacked(data)

    def _unpacked(self, data: bytes) -> T | None:
        packed, places = pickle.loads(data)
        try:
            room = self._large.mapped(private=True) if self._large and places else memoryview(b"")
        except NoSpace:  # no memory to map the arrays
            return None
        found: T = pickle.loads(packed, buffers=[room[at : at + size] for at, size in places])
        return found

    def _wait(self) -> int:
        """Wait for the child to end and clean up; return its exit code."""
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if self._folder is not None:
            self._folder.cleanup()
        return os.waitstatus_to_exitcode(status)


def _trim_memory() -> None:
    """Return unused memory to the system, which the child would otherwise keep."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only the GNU C library has it
    if trim is not None:
        trim(0)


def _folder() -> TemporaryDirectory[str] | None:
    """A folder for a child's temporary files: the child exits without cleanup, so the parent removes it. Else None."""
    from tempfile import TemporaryDirectory

    try:
        return TemporaryDirectory(prefix="mqstore-work-", ignore_cleanup_errors=True)
    except OSError:
        return None


def _large_file() -> TemporaryBytes | None:
    """The file in which a child leaves large arrays; None if none can be created."""
    try:
        return TemporaryBytes()
    except NoSpace:
        return None


def _packed(found: object, large: TemporaryBytes | None) -> bytes:
    """A pickle of (the pickled object, (begin, bytes) in `large` of each large array)."""
    places = list[tuple[int, int]]()

    def put(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if large is None or raw.nbytes < _LARGE_BYTES:
            return True  # stays in the pickle
        places.append((large.append(raw), raw.nbytes))
        large.append(bytes(-raw.nbytes % _ALIGNED))
        return False

    try:
        packed = pickle.dumps(found, pickle.HIGHEST_PROTOCOL, buffer_callback=put)
    except NoSpace:
        places.clear()
        packed = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((packed, places), pickle.HIGHEST_PROTOCOL)


def _run_child(
    work: Callable[[], Any], pipe_end: int, folder: TemporaryDirectory[str] | None, large: TemporaryBytes | None
) -> None:
    """The child's whole life: it exits without running or flushing anything of the parent's a second time."""
    code = 1
    if folder is not None:
        import tempfile

        tempfile.tempdir = folder.name
    try:
        with refusing() as noted:
            found = work()
        if not noted.expired:  # else the parent does the work itself, and notes it
            data = _packed(found, large)
            with os.fdopen(pipe_end, "wb") as pipe:
                pipe.write(data)
            code = 0
    finally:
        os._exit(code)
