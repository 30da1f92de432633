"""A query over the views of some stores, answered in this process by DuckDB.

DuckDB plans the query over the views' schemas, and reads of each view the columns and rows that the
plan needs: a view stands there as a data set of Arrow, which is scanned when the plan wants it.

Something that gives items is asked in a thread of its own: whoever waits for them hears Ctrl-C.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from contextvars import Context, copy_context
from queue import Empty, Queue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import dataset

from ..disk.byte_reader import Closing, give_up
from ..errors import InvalidInput, LimitExceeded, StoreError, Unsupported
from .stores import Ask
from .views import VIEWS, Lacking, View, named_apart, rows_of_view

_Item = TypeVar("_Item")
_AHEAD = 2
_POLL_S = 0.1


class _End(Exception):
    """There is no more."""


def in_thread(items: Callable[[], Iterator[_Item]], stop: Callable[[], None]) -> Generator[_Item, None, None]:
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
            give_up()
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


_MEMORY = "200MB"
"""What DuckDB may use; what is more goes to a temporary directory."""
_CLOSED = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""A query reads views, and nothing else of this machine."""
_TABLE = "BASE_TABLE"
_ROWS = 1 << 11
"""Rows of a batch of the answer, those of one step of DuckDB: bodies may be large."""
_NO_MEMORY = "Out of Memory Error"
"""A result that is read says so in words only."""
_AT = re.compile(r"\n\s*\n?LINE \d+:.*", re.DOTALL)


def require_duckdb() -> None:
    """Raise Unsupported where DuckDB is missing."""
    if importlib.util.find_spec("duckdb") is None:
        raise Unsupported("no SQL without DuckDB", hint="pip install 'mqstore[sql]'")


class LocalQuery(Closing):
    """A query that makes sense; no store is looked at before `answer`. A context manager.

    views: those that it reads; columns: of its answer, in order, and whether they are bytes.
    """

    def __init__(self, text: str, jobs: int | None = None) -> None:
        """jobs: threads of DuckDB, None for one a core. Raises InvalidInput, Unsupported."""
        require_duckdb()
        import duckdb

        self._relation: Any = None
        self._answer: Generator[pa.RecordBatch, None, None] | None = None
        self._spill = TemporaryDirectory(prefix="mqstore-sql-")
        self._connection = duckdb.connect(config=_settings(self._spill.name, jobs))
        for setting in _CLOSED:  # a temporary directory can only be named before
            self._connection.execute(setting)
        self._scans = {name: ViewScan(view) for name, view in VIEWS.items()}
        try:
            self._understand(text)
        except BaseException:
            self.close()
            raise

    def _understand(self, text: str) -> None:
        import duckdb

        try:
            for name, scan in self._scans.items():
                self._connection.register(name, scan)
            statements = duckdb.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InvalidInput("the query must be one SELECT, and nothing else")
            self._relation = self._connection.sql(text)
            named = _tables_in(self._connection, text)
            self.views = [view for name, view in VIEWS.items() if name in named]
        except duckdb.Error as error:
            raise InvalidInput(f"the query: {_line(error)}") from error
        columns = zip(self._relation.columns, self._relation.types, strict=True)
        self.columns = named_apart((name, str(kind) == "BLOB") for name, kind in columns)

    def answer(self, ask: Ask, lacking: Lacking) -> Iterator[pa.RecordBatch]:
        """The rows, as they come; what cannot be read is told to `lacking`.

        Raises StoreError, also for a value of a row that an expression does not take, InvalidInput, LimitExceeded.
        """
        for scan in self._scans.values():
            scan.begin(ask, lacking)
        self._answer = self._rows()
        return self._answer

    def _rows(self) -> Generator[pa.RecordBatch, None, None]:
        import duckdb

        try:
            with closing(in_thread(self._batches, self._connection.interrupt)) as batches:
                for rows in batches:
                    yield self._shown(rows)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for scan in self._scans.values():
                if scan.failed is not None:
                    raise scan.failed from error
            if _NO_MEMORY in str(error):
                raise LimitExceeded("the query needs too much memory", hint="select less, or use --master") from error
            if isinstance(error, duckdb.DataError):  # it made sense, and may do for other rows
                raise StoreError(f"a value that the query cannot use: {_line(error)}") from error
            raise InvalidInput(f"the query: {_line(error)}") from error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        relation = self._relation
        # DuckDB 2 has a new name for it
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        yield from read(_ROWS)

    def _shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Sums of DuckDB have 128 bits, decimals of Arrow: as numbers of 64 bits, if they fit."""
        columns = []
        for column in rows.columns:
            if pa.types.is_decimal(column.type) and column.type.scale == 0:
                with suppress(pa.ArrowInvalid):
                    column = column.cast(pa.int64())
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def close(self) -> None:
        """End it, wherever it is."""
        if self._answer is not None:
            self._answer.close()
        self._relation = None
        self._connection.close()
        self._spill.cleanup()


class _Scanned:
    """What DuckDB wants of a scan: a reader."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        return self._reader


class ViewScan(dataset.Dataset):  # type: ignore[misc]
    """A view as the data set that DuckDB asks for some columns of some rows."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._asked: tuple[Ask, Lacking] | None = None
        self._context = Context()
        self.failed: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    def begin(self, ask: Ask, lacking: Lacking) -> None:
        """From now on there are these stores."""
        self._asked, self.failed = (ask, lacking), None
        self._context = copy_context()

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scanned:
        """The rows that a filter takes. Threads of DuckDB take turns with the reader."""
        names = list(self._view.columns if columns is None else columns)
        schema = pa.schema([self._view.schema.field(name) for name in names])
        return _Scanned(pa.RecordBatchReader.from_batches(schema, self._rows(names, filter)))

    def _rows(self, names: Sequence[str], wanted: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        # whichever thread asks: what is noted of unread bytes belongs to the one that waits
        if self._asked is None:
            return
        rows = rows_of_view(self._view, self._asked[0], names, self._asked[1], wanted)
        context = self._context.copy()
        try:
            while (batch := context.run(next, rows, None)) is not None:
                yield batch
        except Exception as error:  # DuckDB makes a text of it
            self.failed = error
            raise
        finally:
            context.run(rows.close)


def _settings(spill: str, jobs: int | None) -> dict[str, Any]:
    settings = {"temp_directory": spill, "memory_limit": _MEMORY}
    return settings if jobs is None else {**settings, "threads": str(jobs)}


def _tables_in(connection: Any, text: str) -> set[str]:
    """The tables that a query names, and maybe some that WITH makes, as its syntax tree has them.

    None of one that describes something.
    """
    (found,) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    return set(_named(json.loads(found[0])))


def _named(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("type") == _TABLE:
            yield str(tree["table_name"]).lower()
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            yield from _named(branch)


def _line(error: Exception) -> str:
    """What DuckDB says, without the query."""
    text = _AT.sub("", str(error)).strip()
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
