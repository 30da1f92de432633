"""Something that gives items is asked in a thread of its own: whoever waits for them hears Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

_Item = TypeVar("_Item")
_AHEAD = 2
_POLL_S = 0.1


class _End(Exception):
    """There is no more."""


def in_thread(
    items: Callable[[], Iterator[_Item]], stop: Callable[[], None]
) -> Generator[_Item, None, None]:
    """What `items` gives, a few ahead. stop: is called from here to end it before its end.

    Raises what `items` raises.
    """
    ready: Queue[_Item | BaseException] = Queue(_AHEAD)
    given_up = Event()

    def work() -> None:
        try:
            for item in items():
                ready.put(item)
                if given_up.is_set():
                    return
            ready.put(_End())
        except BaseException as error:  # noqa: BLE001 (raised where the items are wanted)
            ready.put(error)

    thread = Thread(target=copy_context().run, args=(work,), daemon=True)
    thread.start()
    try:
        while not isinstance(found := ready.get(), BaseException):
            yield found
    finally:
        given_up.set()
        if thread.is_alive():
            _empty(ready, thread, stop)
    if not isinstance(found, _End):
        raise found


def _empty(ready: Queue[_Item], thread: Thread, stop: Callable[[], None]) -> None:
    """Let the thread come to its end: it may wait for room, or be at work."""
    while thread.is_alive():
        stop()
        try:
            ready.get(timeout=_POLL_S)
        except Empty:
            thread.join(_POLL_S)
