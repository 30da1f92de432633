"""`mqstore stats --browse`: walk through a store on a terminal, as `ncdu` walks through a disk.

Lists of topics, queues and messages, then one message. One thread reads everything, in the order of the requests, so
that keys are answered at once; bytes are counted in the background. Needs the extra `tui` (textual), which only this
module imports.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rich.text import Text
from textual import work
from textual.actions import SkipAction
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static

from ..store.counted import bytes_text, counted
from ..store.errors import InvalidInput, StoreError
from ..store.offsets.lag import lacking_text, most_behind
from ..store.queues.read import QueueSummary
from ..store.search.browse import PAGE, Browser, BrowseRow, Usage
from ..store.search.selection import parse_time
from ..store.search.store import StoreReader
from .terminal import escape, escape_lines, time_text

if TYPE_CHECKING:
    from ..store.disk.broker_conf import BrokerConfig
    from ..store.log.message import Message

T = TypeVar("T")
_BAR = 10
_SHOWN_CHARS = 200
_SHOWN_BYTES = 64 << 10
"""Bytes of a body that are shown; `mqstore get` prints the whole body."""
_HEX_COLUMNS = 16
_SORTS = ("bytes", "messages", "behind", "name")
_BODIES = ("text", "JSON", "hex")
_TIME, _FILTER = "time", "filter"


Line = tuple[str, list[Text], Callable[[], "BrowseView | Message | None"]]
"""A row of a list: its name, a cell for each column, and a function that makes what Enter opens."""


class BrowseView(ABC):
    """A list of a level. shown: its lines as they are on the screen. at: name of the line with the cursor. note: what
    to know about the list, or "".
    """

    title = ""
    columns: tuple[str, ...] = ()

    def __init__(self, browser: Browser, utc: bool) -> None:
        self.browser, self.utc = browser, utc
        self.filter, self.sort, self.at, self.note = "", _SORTS[0], "", ""
        self.shown: list[Line] = []

    @abstractmethod
    def lines(self) -> list[Line]:
        """The lines to show. Called in the reading thread. Raises StoreError."""


class TopicsView(BrowseView):
    columns = ("share", "bytes", "messages", "queues", "behind", "topic")

    def lines(self) -> list[Line]:
        text, self.note = self.filter.casefold(), self.browser.unread
        found = [usage for usage in self.browser.topics() if text in usage.topic.casefold()]
        all_bytes = sum(usage.size_bytes or 0 for usage in found)
        return [
            (
                usage.topic,
                [*_usage_cells(usage, all_bytes), _number(usage.queues), *_lag_and_name(usage, usage.topic)],
                partial(QueuesView, self.browser, self.utc, usage.topic),
            )
            for usage in sorted(found, key=self._order)
        ]

    def _order(self, usage: Usage) -> tuple[int, str]:
        number = {"bytes": usage.size_bytes, "messages": usage.messages, "behind": usage.behind}
        return -(number.get(self.sort) or 0), usage.topic


class QueuesView(BrowseView):
    columns = ("share", "bytes", "messages", "first", "end", "behind", "queue")

    def __init__(self, browser: Browser, utc: bool, topic: str) -> None:
        super().__init__(browser, utc)
        self._topic, self.title = topic, topic

    def lines(self) -> list[Line]:
        found = self.browser.queues_of(self._topic)
        found = [one for one in found if self.filter in str(one[0].queue_id)]
        all_bytes = sum(usage.size_bytes or 0 for _, usage in found)
        return [
            (
                str(queue.queue_id),
                [
                    *_usage_cells(usage, all_bytes),
                    *map(_number, (queue.min_offset, queue.max_offset)),
                    *_lag_and_name(usage, str(queue.queue_id)),
                ],
                partial(MessagesView, self.browser, self.utc, queue),
            )
            for queue, usage in found
        ]


class MessagesView(BrowseView):
    """A page of a queue; entries that are not messages are marked."""

    columns = ("offset", "stored", "bytes", "message")

    def __init__(self, browser: Browser, utc: bool, queue: QueueSummary) -> None:
        super().__init__(browser, utc)
        self.queue, self.first, self.next = queue, queue.min_offset, queue.min_offset
        self.title = f"{queue.topic}/{queue.queue_id}"

    def lines(self) -> list[Line]:
        self.note = ""
        if self.filter:
            rows, end = self.browser.having(self.queue, self.first, self.filter)
            if end < self.queue.max_offset:
                self.note = f"searched {self.first} … {end - 1}; n searches further"
                self.next = end
        else:
            rows = self.browser.page(self.queue, self.first)
            self.next = self.first + PAGE
        return [(str(row.queue_offset), self._cells(row), partial(getattr, row, "message")) for row in rows]

    def _cells(self, row: BrowseRow) -> list[Text]:
        if row.message is None:
            return [_number(row.queue_offset), Text(), Text(), _mark(f"! {row.problem}")]
        stored = time_text(row.message.store_timestamp, self.utc)
        text = escape(_summary(row.message))[:_SHOWN_CHARS]
        damaged = row.message.body_crc_ok is False
        cell = _mark(f"! the body is damaged  {text}") if damaged else Text(text)
        return [_number(row.queue_offset), Text(stored), _number(row.message.total_size), cell]

    def go(self, first: int) -> None:
        """Show the page that begins at an offset, moved into the range of the queue."""
        last = max(self.queue.min_offset, self.queue.max_offset - 1)
        self.first = min(max(first, self.queue.min_offset), last)


def _number(value: int | None) -> Text:
    return Text("" if value is None else f"{value:,}", justify="right")


def _usage_cells(usage: Usage, all_bytes: int) -> list[Text]:
    """Share as a bar, bytes, messages."""
    if usage.size_bytes is None:
        return [Text("·" * _BAR), Text("…", justify="right"), _number(usage.messages)]
    share = usage.size_bytes / all_bytes if all_bytes else 0.0
    bar = Text(("█" * round(share * _BAR)).ljust(_BAR, "·"))
    size = bytes_text(usage.size_bytes)
    shown = _mark(f"! {size}") if usage.unread else Text(size)
    shown.justify = "right"
    return [bar, shown, _number(usage.messages)]


def _lag_and_name(usage: Usage, name: str) -> list[Text]:
    behind = _mark(f"{usage.behind:,}") if usage.behind else Text("")
    behind.justify = "right"
    return [behind, Text(escape(name))]


def _mark(text: str) -> Text:
    """Text that needs attention; the text itself marks it with `!`, because a terminal may have no colours."""
    return Text(escape(text), style="bold yellow")


def _summary(message: Message) -> str:
    """Tags, keys and the beginning of the body."""
    words = [f"[{message.tags}]"] if message.tags else []
    words += message.keys
    body = message.body().data[: 4 * _SHOWN_CHARS].decode("utf-8", "replace")
    return "  ".join([" ".join(words), body]) if words else body


def body_text(message: Message, form: str) -> str:
    """The body in one of `_BODIES`, escaped; a body that is not JSON is shown as text."""
    data = message.body().data
    more = len(data) - _SHOWN_BYTES
    cut = f"\n… {counted(more, 'byte')} more" if more > 0 else ""
    shown = data[:_SHOWN_BYTES]
    if form == "hex":
        rows = (shown[at : at + _HEX_COLUMNS] for at in range(0, len(shown), _HEX_COLUMNS))
        numbered = enumerate(rows)
        return "\n".join(f"{at * _HEX_COLUMNS:8}  {row.hex(' ')}" for at, row in numbered) + cut
    text = shown.decode("utf-8", "replace")
    if form == "JSON" and not cut:
        try:
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            text = "(no JSON)\n" + text
    return escape_lines(text) + cut


def fields_text(message: Message, utc: bool) -> str:
    """All fields and properties, one per line, escaped."""
    found = message.to_json()
    properties = found.pop("properties", {})
    for name in ("type", "body", "body_base64", "keys", "tags", "unique_key"):
        found.pop(name, None)
    lines = [f"{name:<28} {_value(name, value, utc)}" for name, value in found.items()]
    lines += [f"  {escape(name):<26} {escape(value)}" for name, value in properties.items()]
    return "\n".join(lines)


def _value(name: str, value: Any, utc: bool) -> str:
    if name.endswith("timestamp") and isinstance(value, int):
        return time_text(value, utc)
    return escape(str(value))


class BrowseTable(DataTable[Text]):
    """A list in which ← goes back to the list before, unless the list is scrolled to the right."""

    def action_cursor_left(self) -> None:
        """Scroll to the left, or pass the key on to the application."""
        if self.scroll_x <= 0:
            raise SkipAction
        super().action_cursor_left()


class BrowserApp(App[None]):
    """A stack of views; the last one is on the screen. Only reads."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #where { height: 1; text-style: reverse; }
    #ask { dock: bottom; height: 3; display: none; }
    #one { display: none; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", show=True),
        Binding("left,escape,backspace", "back", "back", key_display="←"),
        Binding("slash", "ask('filter')", "filter", key_display="/"),
        Binding("t", "ask('time')", "time"),
        Binding("n", "turn(1)", "next"),
        Binding("p", "turn(-1)", "prev"),
        Binding("G", "turn(0)", "end"),
        Binding("s", "sort", "sort"),
        Binding("b", "body", "body"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, store: str, open_browser: Callable[[], Browser], utc: bool) -> None:
        super().__init__()
        self._store, self._open_browser, self._utc = store, open_browser, utc
        self._reader = ThreadPoolExecutor(1, "reader")
        self._browser: Browser | None = None
        self._views: list[BrowseView] = []
        self._message: Message | None = None
        self._number = ""
        self._form = 0
        self._asked = ""

    def compose(self) -> ComposeResult:
        yield Static(id="where", markup=False)
        yield BrowseTable(cursor_type="row", zebra_stripes=False)
        with VerticalScroll(id="one"):
            yield Static(id="fields", markup=False)
        yield Input(id="ask")
        yield Footer()

    async def on_mount(self) -> None:
        self._where("reading …")
        self._start()

    @work(exclusive=True, group="start")
    async def _start(self) -> None:
        browser = await self._ask(self._open_browser)
        if browser is None:
            return
        self._browser = browser
        await self._show(TopicsView(browser, self._utc))
        self._count()

    @work(group="count")
    async def _count(self) -> None:
        """Count the bytes of each queue, largest queue first, and redraw after every 64 queues."""
        assert self._browser is not None
        queues = self._browser.queues.values()
        largest_first = sorted(queues, key=lambda queue: queue.min_offset - queue.max_offset)
        for number, queue in enumerate(largest_first, 1):
            await self._ask(self._browser.count_bytes, queue)
            if number % 64 == 0 or number == len(largest_first):
                await self._refresh()

    async def _ask(self, function: Callable[..., T], *values: Any) -> T | None:
        """Call a function in the reading thread. If it raises StoreError, show the error and return None."""
        import asyncio

        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, function, *values)
        except StoreError as error:
            self.notify(escape(str(error)), severity="error", markup=False)
            return None

    @property
    def _table(self) -> BrowseTable:
        return self.query_one(BrowseTable)

    def _where(self, more: str = "") -> None:
        names = [self._store, *(view.title for view in self._views[1:])]
        if self._message is not None:
            names.append(self._number)
        self.query_one("#where", Static).update(escape(" ▸ ".join(names) + more))

    async def _show(self, view: BrowseView) -> None:
        self._views.append(view)
        await self._refresh(anew=True)

    async def _refresh(self, *, anew: bool = False) -> None:
        view = self._views[-1]
        if self._message is not None or (isinstance(view, MessagesView) and not anew):
            return
        lines = await self._ask(view.lines)
        if view is not self._views[-1]:
            return
        self._fill(view, lines or [])

    def _fill(self, view: BrowseView, lines: Sequence[Line]) -> None:
        table, at = self._table, view.at
        view.shown = list(lines)
        table.clear(columns=True)
        rows = [cells for _, cells, _ in lines]
        for number, head in enumerate(view.columns):  # the table may compute widths too late, and cut cells
            table.add_column(head, width=max([len(head), *(cells[number].cell_len for cells in rows)]))
        table.add_rows(rows)
        table.move_cursor(row=next((row for row, line in enumerate(lines) if line[0] == at), 0))
        table.focus()
        sort = f"  by {view.sort}" if isinstance(view, TopicsView) else ""
        filtered = f"  having {view.filter!r}" if view.filter else ""
        note = f"  {view.note}" if view.note else ""
        self._where(f"{sort}{filtered}{note}" + ("" if lines else "  (nothing)"))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        view = self._views[-1] if self._views else None
        if view is not None and event.cursor_row < len(view.shown):
            # "" keeps the cursor in the top row, whatever row comes there
            view.at = view.shown[event.cursor_row][0] if event.cursor_row else ""

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        name, _, opened = self._views[-1].shown[event.cursor_row]
        found = opened()
        if isinstance(found, BrowseView):
            await self._show(found)
        elif found is not None:
            self._message, self._number = found, name
            self._show_message()

    def _show_message(self) -> None:
        assert self._message is not None
        form = _BODIES[self._form]
        body = body_text(self._message, form)
        text = f"{fields_text(self._message, self._utc)}\n\n-- body as {form}\n{body}"
        self.query_one("#fields", Static).update(Text(text))
        self._table.display = False
        one = self.query_one("#one", VerticalScroll)
        one.display = True
        one.focus()
        self._where()

    async def action_back(self) -> None:
        """Close the input line, the message, the filter or the list: the first of these that is open."""
        ask = self.query_one("#ask", Input)
        if ask.display:
            ask.display = False
            self._table.focus()
        elif self._message is not None:
            self._message = None
            self.query_one("#one", VerticalScroll).display = False
            self._table.display = True
            self._table.focus()
            self._where()
        elif self._views and self._views[-1].filter:
            self._views[-1].filter = ""
            await self._refresh(anew=True)
        elif len(self._views) > 1:
            self._views.pop()
            await self._refresh(anew=True)

    def action_ask(self, what: str) -> None:
        """Open a line of input: for a text to filter by, or for a time to go to."""
        if not self._views or self._message is not None:
            return
        if what == _TIME and not isinstance(self._views[-1], MessagesView):
            self.notify("to go to a time, open a queue first")
            return
        self._asked = what
        ask = self.query_one("#ask", Input)
        times = "2026-11-20T21:38:00Z, -1h, yesterday, epoch ms"
        ask.placeholder = times if what == _TIME else "part of the name, keys, tags or body"
        ask.value = ""
        ask.display = True
        ask.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        view = self._views[-1]
        event.input.display = False
        if self._asked == _FILTER:
            view.filter = event.value
        elif isinstance(view, MessagesView):
            try:
                time_ms = parse_time(event.value)
            except InvalidInput as error:
                self.notify(escape(str(error)), severity="error", markup=False)
                self._table.focus()
                return
            found = await self._ask(view.browser.offset_at, view.queue, time_ms)
            view.go(view.first if found is None else found)
        view.at = ""
        await self._refresh(anew=True)

    async def action_turn(self, pages: int) -> None:
        """Go to the next page of messages (1), the page before (-1), or the last page (0)."""
        view = self._views[-1] if self._views else None
        if isinstance(view, MessagesView) and self._message is None:
            end = view.queue.max_offset - PAGE
            first = view.next if pages > 0 else view.first - PAGE
            view.go(first if pages else max(end, view.queue.min_offset))
            view.at = ""
            await self._refresh(anew=True)

    async def action_sort(self) -> None:
        view = self._views[-1] if self._views else None
        if isinstance(view, TopicsView):
            view.sort = _SORTS[(_SORTS.index(view.sort) + 1) % len(_SORTS)]
            await self._refresh()

    def action_body(self) -> None:
        if self._message is not None:
            self._form = (self._form + 1) % len(_BODIES)
            self._show_message()

    def action_open(self) -> None:
        """Do what Enter does in the table; the table handles the key itself while it has the focus."""
        if self._views and self._message is None:
            self._table.action_select_cursor()

    async def on_unmount(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)


def browser_of(store: StoreReader) -> Browser:
    """A browser of a store, with the lags of its groups. Raises Unreadable, NotAStore."""
    lacking = lacking_text(store)
    return Browser(store, *most_behind(store), f"{lacking}: later rows are not shown" if lacking else "")


def walk(path: str, config: BrokerConfig, utc: bool) -> None:
    """Show a store until the user leaves. Raises NotAStore, Missing, Unreadable."""
    with StoreReader(path, config) as store:
        BrowserApp(path, lambda: browser_of(store), utc).run()
