"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_ROWS_MAX = 50


def table_html(title: str, head: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    """A table with a title; of many rows the first ones. All texts are escaped."""
    lines = [f"<p>{_text(title)}</p>", "<table>", _row("th", head)]
    lines += [_row("td", row) for row in rows[:_ROWS_MAX]]
    lines.append("</table>")
    if len(rows) > _ROWS_MAX:
        lines.append(f"<p>… {len(rows) - _ROWS_MAX} more</p>")
    return "\n".join(lines)


def _row(cell: str, values: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{cell}>{_text(v)}</{cell}>" for v in values) + "</tr>"


def _text(value: object) -> str:
    """Escaped; names of directories may have bytes that are no UTF-8, and no notebook takes these."""
    return escape(str(value).encode("utf-8", "backslashreplace").decode())
