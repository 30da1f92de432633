"""The query of `sql` and its printed answer, in this process and on Spark."""

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
    """The query as it was typed. Raises BadParameter for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:  # Python keeps such bytes of an argument as surrogates
        raise bad_parameter("it is not UTF-8") from None
    return text


Query = Annotated[str, Argument(metavar="QUERY", parser=parse_query, help="A SELECT over the views.")]


class SqlOptions(Options):
    """The part of the stores that a query sees."""

    since: Since = None
    until: Until = None
    partial: Partial = False


def shown_columns(columns: Mapping[str, bool], common: Common) -> list[str]:
    """The columns of the printed answer. Raises InvalidInput if `--fields` names another column.

    columns: name → whether it has bytes. These are printed as `NAME` if they are text, else as `NAME_base64`.
    """
    shown = [name for column, raw in columns.items() for name in (column, *[f"{column}_base64"] * raw)]
    common.open_output().check(shown)
    return shown


def print_answer(
    answer: Iterable[pa.RecordBatch], columns: Sequence[str], left_out: Sequence[Mapping[str, Any]], common: Common
) -> None:
    """Print rows as they arrive, then the stores that were left out."""
    from ..store.arrow.export_formats import records_of

    with common.open_output() as output:
        records = (_finite(record) for rows in answer for record in records_of(rows))
        output.table(records, columns, left_out, unread_text)


def _finite(record: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinities by texts: JSON does not have them."""
    for name, value in record.items():
        if isinstance(value, float) and not isfinite(value):
            record[name] = str(value)
    return record
