"""A progress bar on stderr for work that takes longer than a second: bytes, rate and time left.

A Spark job shows its stage and tasks instead of bytes.

The bar is one line, drawn where the cursor is and erased before anything else is printed. Only calls draw it, no
thread. So it can be on the same terminal as the data.
"""

from __future__ import annotations

import os
import sys
import time
from threading import RLock
from typing import IO, TYPE_CHECKING, Any, Self

from .terminal import is_dumb, is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    import rich.progress

QUIET_SECONDS = 1.0
"""Work that takes less time shows no bar."""
_REDRAW_SECONDS = 0.1
_AFTER_DATA_SECONDS = 0.5
"""Time without a bar after data was printed: no bar between lines in quick succession."""
_ERASE = "\r\x1b[2K"


class _Screen:
    """The last line of the terminal: whether it shows the bar, and data that is written to the same terminal."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.drawn = False
        self.data: IO[bytes] | None = None
        self._free_at = 0.0
        #: The work that is being done, or that an error ended.
        self.at_work: Progress | None = None

    def draw(self, line: str) -> None:
        """Draw a bar on the last line, after all data. If stderr is closed, nothing happens."""
        with self.lock:
            if time.monotonic() < self._free_at:
                return
            if self.data is not None:
                self.data.flush()
            _put(_ERASE + line)
            self.drawn = True

    def erase(self) -> None:
        with self.lock:
            if self.drawn:
                self.drawn = False
                _put(_ERASE)

    def tell(self, text: str) -> None:
        """Print text on stderr in the place of the bar. An error of writing is ignored."""
        with self.lock:
            self.erase()
            _put(text)

    def make_room(self, data: IO[bytes]) -> None:
        """Erase the bar, because data is about to be written to this terminal."""
        with self.lock:
            self.data = data
            self.erase()
            self._free_at = time.monotonic() + _AFTER_DATA_SECONDS


def _put(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


SCREEN = _Screen()
"""The only instance: there is one terminal."""


class Progress:
    """Counts the bytes done and draws the bar; not if stderr is no terminal, or cannot erase a line."""

    def __init__(self, what: str, total_bytes: int, wanted: bool = True, *, colour: bool = False) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._wanted = wanted and is_terminal(sys.stderr) and not is_dumb()
        self._draw_at = time.monotonic() + QUIET_SECONDS
        self._colour = colour
        self._note: str | None = None
        self._bar: rich.progress.Progress | None = None
        self._task: Any = None

    def advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if not self._wanted:
            return
        if time.monotonic() >= self._draw_at:
            self._draw()

    def positions(self, start: int) -> Callable[[int], None]:
        """A function that takes positions reached, in any order, instead of sizes; the first position is `start`."""
        done = start

        def tell(position: int) -> None:
            nonlocal done
            self.advance(max(0, position - done))
            done = max(done, position)

        return tell

    @property
    def begun(self) -> bool:
        return self._done_bytes > 0

    def note(self, text: str) -> None:
        """Show a text in place of bytes and rate; draws the bar at once."""
        if not self._wanted:
            return
        self._note = text
        self._draw()

    def _draw(self) -> None:
        """Draw the bar; only this imports rich."""
        from io import StringIO

        from rich.console import Console

        self._draw_at = time.monotonic() + _REDRAW_SECONDS
        if self._bar is None:
            self._bar = self._made()
        self._bar.update(self._task, completed=self._done_bytes, note=self._note)
        text = StringIO()
        console = Console(
            file=text,
            width=_columns() - 1,  # a terminal goes to the next line after the last column
            force_terminal=True,
            color_system="standard" if self._colour else None,
        )
        console.print(self._bar.get_renderable(), end="", no_wrap=True, crop=True)
        SCREEN.draw(text.getvalue().partition("\n")[0])

    def _made(self) -> rich.progress.Progress:
        from rich import progress as p

        rate: list[p.ProgressColumn] = [p.DownloadColumn(binary_units=True), p.TransferSpeedColumn()]
        if self._note is not None:
            rate = [p.TextColumn("{task.fields[note]}")]
        bar = p.BarColumn(bar_width=_WIDTH if _columns() > _NARROW else _WIDTH // 4)
        columns = (p.TextColumn("{task.description}"), bar, *rate, p.TimeRemainingColumn())
        made = p.Progress(*columns, auto_refresh=False)
        self._task = made.add_task(self._what, total=self._total_bytes or None, note=self._note)
        return made

    def __str__(self) -> str:
        from ..store.counted import bytes_text

        done = bytes_text(self._done_bytes)
        total = f" of {bytes_text(self._total_bytes)}" if self._total_bytes else ""
        return f"{self._what}: {done}{total}"

    def __enter__(self) -> Self:
        SCREEN.at_work = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            SCREEN.at_work = None
        if self._bar is not None:
            SCREEN.erase()


_WIDTH = 40
_NARROW = 90


def _columns() -> int:
    """Width of the terminal: of COLUMNS, or of the terminal of stderr; 80 if neither is known."""
    from_shell = os.environ.get("COLUMNS", "")
    if from_shell.isdecimal() and int(from_shell):
        return int(from_shell)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
