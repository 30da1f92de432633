"""A progress bar on stderr: bytes, rate and time left, for work that takes longer than a second.

A job of Spark says instead of bytes which stage and task it is at.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Self

from .terminal import is_terminal

if TYPE_CHECKING:
    import rich.progress

QUIET_SECONDS = 1.0
"""Work shorter than this shows no bar."""


class Progress:
    """Count bytes done. Draws nothing where stderr is no terminal.

    Nor where stdout, too, is one, unless the bar is `alone`: then nothing is printed meanwhile.
    """

    def __init__(
        self, what: str, total_bytes: int, wanted: bool = True, *, alone: bool = False
    ) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._wanted = wanted and is_terminal(sys.stderr) and (alone or not is_terminal(sys.stdout))
        self._show_at = time.monotonic() + QUIET_SECONDS
        self._note: str | None = None
        self._bar: rich.progress.Progress | None = None
        self._task: Any = None

    def advance(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        if not self._wanted:
            return
        self._done_bytes += size_bytes
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done_bytes)
        elif time.monotonic() >= self._show_at:
            self._show()

    def note(self, text: str) -> None:
        """Say in words how far it is, in the place of bytes and rate; the bar is drawn at once."""
        if not self._wanted:
            return
        self._note = text
        if self._bar is None:
            self._show()
        else:
            self._bar.update(self._task, note=text)

    def _show(self) -> None:
        """Draw the bar for the first time; rich is imported only for this."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        rate: list[ProgressColumn] = [DownloadColumn(binary_units=True), TransferSpeedColumn()]
        if self._note is not None:
            rate = [TextColumn("{task.fields[note]}")]
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *rate,
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task(
            self._what, total=self._total_bytes or None, completed=self._done_bytes, note=self._note
        )
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
