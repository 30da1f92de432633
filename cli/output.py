"""Write data as text, JSON, NDJSON or CSV, to stdout or to a file.

A command gives records (mappings, by the field names of the output), a function that makes the text of a record, and
the columns of a CSV. Records are written as they arrive; nothing is collected.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import IO, Any, Self

from .declared import Format
from .exit_codes import ExitCode
from .output_file import OutputFile, check_place
from .progress import SCREEN
from .terminal import colour_wanted, escape, escape_lines, is_terminal, time_text

Record = Mapping[str, Any]
TextOf = Callable[[Record], str]
Columns = Sequence[str] | Callable[[], Sequence[str]]
"""Field names, or a function that returns them when they are needed."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a cell that begins with one of these as a formula."""

_JSON = (Format.JSON, Format.NDJSON)
_TIMES = ("_timestamp", "began", "now")
"""A field whose name ends so has epoch milliseconds; text and CSV show it as a time."""
_BASE64 = "_base64"
"""Suffix of a CSV column that has the bytes of a text which is shown escaped, and cannot be read back."""


class Output:
    """The writer of a command's data, a context manager that flushes at its end.

    The file of `--output` is replaced at the end: a command that fails or is interrupted leaves it as it was.
    """

    def __init__(
        self,
        form: Enum,
        fields: str | None = None,
        path: Path | None = None,
        *,
        no_color: bool = False,
        utc: bool = False,
        growing: bool = False,
        mode: int | None = None,
    ) -> None:
        """form: a `Format`, or a format of the command's own. fields, path: of `--fields` and `--output`. growing: the
        output is valid even if the command does not come to its end. mode: permissions of the file, whatever the umask
        is.
        """
        self._form = form
        self._fields = [f.strip() for f in fields.split(",")] if fields else None
        self._path = path
        self._no_color = no_color
        self._utc = utc
        self._growing = growing
        self._mode = mode
        self._file: OutputFile | None = None
        self._stream: IO[bytes] | None = None
        self._checked: tuple[str, ...] = ()
        self._shown = False
        self._done = ""

    @property
    def format(self) -> str:
        return str(self._form.value)

    @property
    def colour(self) -> bool:
        return self._path is None and colour_wanted(sys.stdout, self._no_color)

    @property
    def on_terminal(self) -> bool:
        """Whether the data goes straight to a terminal."""
        return self._path is None and is_terminal(sys.stdout)

    def check(self, columns: Columns) -> None:
        """Check `--fields` and `--output` before the command works long or changes anything.

        columns: all that `--fields` may name, also fields that the records may lack. Raises InvalidInput, OSError.
        """
        self._known(columns)
        self._checked = tuple(_names(columns)) if self._fields else ()
        if self._path is not None and self._stream is None:
            check_place(self._path)

    def note_done(self, what: str) -> None:
        """Remember what the command has changed: if its answer cannot be written, the error says so, too."""
        self._done = what

    def records(self, records: Iterable[Record], *, text: TextOf, columns: Columns) -> None:
        """Write a stream of records; in JSON it is one array.

        text: makes one or more lines of a record, without the last line end; escaped here. columns: the columns of a
        CSV, and all that `--fields` may name.
        """
        if self._form in _JSON:
            from .json_text import line_of

            self.lines(map(line_of, self._chosen(records, columns)))
        elif self._form == Format.CSV:
            self._csv(records, self._known(columns) or _names(columns))
        elif self._fields is not None:
            self._lines(self._plain_rows(records, self._known(columns) or ()))
        else:
            self._lines(escape_lines(text(record)) for record in records)

    def table(self, records: Iterable[Record], columns: Columns, notes: Sequence[Record], text: TextOf) -> None:
        """Write records with the same columns; as text a line of their names, then lines with tabs between cells.

        notes: other records that follow, with the text of `text`; left out of a CSV, and with `--fields` unless as
        text.
        """
        if self._form == Format.TEXT:
            names = self._known(columns) or _names(columns)
            self._lines(self._plain_rows(chain([dict(zip(names, names, strict=True))], records), names))
            self._lines(escape_lines(text(note)) for note in notes)
            return
        behind = () if self._fields or self._form == Format.CSV else notes
        self.records(chain(records, behind), text=text, columns=columns)

    def record(
        self, record: Record, *, text: TextOf, columns: Columns | None = None, verdict: ExitCode | None = None
    ) -> None:
        """Write one record; in JSON it is an indented object.

        verdict: the text is a page that begins with a verdict, and this is the exit code of that verdict.
        """
        columns = tuple(record) if columns is None else columns
        if self._form == Format.JSON:
            from .json_text import indented_lines

            for chosen in self._chosen([record], columns):
                self._lines(indented_lines(chosen))
        elif verdict is not None and self._form.value == Format.TEXT and self._fields is None and self.on_terminal:
            from .terminal_page import on_terminal

            page = escape_lines(text(record))
            self._lines([on_terminal(page, verdict, colour=self.colour)])
        else:
            self.records([record], text=text, columns=columns)

    @property
    def is_lines(self) -> bool:
        """Whether records are written as JSON with all fields, so that `lines` can be used instead of `records`."""
        return self._form in _JSON and self._fields is None

    def lines(self, lines: Iterable[bytes | memoryview]) -> None:
        """Write lines of NDJSON, several at a time; in JSON they become one array, which is closed, too, where an error
        or Ctrl-C ends `lines` behind its first line.
        """
        if self._form == Format.NDJSON:
            for some in lines:
                self._write(some)
            return
        before, is_whole = b"[\n", False
        try:
            for some in lines:
                is_whole = False
                self._write(before + bytes(some[:-1]).replace(b"\n", b",\n"))
                before, is_whole = b",\n", True
        except BaseException as error:
            if is_whole and not isinstance(error, OSError):  # else nobody reads on, or the disk is full
                self._write(b"\n]\n")
            raise
        self._write(b"\n]\n" if is_whole else b"[]\n")

    def painted(self, text: str) -> None:
        """Write text that is escaped already and has the colours of `terminal.paint`."""
        self._write(text.encode())

    def raw(self, data: bytes) -> None:
        """Write bytes as they are; on a terminal as escaped text."""
        if self.on_terminal:
            data = (escape_lines(data.decode("utf-8", "backslashreplace")) + "\n").encode()
        self._write(data)

    def flush(self) -> None:
        """Write out what is buffered, for a command that waits for more data."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._explain(error)
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._path is not None and self._stream is None:
                self._stream = self._opened()  # an empty answer replaces an earlier file, too
            if self._file is not None and kind is not None and not self._growing:
                self._file.give_up()
            elif self._file is not None:
                self._file.finish()
            elif self._stream is not None:
                self._stream.flush()
        except OSError as error:
            self._explain(error)
            raise

    def _explain(self, error: OSError) -> None:
        """Set the file name of an error of writing, if it has none, and add what the command has done before."""
        if error.filename is None and error.errno != errno.EBADF:
            error.filename = "stdout" if self._path is None else str(self._path)
        if self._done:
            error.add_note(self._done)

    def _write(self, data: bytes | memoryview) -> None:
        try:
            if self._stream is None:
                self._stream = self._opened()
                self._shown = self.on_terminal
            if self._shown:
                SCREEN.make_room(self._stream)
            self._stream.write(data)
        except OSError as error:
            self._explain(error)
            raise

    def _opened(self) -> IO[bytes]:
        if self._path is not None:
            self._file = OutputFile(self._path, growing=self._growing, mode=self._mode)
            return self._file.stream
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed")
        sys.stdout.flush()
        return sys.stdout.buffer

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._write(f"{line}\n".encode())

    def _csv(self, records: Iterable[Record], columns: Sequence[str]) -> None:
        import csv
        import io

        line = io.StringIO()
        writer = csv.writer(line, lineterminator="\n")
        writer.writerow(columns)
        for record in records:
            values = ((name, _csv_value(record, name)) for name in columns)
            writer.writerow(["" if v is None else self._csv_cell(name, v) for name, v in values])
            self._write(line.getvalue().encode())
            line.seek(0)
            line.truncate()
        self._write(line.getvalue().encode())

    def _plain_rows(self, records: Iterable[Record], columns: Sequence[str]) -> Iterator[str]:
        for record in records:
            yield "\t".join(escape(self._cell(name, _find(record, name))) for name in columns)

    def _csv_cell(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            return self._cell(name, value)  # numbers, times and JSON are safe
        cell = escape_lines(value)
        # a cell that already begins with ' gets a second one, so that it is read back as it was
        return f"'{cell}" if cell.lstrip("'").startswith(FORMULA) else cell

    def _cell(self, name: str, value: Any) -> str:
        """A value as text: times readable, objects and lists as JSON, None as ""."""
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return time_text(value, self._utc) if name.endswith(_TIMES) else str(value)
        from .json_text import dumps

        return dumps(value)

    def _known(self, columns: Columns) -> list[str] | None:
        """The fields of `--fields`, all of which are known; None without `--fields`. Raises InvalidInput."""
        names = (*_names(columns), *self._checked) if self._fields else ()
        for field in self._fields or ():
            if field.partition(".")[0] not in names:
                from ..store.errors import InvalidInput

                known = ", ".join(dict.fromkeys(names))
                raise InvalidInput(f"--fields: no field {field!r} here", hint=f"there are {known}")
        return self._fields

    def _chosen(self, records: Iterable[Record], columns: Columns) -> Iterable[Record]:
        fields = self._known(columns)
        return records if fields is None else (_only(record, fields) for record in records)


def _names(columns: Columns) -> Sequence[str]:
    return columns() if callable(columns) else columns


def _find(record: Record, name: str) -> Any:
    """A field, or with dots a field inside an object: `properties.KEYS`."""
    if name in record or "." not in name:
        return record.get(name)
    name, dot, rest = name.partition(".")
    inner = record.get(name)
    return _find(inner, rest) if dot and isinstance(inner, Mapping) else None


def _csv_value(record: Record, name: str) -> Any:
    """A field. For a column NAME_base64 the bytes of the text NAME, if the CSV shows that text escaped."""
    if not name.endswith(_BASE64) or name in record:
        return _find(record, name)
    text = record.get(name.removesuffix(_BASE64))
    if not isinstance(text, str) or escape_lines(text) == text:
        return None
    from base64 import b64encode

    return b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _only(record: Record, fields: Sequence[str]) -> Record:
    """The given fields of a record; a field that the record lacks is left out, as in the whole record."""
    found = ((name, _find(record, name)) for name in fields)
    return {name: value for name, value in found if value is not None}
