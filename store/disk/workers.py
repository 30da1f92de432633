"""Work for another core: a function runs in a copy of this process, and its result comes back."""

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
"""Arrays begin at a multiple of it."""


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

    The result is pickled; large arrays in it come back mapped from a temporary file. A child that fails in
    any way has no result; whoever asked does the work itself then, and meets the error at first hand.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self.pid, self._pipe = 0, -1
        if not hasattr(os, "fork"):
            return
        self._folder, self._large = _folder(), _room()
        self._pipe, into = os.pipe()
        _give_back()
        self.pid = os.fork()
        if not self.pid:
            _work(work, into, self._folder, self._large)
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
        return None if failed else self._unpacked(data)

    def _unpacked(self, data: bytes) -> T | None:
        packed, places = pickle.loads(data)
        try:
            room = self._large.mapped(private=True) if self._large and places else memoryview(b"")
        except NoSpace:  # no memory to map it, either
            return None
        found: T = pickle.loads(packed, buffers=[room[at : at + size] for at, size in places])
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


def _room() -> TemporaryBytes | None:
    """Where a child leaves large arrays. None: nowhere."""
    try:
        return TemporaryBytes()
    except NoSpace:
        return None


def _packed(found: object, large: TemporaryBytes | None) -> bytes:
    """An object in a pickle, and where in `large` its arrays lie: (begin, bytes) of each."""
    places = list[tuple[int, int]]()

    def put(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if large is None or raw.nbytes < _LARGE_BYTES:
            return True  # into the pickle
        places.append((large.append(raw), raw.nbytes))
        large.append(bytes(-raw.nbytes % _ALIGNED))
        return False

    try:
        packed = pickle.dumps(found, pickle.HIGHEST_PROTOCOL, buffer_callback=put)
    except NoSpace:
        large = None
        places.clear()
        packed = pickle.dumps(found, pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((packed, places), pickle.HIGHEST_PROTOCOL)


def _work(
    work: Callable[[], Any], into: int, folder: TemporaryDirectory[str] | None, large: TemporaryBytes | None
) -> None:
    """The child's whole life: nothing of the parent's is run or flushed here a second time."""
    code = 1
    if folder is not None:
        import tempfile

        tempfile.tempdir = folder.name
    try:
        with refusing():
            found = work()
        data = _packed(found, large)
        with os.fdopen(into, "wb") as pipe:
            pipe.write(data)
        code = 0
    finally:
        os._exit(code)
