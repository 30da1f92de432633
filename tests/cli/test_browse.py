"""`stats --browse` by textual's own pilot: keys are pressed, what is shown is read."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from mqstore.cli.app import run
from mqstore.cli.browse import BrowserApp, MessagesView, browser_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.output.escaped import DANGEROUS
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.search.store import StoreReader

from ..store.queues.test_rocksdb import state
from ..stores import truth, unpack
from .at_a_terminal import Terminal

pytestmark = pytest.mark.long

if TYPE_CHECKING:
    from mqstore.store.put.new_message import NewMessage

CLEAN = "5.5.1-combine-same"
SMALL = BrokerConfig().with_set(["mappedFileSizeCommitLog=262144", "maxHashSlotNum=100", "maxIndexNum=400"])
Look = Callable[["Screen"], Awaitable[None]]


class Screen:
    """What somebody sees who presses keys."""

    def __init__(self, app: BrowserApp, pilot: Pilot[Any]) -> None:
        self.app, self._pilot = app, pilot

    async def press(self, *keys: str) -> None:
        """Press keys, and wait until everything was read and drawn."""
        await self._pilot.press(*keys)
        await self.settle()

    async def ask(self, key: str, answer: str) -> None:
        """Press a key that asks something, and answer it."""
        await self.press(key)
        self.app.query_one("#ask", Input).value = answer
        await self.press("enter")

    async def settle(self) -> None:
        """Wait for all that was asked for."""
        await self.app.workers.wait_for_complete()
        await self._pilot.pause()
        await self._pilot.pause()

    @property
    def table(self) -> DataTable[Any]:
        """The list that is shown."""
        found: DataTable[Any] = self.app.query_one(DataTable)
        return found

    @property
    def rows(self) -> list[list[str]]:
        """Its cells."""
        rows = (self.table.get_row_at(row) for row in range(self.table.row_count))
        return [[cell.plain for cell in row] for row in rows]

    @property
    def where(self) -> str:
        """The first line."""
        return str(self.app.query_one("#where", Static).render())

    @property
    def message(self) -> str:
        """The text of the message that is shown, "" without one."""
        if not self.app.query_one("#one", VerticalScroll).display:
            return ""
        return str(self.app.query_one("#fields", Static).render())


def look_at(root: Path, look: Look, columns: int = 80) -> None:
    """Browse a store, on 24 lines; it is the same afterwards."""

    async def all_of_it() -> None:
        with StoreReader(root, BrokerConfig()) as store:
            app = BrowserApp("store", lambda: browser_of(store), utc=True)
            async with app.run_test(size=(columns, 24)) as pilot:
                screen = Screen(app, pilot)
                await screen.settle()
                await look(screen)

    before = state(root)
    asyncio.run(all_of_it())
    assert state(root) == before, "nothing is written"


def test_down_to_a_message_and_back(tmp_path: Path) -> None:
    root = unpack(CLEAN, tmp_path)
    queues: dict[str, dict[str, int]] = truth(CLEAN)["queues"]

    async def look(screen: Screen) -> None:
        topics = {row[-1]: row for row in screen.rows}
        assert set(topics) == {name.rpartition("/")[0] for name in queues}
        wanted = queues["TopicA/0"]
        assert screen.table.cursor_row == 0
        names = [row[-1] for row in screen.rows]
        await screen.press(*["down"] * names.index("TopicA"))
        await screen.press("enter")
        first = screen.rows[0]
        assert first[-1] == "0"
        assert first[3:5] == [f"{wanted['min_offset']:,}", f"{wanted['max_offset']:,}"]
        await screen.press("enter")
        assert screen.where == "store ▸ TopicA ▸ TopicA/0"
        assert [row[0] for row in screen.rows] == [str(n) for n in range(wanted["max_offset"])]
        await screen.press("down", "enter")
        assert re.search(r"^queue_offset +1$", screen.message, re.MULTILINE), screen.message
        assert "-- body as text" in screen.message
        await screen.press("b")
        assert "-- body as JSON" in screen.message
        await screen.press("b")
        assert re.search(r"^ +0  [0-9a-f]{2} ", screen.message, re.MULTILINE), screen.message
        await screen.press("left")
        assert screen.message == "" and screen.table.cursor_row == 1
        await screen.press("left", "escape", "backspace")
        assert {row[-1] for row in screen.rows} == set(topics), "the uppermost list stays"

    look_at(root, look)


def test_left_goes_back_from_a_list_that_is_wider_than_the_terminal(tmp_path: Path) -> None:
    """Once what was scrolled is back; what is shown then is not cut, even before the table has measured it."""

    async def look(screen: Screen) -> None:
        topics = screen.rows
        await screen.press("enter", "enter")
        assert screen.table.max_scroll_x > 0
        await screen.press("left")
        assert screen.where.count("▸") == 1 and screen.table.max_scroll_x > 0
        await screen.press("right", "left")
        assert screen.where.count("▸") == 1
        await screen.press("left")
        assert [row[-1] for row in screen.rows] == [row[-1] for row in topics]
        view = screen.app._views[-1]
        screen.app._fill(view, view.lines())
        for column, cells in zip(screen.table.ordered_columns, zip(*screen.rows, strict=True), strict=True):
            shown = column.get_render_width(screen.table) - 2 * screen.table.cell_padding
            assert shown >= max(map(len, cells)), column.label

    look_at(unpack(CLEAN, tmp_path), look, 40)


def test_a_message_of_a_light_queue_has_its_number_there(tmp_path: Path) -> None:
    async def look(screen: Screen) -> None:
        await screen.ask("slash", "%LMQ%a")
        await screen.press("enter", "enter", "down", "enter")
        assert screen.where.endswith("▸ %LMQ%a/0 ▸ 1")
        assert not re.search(r"^queue_offset +1$", screen.message, re.MULTILINE), "the record has its own"

    look_at(unpack("5.3.3-lmq", tmp_path), look)


def test_why_nothing_is_shown_is_told(tmp_path: Path) -> None:
    root = unpack("4.9.7-clean", tmp_path)

    async def filtered(screen: Screen) -> None:
        await screen.ask("slash", "no such topic")
        assert screen.where.endswith("(nothing)") and "consume queues" not in screen.where

    async def bare(screen: Screen) -> None:
        assert screen.where.endswith("  there are no consume queues  (nothing)")

    look_at(root, filtered)
    shutil.rmtree(root / "consumequeue")
    look_at(root, bare)


def test_bytes_are_those_of_the_units(tmp_path: Path) -> None:
    root = unpack(CLEAN, tmp_path)
    with StoreReader(root) as store:
        browser = browser_of(store)
        assert {usage.size_bytes for usage in browser.topics()} == {None}
        for queue in browser.queues.values():
            browser.count_bytes(queue)
        sizes = {usage.topic: usage.size_bytes for usage in browser.topics()}
        for topic in store.topics:
            with store.queues.open(topic, store.queues.of_topic(topic)[0].queue_id) as opened:
                assert (sizes[topic] or 0) >= opened.summary().max_offset > 0


def test_what_is_no_message_is_marked(tmp_path: Path) -> None:
    root = unpack(CLEAN, tmp_path)
    with StoreReader(root) as store, store.queues.open("TopicA", 0) as queue:
        unit = queue.unit(1)
        assert unit is not None
        file = store.log_files.file_at(unit.physical_offset)
        assert file is not None
        with Path(file.path).open("r+b") as log:
            log.seek(unit.physical_offset - file.start)
            log.write(bytes(unit.size))

    async def look(screen: Screen) -> None:
        await screen.ask("slash", "TopicA")
        await screen.press("enter", "enter")
        assert screen.rows[1][-1].startswith("! "), screen.rows[1]
        assert not screen.rows[0][-1].startswith("! ")
        await screen.press("down", "enter")
        assert screen.message == "", "there is nothing to open"

    look_at(root, look)


def test_filters_sorts_times_and_pages(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, SMALL, WriterOptions()) as writer:
        for number in range(450):
            writer.append(message("Orders", f'{{"n": {number}}}'.encode(), number))
        writer.append(message("Other", b"x", 1))

    async def look(screen: Screen) -> None:
        assert [row[-1] for row in screen.rows] == ["Orders", "Other"]
        await screen.press("down", "s", "s", "s")
        assert "by name" in screen.where
        assert screen.rows[screen.table.cursor_row][-1] == "Other", "the cursor stays with it"
        await screen.ask("slash", "oth")
        assert [row[-1] for row in screen.rows] == ["Other"]
        await screen.press("escape", "enter", "enter")
        assert [screen.rows[0][0], len(screen.rows)] == ["0", 200]
        await screen.press("n")
        assert screen.rows[0][0] == "200"
        await screen.press("G")
        assert screen.rows[-1][0] == "449"
        await screen.press("p", "p", "p")
        assert screen.rows[0][0] == "0"
        await screen.ask("slash", '"n": 44')
        assert [row[0] for row in screen.rows] == ["44", *map(str, range(440, 450))]
        await screen.press("enter", "b")
        assert '"n": 44' in screen.message
        await screen.press("left", "left")
        await screen.ask("t", "tomorrow?")
        assert screen.rows[0][0] == "0", "what is no time changes nothing"
        await screen.ask("t", "9000000000000")
        assert screen.rows[-1][0] == "449"
        view = screen.app._views[-1]
        assert isinstance(view, MessagesView) and view.first == 449

    look_at(root, look)


def message(topic: str, body: bytes, number: int) -> NewMessage:
    """One of queue 0."""
    from mqstore.store.put.new_message import NewMessage

    properties = f"KEYS\x01key-{number}\x02".encode()
    return NewMessage(topic.encode(), body, queue_id=0, properties=properties)


def test_foreign_text_is_escaped(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with StoreWriter.open(root, SMALL, WriterOptions()) as writer:
        writer.append(message("Orders", b"\x1b]0;owned\x07 [bold]no markup[/bold] \xe2\x80\xae", 1))
    shutil.move(root / "consumequeue" / "Orders", root / "consumequeue" / "Or\x1b[31mders")

    async def look(screen: Screen) -> None:
        shown = ["".join(row) for row in screen.rows] + [screen.where]
        await screen.press("enter")
        shown += ["".join(row) for row in screen.rows] + [screen.where]
        await screen.press("enter")
        shown += ["".join(row) for row in screen.rows] + [screen.where]
        assert not [text for text in shown if re.search(DANGEROUS, text)]

    look_at(root, look)


def test_at_a_real_terminal_without_colours(tmp_path: Path) -> None:
    root = unpack(CLEAN, tmp_path)
    words = ("stats", str(root), "--browse", "--no-color")
    with Terminal(*words, columns=80, rows=24) as terminal:
        terminal.wait_for("TopicB")
        terminal.type("q")
        assert terminal.end() == 0
    assert not re.search(r"\x1b\[[\d;]*[34][1-6][;m]", terminal.shown), "no colours"


def test_a_store_that_is_none_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", str(tmp_path), "--browse"]) == 2
    assert "needs a terminal" in capfd.readouterr().err
    assert run(["stats", str(tmp_path), str(tmp_path), "--browse"]) == 2
    assert "name one store" in capfd.readouterr().err
