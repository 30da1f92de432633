"""Rows of files of which a disk does not give all: what is missing has a row, or ends the query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.pipeline.sources import table_sources
from mqstore.store.arrow.log_rows import Damage, parts_of, rows_of
from mqstore.store.arrow.stores import FAIL_UNREADABLE, ReadOptions
from mqstore.store.arrow.tables import TablePart, table_rows
from mqstore.store.arrow.views import damage_parts, damage_rows
from mqstore.store.disk.byte_reader import noted, noting
from mqstore.store.errors import Unreadable
from mqstore.store.search.log_search import selected
from mqstore.store.search.store import StoreReader

from ..failing_disk import fail_here
from ..store.arrow.rows import ask_of, damage, rows
from ..stores import unpack

PAGE = 4096


def test_messages_behind_it_are_rows(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    whole = rows(ask_of(root))
    log = min((root / "commitlog").iterdir())
    fail_here(log, 2 * PAGE, PAGE)
    found = rows(ask_of(root))
    (lost,) = damage(ask_of(root))
    assert lost.reason == "unreadable: Input/output error"
    assert lost.position is not None and lost.size is not None
    inside = range(lost.position, lost.position + lost.size)
    outside = [row["position"] for row in whole if row["position"] not in inside]
    assert [row["position"] for row in found] == outside
    with pytest.raises(Unreadable, match=f"4096 bytes .*{log} at 8192"):
        rows(ask_of(root, on_damage=FAIL_UNREADABLE))


def rows_of_table(root: Path, name: str, lost: list[Damage], **options: str) -> list[dict[str, Any]]:
    (table,) = (source.table for source in table_sources() if source.name() == name)
    ask = ask_of(root, **options)
    names = tuple(table.all_columns())
    part = TablePart(str(root), "all")
    found = table_rows(table, ask, names, part, lost.append)
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["rocketmq-queue", "rocketmq-index", "rocketmq-offsets"])
def test_rows_of_other_files_behind_it(tmp_path: Path, name: str) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    path, length = {
        "rocketmq-queue": (max((root / "consumequeue/logs/0").iterdir()), PAGE),
        "rocketmq-index": (max((root / "index").iterdir()), PAGE),
        "rocketmq-offsets": (root / "config/consumerOffset.json", PAGE),
    }[name]
    lost: list[Damage] = []
    whole = rows_of_table(root, name, lost)
    assert not lost
    fail_here(path, 0, length)
    there = rows_of_table(root, name, lost)
    (problem,) = (one.reason for one in lost)
    assert "cannot read" in problem and f"{path} at 0" in problem
    asked = ReadOptions.of({"path": str(root), "of": name.removeprefix("rocketmq-")})
    told = [b for part in damage_parts(asked) for b in damage_rows(asked, ["reason"], part)]
    (reason,) = (row["reason"] for batch in told for row in batch.to_pylist())
    assert "cannot read" in reason and f"{path} at 0" in reason
    assert len(there) < len(whole) and all(row in whole for row in there)
    assert there or name == "rocketmq-offsets"
    with pytest.raises(Unreadable, match=f"{path} at 0"):
        rows_of_table(root, name, lost, on_damage=FAIL_UNREADABLE)


def reader_of(root: Path, how: str) -> Iterator[object]:
    if how == "rows":
        return rows_of(ask_of(root), parts_of(ask_of(root))[0], lambda lost: None)
    return selected(StoreReader(root), on_damage="skip")


@pytest.mark.parametrize("how", ["rows", "batches"])
def test_readers_that_take_turns_note_what_each_has_met(how: str, tmp_path: Path) -> None:
    """Nothing is noted for whoever reads behind them, and all for whoever has asked."""
    roots = [unpack("5.3.3-clean", tmp_path / name) for name in ("a", "b")]
    for number, root in enumerate(roots):
        fail_here(min((root / "commitlog").iterdir()), (2 + number) * PAGE, PAGE)
    with noting(around=False) as asked:
        readers = [reader_of(root, how) for root in roots]
        for _ in zip(*readers, strict=False):
            assert noted() == list(asked)
        for reader in readers:
            for _ in reader:
                pass
        assert sorted(unread.offset for unread in asked) == [2 * PAGE, 3 * PAGE]
        assert all(sum(str(root) in unread.path for unread in asked) == 1 for root in roots)
    assert noted() == []
