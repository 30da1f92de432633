"""mqstore at a real terminal: a pseudo-terminal, what is typed, and the screen that a person sees."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).parents[2] / "src"
_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\].*?\x07|[\r\n]|[^\x1b\r\n]+|\x1b", re.DOTALL)
_PATIENCE_SECONDS = 60.0
_BETWEEN_KEYS_SECONDS = 5.0
_OWN_TERMINAL = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR))\n"
"""The first of a session to open a terminal gets its Ctrl-C."""
_MQSTORE = "from mqstore.cli.app import main; main()"


class Terminal:
    """A command whose stdin, stdout and stderr are one terminal. A context manager.

    A stream that is given goes there and not to the terminal.
    """

    def __init__(
        self,
        *words: str,
        program: str = "",
        columns: int = 100,
        rows: int = 40,
        environment: dict[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        """words: of mqstore's command line. program: Python that is run instead of it."""
        self.shown = ""
        self._seen = 0
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        variables = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL + (program or _MQSTORE), *words],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs if stderr is None else stderr,
            env={**variables, "PYTHONPATH": str(SOURCE), "TERM": "xterm", **(environment or {})},
            start_new_session=True,
        )
        os.close(theirs)
        #: A read may end inside of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def type(self, text: str) -> None:
        """Keys that somebody presses; `\\x03` is Ctrl-C."""
        os.write(self._ours, text.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C until it ends, as a person does, and give the exit code.

        A first one may come before the program reads: C's library notes it, and goes on to wait for a line.
        """
        for _ in range(int(_PATIENCE_SECONDS / _BETWEEN_KEYS_SECONDS)):
            self.type("\x03")
            try:
                return self._process.wait(_BETWEEN_KEYS_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        raise AssertionError("Ctrl-C does not end it")

    def wait_for(self, text: str) -> None:
        """Until that is shown, behind what was waited for before."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while (at := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < end and self._read(), f"no {text!r} in {self.shown!r}"
        self._seen = at + len(text)

    def end(self) -> int:
        """The exit code, once all was read."""
        while self._read():
            pass
        return self._process.wait(_PATIENCE_SECONDS)

    @property
    def screen(self) -> list[str]:
        """The lines that a person sees at the end, and all above them."""
        return screen_of(self.shown)

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], _PATIENCE_SECONDS)[0]:
            return False
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.shown += self._decoder.decode(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._ours)


def screen_of(shown: str) -> list[str]:
    """What a terminal makes of bytes: lines, with what was erased or written over gone.

    >>> screen_of("half\\r\\x1b[2Kone\\r\\ntwo\\x1b[1A\\rO")
    ['One', 'two']
    """
    lines, row, column = [""], 0, 0
    for match in _CONTROL.finditer(shown):
        text, count, name = match[0], match[1], match[2]
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif name == "A":
            row = max(0, row - int(count or 1))
        elif name == "K":
            lines[row] = "" if count == "2" else lines[row][:column]
        elif not text.startswith("\x1b"):
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
    while lines and not lines[-1]:
        lines.pop()
    return lines
