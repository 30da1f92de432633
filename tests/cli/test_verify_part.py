"""`verify` of a directory or a file inside a store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from .. import stores, tiered
from ..store.verify.mutations.config import add_tier
from .datadriven import run_here
from .json_schema import wrong
from .verified import rows


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """All but the next command: that is for all findings that are told."""
    return {name: value for name, value in row.items() if name != "repair"}


def test_of_a_part_only_its_own_findings_are_told(world: Path) -> None:
    store = world / "5.3.3-killed-page"
    *whole, of_store = rows(store, code=1)
    assert "path" not in of_store
    for name, code, count in (("commitlog", 1, None), ("index", 1, 1), ("checkpoint", 0, 0), ("abort", 3, 1)):
        *found, summary = rows(store / name, code=code)
        inside = (f"{store / name}", f"{store / name}/")
        of_part = [r for r in whole if r["path"] == inside[0] or inside[1] in r["path"]]
        assert [_told(r) for r in found] == [_told(r) for r in of_part]
        assert len(found) == count or count is None, name
        assert summary["path"] == str(store / name)
        assert (summary["store"], summary["complete"], wrong(summary)) == (str(store), False, [])
        assert summary["unread"] == [f"all but {store / name}: it alone was asked for"]


def test_the_log_of_a_dledger_is_a_part_of_its_store(world: Path) -> None:
    """It has an index and a checkpoint, as a store has."""
    store = world / "4.9.7-dledger"
    for part in (store / "dledger-n0", store / "dledger-n0" / "data"):
        assert [row["store"] for row in rows(part, "--quick", code=0)] == [str(store)]


def test_of_a_queue_no_other_is_told(tmp_path: Path) -> None:
    store = stores.unpack("5.3.3-clean", tmp_path)
    queue = store / "consumequeue" / "orders" / "3"
    file = min(queue.iterdir())
    file.write_bytes(bytes(20) + file.read_bytes()[20:])
    for part in (file, queue, queue.parent, queue.parents[1]):
        *found, _ = rows(part, "--quick", code=1)
        assert {(row["topic"], row["queue_id"]) for row in found} == {("orders", 3)}, part
    rows(queue.parent / "2", "--quick", code=0)
    (queue / "CURRENT").touch()
    for part in (file, queue / "none", tmp_path):
        rows(part, "--quick", code=5)


@pytest.mark.parametrize(
    "options", [("--only", "index"), ("--topic", "t"), ("--resume", "s"), ("--format", "prometheus")]
)
def test_options_of_whole_stores_are_refused_for_a_part(world: Path, options: tuple[str, str]) -> None:
    result = run_here(["verify", str(world / "5.3.3-clean" / "index"), *options])
    assert (result.code, result.stdout) == (2, "")
    assert f"{options[0]}" in result.stderr and str(world / "5.3.3-clean") in result.stderr


def test_of_tiered_segments(tmp_path: Path) -> None:
    """One, a directory of them, or the whole tier; without a store above them it is said what to name."""
    store = stores.unpack("5.5.0-clean", tmp_path)
    add_tier(store, "5.5.0")
    segments = tiered.queue_path(store, 0, "COMMIT_LOG")
    segment = min(segments.iterdir())
    segment.write_bytes(bytes(segment.stat().st_size))
    for part in (segment, segments, store / tiered.CLUSTER):
        *found, summary = rows(part, code=1)
        assert {row["code"] for row in found} == {"I-159"} and summary["store"] == str(store)
    rows(tiered.queue_path(store, 1, "COMMIT_LOG"), code=0)
    open_files = tiered.unpack_killed("5.5.0", tmp_path) / tiered.INDEX_FILES
    rows(Path(shutil.copytree(open_files, store / open_files.name)), code=0)
    alone = tmp_path / segments.name
    shutil.move(segments, alone)
    refused = run_here(["verify", str(alone / segment.name)])
    assert refused.code == 5 and "--set tieredStoreFilePath=DIR" in refused.stderr
