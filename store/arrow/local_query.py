"""A SQL query over the views of some stores, answered in this process by DuckDB.

DuckDB plans the query over the schemas of the views and reads only the columns and rows the plan needs: each view is
registered as an Arrow data set, which is scanned when the plan asks for it.

The query runs in a thread of its own, so that the waiting main thread reacts to Ctrl-C.
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
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import dataset

from ..disk.byte_reader import Closing, give_up
from ..errors import InvalidInput, LimitExceeded, StoreError, Unsupported
from .stores import ReadOptions
from .views import VIEWS, AnswerGaps, View, rows_of_view, unique_names

_Item = TypeVar("_Item")
_AHEAD = 2
_POLL_S = 0.1


class _End(Exception):
    """Marks the end of the items."""


def in_thread(items: Callable[[], Iterator[_Item]], stop: Callable[[], None]) -> Generator[_Item, None, None]:
    """Yield what `items` yields, computed in a thread a few items ahead. stop: called from this thread to end it early.

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
            _drain(ready, thread, stop)
    if not isinstance(found, _End):
        raise found


def _drain(ready: Queue[_Item], thread: Thread, stop: Callable[[], None]) -> None:
    """Drain the queue until the thread ends: it may wait for room, or be computing."""
    while thread.is_alive():
        stop()
        try:
            ready.get(timeout=_POLL_S)
        except Empty:
            thread.join(_POLL_S)


_MEMORY = "200MB"
"""DuckDB's memory limit; beyond it DuckDB uses a temporary directory."""
_RESTRICTIONS = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
"""A query can read the views and nothing else on this machine."""
_TABLE = "BASE_TABLE"
_ROWS = 1 << 11
"""Rows per batch of the answer, as many as one step of DuckDB has: bodies may be large."""
_NO_MEMORY = "Out of Memory Error"
"""Recognized by its text: while a result is read, the exception has no own type."""
_QUERY_PART = re.compile(r"\n\s*\n?LINE \d+:.*", re.DOTALL)


class LocalQuery(Closing):
    """A valid query; stores are read only by `answer`. A context manager.

    views: those the query reads. columns: by name, in order, whether each column of the answer is binary.
    """

    def __init__(self, text: str, jobs: int | None = None) -> None:
        """jobs: threads of DuckDB, None for one per core. Raises InvalidInput, Unsupported."""
        if importlib.util.find_spec("duckdb") is None:
            raise Unsupported("no SQL without DuckDB", hint="pip install 'mqstore[sql]'")
        import duckdb

        self._relation: Any = None
        self._answer: Generator[pa.RecordBatch, None, None] | None = None
        self._spill = TemporaryDirectory(prefix="mqstore-sql-")
        self._connection = duckdb.connect(config=_settings(self._spill.name, jobs))
        for setting in _RESTRICTIONS:  # the temporary directory must be set before
            self._connection.execute(setting)
        self._scans = {name: ViewScan(view) for name, view in VIEWS.items()}
        try:
            self._prepare(text)
        except BaseException:
            self.close()
            raise

    def _prepare(self, text: str) -> None:
        import duckdb

        try:
            for name, scan in self._scans.items():
                self._connection.register(name, scan)
            statements = duckdb.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                several = any(each.type.name == "MULTI" for each in statements)
                hint = "a PIVOT needs its values: PIVOT … ON tags IN ('a', 'b') …" if several else ""
                raise InvalidInput("the query must be one SELECT, and nothing else", hint=hint)
            self._relation = self._connection.sql(text)
            (tree,) = self._connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
            named = set(_table_names(json.loads(tree[0])))  # perhaps some made by WITH; none for a DESCRIBE
            self.views = [view for name, view in VIEWS.items() if name in named]
        except duckdb.Error as error:
            raise InvalidInput(f"the query: {_error_text(error)}") from error
        columns = zip(self._relation.columns, self._relation.types, strict=True)
        self.columns = unique_names((name, str(kind) == "BLOB") for name, kind in columns)

    def answer(self, ask: ReadOptions, lacking: AnswerGaps) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the answer; `lacking` is told what cannot be read.

        Raises StoreError (also for a value of a row that an expression cannot take), InvalidInput, LimitExceeded.
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
                    yield self._with_plain_sums(rows)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for scan in self._scans.values():
                if scan.failed is not None:
                    raise scan.failed from error
            if _NO_MEMORY in str(error):
                raise LimitExceeded("the query needs too much memory", hint="select less, or use --master") from error
            if isinstance(error, duckdb.DataError):  # the query is valid, and may work for other rows
                raise StoreError(f"a value that the query cannot use: {_error_text(error)}") from error
            raise InvalidInput(f"the query: {_error_text(error)}") from error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        relation = self._relation
        # the name in DuckDB 2, then the old one
        read = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        yield from read(_ROWS)

    def _with_plain_sums(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Turn the 128-bit sums of DuckDB, decimals in Arrow, into 64-bit numbers where they fit."""
        columns = []
        for column in rows.columns:
            if pa.types.is_decimal(column.type) and column.type.scale == 0:
                with suppress(pa.ArrowInvalid):
                    column = column.cast(pa.int64())
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def close(self) -> None:
        """Stop the query and release everything."""
        if self._answer is not None:
            self._answer.close()
        self._relation = None
        self._connection.close()
        self._spill.cleanup()


class ViewScan(dataset.Dataset):  # type: ignore[misc]
    """A view as an Arrow data set, of which DuckDB asks for some columns of some rows."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._asked: tuple[ReadOptions, AnswerGaps] | None = None
        self._context = Context()
        self.failed: Exception | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._view.schema

    def begin(self, ask: ReadOptions, lacking: AnswerGaps) -> None:
        """Set the stores to read."""
        self._asked, self.failed = (ask, lacking), None
        self._context = copy_context()

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> Any:
        """The rows that pass a filter, as far as DuckDB uses an Arrow scanner. Its threads take turns reading."""
        names = list(self._view.columns if columns is None else columns)
        schema = pa.schema([self._view.schema.field(name) for name in names])
        reader = pa.RecordBatchReader.from_batches(schema, self._rows(names, filter))
        return SimpleNamespace(to_reader=lambda: reader)

    def _rows(self, names: Sequence[str], wanted: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        # any thread may ask: unread bytes are noted in the context of the waiting thread
        if self._asked is None:
            return
        rows = rows_of_view(self._view, self._asked[0], names, self._asked[1], wanted)
        context = self._context.copy()
        try:
            while (batch := context.run(next, rows, None)) is not None:
                yield batch
        except Exception as error:  # DuckDB turns it into a text
            self.failed = error
            raise
        finally:
            context.run(rows.close)


def _settings(spill: str, jobs: int | None) -> dict[str, Any]:
    settings = {"temp_directory": spill, "memory_limit": _MEMORY}
    return settings if jobs is None else {**settings, "threads": str(jobs)}


def _table_names(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("type") == _TABLE:
            yield str(tree["table_name"]).lower()
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            yield from _table_names(branch)


def _error_text(error: Exception) -> str:
    """DuckDB's message on one line, without the query."""
    text = _QUERY_PART.sub("", str(error)).strip()
    return " ".join(line.strip() for line in text.splitlines() if line.strip())
