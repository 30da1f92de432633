"""Random damage to queues and index: no crash, no hang, and never a message that is not asked for.

The log stays whole, so every answer can be held to the truth.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.errors import NotFound
from mqstore.store.library import Store
from mqstore.store.search.find import read_queue
from mqstore.store.search.key_search import search_key
from mqstore.store.search.queue_search import search_queues
from mqstore.store.search.selection import Selection, Slice
from mqstore.store.search.store import FoundMessage

from ...slices import rng, share
from ...stores import messages

STORES = ("4.3.1-clean", "4.9.7-expired", "5.5.0-ipv6")
PARTS = ("consumequeue", "index", "checkpoint")
EDITS_AT_ONCE = 20
KEYS = ("AaAa", "key28", "key5")


def ignore(_: str) -> None:
    """Notes are not looked at here."""


def files_of(root: Path) -> list[Path]:
    found = [path for part in PARTS for path in (root / part).rglob("*")]
    return sorted(path for path in (*found, root / "checkpoint") if path.is_file())


def edit(path: Path, chance: random.Random) -> None:
    """One random change of a file: bits, bytes, a block, its length."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content)) if content else 0
    kind = chance.choice(["bit", "bytes", "zeros", "ones", "cut", "grow", "swap"])
    if kind == "cut" or not content:
        content = content[:at]
    elif kind == "grow":
        content += chance.randbytes(chance.randrange(1, 99))
    elif kind == "bit":
        content[at] ^= 1 << chance.randrange(8)
    elif kind == "swap":
        other = chance.randrange(len(content))
        content[at : at + 4], content[other : other + 4] = (content[other : other + 4], content[at : at + 4])
    else:
        size = min(chance.choice([1, 4, 8, 20, 512]), len(content) - at)
        block = {"zeros": bytes(size), "ones": b"\xff" * size}.get(kind, chance.randbytes(size))
        content[at : at + size] = block
    path.write_bytes(content)


class Asked:
    """Every kind of question to one store, with the answers held to the truth."""

    def __init__(self, root: Path, known: dict[int, dict[str, Any]]) -> None:
        self.root = root
        self.known = known
        self.queues = sorted({(r["topic"], r["queue_id"]) for r in known.values()})

    def check(self, chance: random.Random) -> None:
        with Store(self.root) as opened:
            assert opened.log_end.position > max(self.known)
            for summary in opened.queue_summaries:
                assert 0 <= summary.min_offset <= summary.max_offset
            topic, queue_id = chance.choice(self.queues)
            offset = chance.randrange(30)
            self._hold(lambda: read_queue(opened, topic, queue_id, offset, 5, ignore), topic)
            selection = Selection(topic=topic)
            self._hold(lambda: search_queues(opened, selection, Slice(), ignore), topic)
            time_ms = chance.choice(list(self.known.values()))["store_timestamp"]
            with contextlib.suppress(NotFound), warnings.catch_warnings(action="ignore", category=UserWarning):
                assert opened.offset_at(topic, queue_id, time_ms) >= 0
            for key in KEYS:
                found = self._hold(lambda: search_key(opened, Selection(key=key), note=ignore))  # noqa: B023
                for one in found:
                    assert key in (*one.message.keys, one.message.unique_key)

    def _hold(self, ask: Callable[[], Any], topic: str | None = None) -> list[FoundMessage]:
        try:
            found = list(ask())
        except NotFound:
            return []
        for one in found:
            truth = self.known[one.message.position]
            assert one.message.properties == truth["properties"]
            assert topic is None or truth["topic"] == topic
        return found


def damage_and_ask(name: str, store: Callable[[str], Path], times: int) -> int:
    """Ask a damaged copy `times` times, each time damaged further; a fresh copy now and then."""
    chance = rng(f"search {name}")
    root = store(name)
    kept = root.parent / "kept"
    shutil.copytree(root, kept, symlinks=True)
    asked = Asked(root, {record["physical_offset"]: record for record in messages(name)})
    edits = 0
    for turn in range(times):
        if turn % 5 == 0:
            for part in PARTS:
                shutil.rmtree(root / part, ignore_errors=True)
                if (kept / part).is_dir():
                    shutil.copytree(kept / part, root / part)
                else:
                    shutil.copy(kept / part, root / part)
        for path in chance.choices(files_of(root), k=EDITS_AT_ONCE):
            edit(path, chance)
            edits += 1
        asked.check(chance)
    return edits


@pytest.mark.few(1)
@pytest.mark.parametrize("name", STORES)
def test_damaged_queues_and_index_tell_no_lies(name: str, store: Callable[[str], Path]) -> None:
    damage_and_ask(name, store, 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_much_damaged_queues_and_index_tell_no_lies(name: str, store: Callable[[str], Path]) -> None:
    assert damage_and_ask(name, store, share(1500)) >= EDITS_AT_ONCE
