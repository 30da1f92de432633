"""Positions of groups as lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.offsets_text import compared_text, lag_text, moves_text
from mqstore.store.disk.layout import Layout
from mqstore.store.offsets.move import Move, Moves
from mqstore.store.plan.plan import Plan

from .. import stores
from .datadriven import run_here
from .hostile import TEXTS


def test_every_position_of_a_broken_table_is_one_line(tmp_path: Path) -> None:
    """Bad entries are told, and the good ones too."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    rows = {"T@g": {"0": 5, "x": 1, "1": "no", "2": -1}, "no group": {"0": 1}, "U@g": 7}
    path = store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": rows}))
    path.with_name(path.name + ".bak").unlink()
    done = run_here(["offsets", str(store), "--by", "queue", "--group", "g", "--quick"])
    assert done.code == 0
    assert "T/0" in done.stdout
    assert "internal error" not in done.stderr


ROW: dict[str, Any] = {
    "group": "g",
    "topic": "t",
    "queue_id": 3,
    "lag": 1200,
    "lag_bytes": 2048,
    "lag_ms": 61_500,
    "store": "/s",
    "offset": 5,
    "min_offset": 0,
    "max_offset": 1205,
    "table": "offset",
    "state": "behind",
    "next": None,
    "expired": 0,
    "moved_back": 0,
    "subscribed": True,
    "oldest_unread_timestamp": None,
    "next_offset": None,
}


def test_what_is_odd_of_a_position_stands_behind_it() -> None:
    """A position that nobody can tell a lag of has a dash; each oddity is told once."""
    assert lag_text(ROW, True, with_store=False) == "       1,200    2.0 KiB    1m 1s  g t/3  at 5 of 0 … 1,205"
    odd = {"lag": None, "lag_bytes": None, "lag_ms": None, "max_offset": None, "state": "no_queue", "table": "pop"}
    more = {"expired": 1, "moved_back": 2000, "subscribed": False, "oldest_unread_timestamp": 1000, "next": "stays"}
    line = lag_text(ROW | odd | more | {"next_offset": 9}, True, with_store=True)
    place, _, notes = line.partition("  /s  ")
    assert place.split() == ["-", "g", "t/3"]
    assert notes.split("; ") == [
        "at 5",
        "table pop",
        "NO QUEUE",
        "1 message expired before being read",
        "2,000 lower than in the .bak",
        "no subscription",
        "oldest 1970-01-01T00:00:01.000Z",
        "stays (9)",
    ]


def test_a_queue_with_a_position_in_several_tables_is_one_queue() -> None:
    """What is counted then are positions."""
    row = {name: value for name, value in ROW.items() if name not in ("queue_id", "state")}
    line = lag_text({**row, "queues": 4, "states": {"unknown": 8}}, True, with_store=False)
    assert line.endswith("  g t  4 queues; 8 positions UNKNOWN, not counted")
    line = lag_text({**row, "queues": 4, "states": {"no_queue": 2}}, True, with_store=False)
    assert line.endswith("  g t  4 queues; 2 NO QUEUE")


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_names_make_no_lines_of_their_own(text: str) -> None:
    names = {"group": text, "topic": text, "store": text}
    assert lag_text(ROW | names | {"next": text}, True, with_store=True).isprintable()
    compared = {"offset": None, "other_offset": 7, "difference": -7, "ahead": "only_other", "table": "pop"}
    line = compared_text({**names, "queue_id": 0, **compared})
    assert line.isprintable() and line.endswith("(table pop): only in the other by 7")


PLAN = Plan("keep", 0, 0)


def test_a_plan_says_what_is_skipped_and_what_comes_once_more(tmp_path: Path) -> None:
    layout = Layout.open(stores.unpack("4.9.7-clean", tmp_path))
    ahead, back = Move("g", "t", 0, 5, 1005, 1005, 0, 2000), Move("g\n", "t", 1, 900, 0, -7, 0, 2000)
    page = moves_text(Moves((ahead, back), PLAN, left_out=1), layout, None, every=False).splitlines()
    assert page == [
        "2 positions to move. Nothing is written without --apply.",
        "",
        "             5 -> 1,005        g t/0",
        "           900 -> 0            g\\n t/1 (not -7, which is outside the queue)",
        "",
        "Messages skipped: 1,000. Messages delivered again: 900.",
        "",
        "Left out: 1 position of a queue that this store does not have.",
    ]
    many = moves_text(Moves((ahead,) * 30, PLAN), layout, None, every=False)
    assert "  … 10 more (--verbose shows all)" in many
    assert moves_text(Moves((), PLAN), layout, None, every=True).startswith("Nothing to move")
