"""The steps of a plan as text: those of a kind are told once, with the sum of their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.plan_text import steps_text
from mqstore.cli.terminal import page_of
from mqstore.store.disk.files import Edit
from mqstore.store.disk.layout import Layout

from .. import stores


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.open(stores.unpack("5.3.3-clean", tmp_path))


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["1 unit of messages"], "f0: 1 unit of messages"),
        (["1 unit of messages", "2 units of messages"], "2 files: 3 units of messages"),
        (["1 unit of messages", "1 unit of messages"], "2 files: 2 units of messages"),
        (["1 units of messages", "1999 units of messages"], "2 files: 2,000 units of messages"),
        (["empty file", "empty file"], "2 files: empty file"),
    ],
)
def test_numbers_of_like_steps_add_up(layout: Layout, reasons: list[str], told: str) -> None:
    edits = [
        Edit("write", str(layout.root / f"f{number}"), reason, ("I-070",)) for number, reason in enumerate(reasons)
    ]
    first, *_ = steps_text(edits, layout, one_by_one=False)
    assert first == f"  write    {told}"


@pytest.mark.parametrize("one_by_one", [False, True])
def test_names_make_no_lines_of_their_own(layout: Layout, one_by_one: bool) -> None:
    for count in (1, 3):
        edits = [Edit("write", str(layout.root / f"{n}\nmqstore"), f"why\nmqstore {n}") for n in range(count)]
        lines = list(steps_text(edits, layout, one_by_one))
        assert page_of(lines).count("\n") == len(lines) - 1
