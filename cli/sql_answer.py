"""The query that `sql` takes, and its answer as it is printed, wherever it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from .declared import Argument, Options, bad_parameter
from .options import Common
from .selection_options import Since, Until
from .unread import Partial, unread_text

if TYPE_CHECKING:
    import pyarrow as pa


def parse_query(text: str) -> str:
    """A query as it is typed. Raises BadParameter for bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:  # what the shell gave is kept in surrogates
        raise bad_parameter("it is not UTF-8") from None
    return text


Query = Annotated[str, Argument(metavar="QUERY", parser=parse_query, help="A SELECT over the views.")]


class SqlOptions(Options):
    """What a query sees of stores; the annotations are the declaration of the options."""

    since: Since = None
    until: Until = None
    partial: Partial = False


def shown_columns(columns: Mapping[str, bool], common: Common) -> list[str]:
    """The columns of an answer as it is printed. Raises InvalidInput where `--fields` names another.

    columns: names, and whether they are bytes, which are text where they can be (`NAME`, else
    `NAME_base64`).
    """
    shown = [name for column, raw in columns.items() for name in (column, *[f"{column}_base64"] * raw)]
    common.open_output().check(shown)
    return shown


def print_answer(
    answer: Iterable[pa.RecordBatch], columns: Sequence[str], left_out: Sequence[Mapping[str, Any]], common: Common
) -> None:
    """Print rows as they come, and behind them what stores they are not from."""
    from ..store.arrow.export_formats import records_of

    with common.open_output() as output:
        records = (_finite(record) for rows in answer for record in records_of(rows))
        output.table(records, columns, left_out, unread_text)


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: these are texts."""
    for name, value in record.items():
        if isinstance(value, float) and not isfinite(value):
            record[name] = str(value)
    return record
