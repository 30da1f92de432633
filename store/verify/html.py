"""What a notebook shows of a store and of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..counted import counted
from ..search.queue_search import batch_summaries

if TYPE_CHECKING:
    from ..search.store import Store
    from .verdict import Verdict

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


def queues_html(store: Store) -> str:
    """The queues of a store, batch queues too. Raises as `Store.queue_summaries`."""
    queues = [*store.queue_summaries, *batch_summaries(store)]
    queues.sort(key=lambda queue: (queue.topic, queue.queue_id))
    title = f"{store.layout.root}: {counted(len(queues), 'queue')}, log ends at {store.log_end.position}"
    rows = [(q.topic, q.queue_id, q.min_offset, q.max_offset) for q in queues]
    return table_html(title, ("topic", "queue", "min offset", "max offset"), rows)


def verdict_html(verdict: Verdict) -> str:
    """A verdict with its findings."""
    rows = [(f.severity.label, f.code, f.path, f.message) for f in verdict.findings]
    return table_html(repr(verdict), ("severity", "code", "path", "finding"), rows)
