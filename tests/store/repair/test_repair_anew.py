"""Queues and index rebuilt in one pass over all cores: as the slow way makes them, every byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.audit import prove
from mqstore.store.broker.dispatch import dispatch
from mqstore.store.broker.dispatch_record import Dispatching
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of
from mqstore.store.repair import repair
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.recheck import reanalyze
from mqstore.store.repair.repair import Repair
from mqstore.store.session.apply import apply, digest
from mqstore.store.verify import log_pass
from mqstore.store.verify.judged import verified_before

from ... import stores
from ...slices import pick, rng
from ..session.test_undo import everything
from .test_repair import CLEAN, NOW_MS

#: Messages with times to come, of tags that are indexed, of LMQs; a log that does not begin at 0.
FAST = ("4.3.1-clean", "5.3.3-expired", "5.3.3-lmq", "5.5.0-timer-clean")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two processes, and many runs, for a small log."""
    monkeypatch.setattr(prove, "AT_ONCE", 7)
    monkeypatch.setattr(prove, "_PART_BYTES", 4096)
    monkeypatch.setattr(log_pass, "CUT_BYTES", 1 << 15)
    yield


def examined(root: Path) -> Repair:
    return repair.analyze(Layout.open(root), Choice(), None, NOW_MS, jobs=2)


def with_verify(root: Path) -> Repair:
    """Planned with what the pass of `verify` has made, two processes."""
    layout = Layout.open(root)
    proved = verified_before(layout, None, anew=True, jobs=2)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "prove_log", None)
        return repair.analyze(layout, Choice(), None, NOW_MS, jobs=2, proved=proved)


def slowly(root: Path, monkeypatch: pytest.MonkeyPatch) -> Repair:
    """Planned record by record."""
    with monkeypatch.context() as patch:
        patch.setattr(repair, "proved_for_rebuild", lambda *_, **__: None)
        return examined(root)


def contents(root: Path) -> list[tuple[str, bytes]]:
    """Bytes of all files by name; index files are called after the time they were made at."""
    files = ((name, held[3]) for name, held in everything(root).items())
    return sorted((name.rpartition("index/")[1] or name, data) for name, data in files)


def check_plans(root: Path, monkeypatch: pytest.MonkeyPatch) -> Repair:
    """The same plan, whether all is made at once or record by record; the items that records ask for."""
    found, slow = examined(root), slowly(root, monkeypatch)
    assert slow.plan.items is None
    assert [e.to_json() for e in found.plan.edits] == [e.to_json() for e in slow.plan.edits]
    assert digest(found.plan.edits) == digest(slow.plan.edits)
    for name in ("queues", "checkpoint", "completed", "log_end", "index"):
        assert getattr(found.plan, name) == getattr(slow.plan, name), name
    if found.plan.items is not None:
        made = [batch.unpacked() for batch in found.plan.items]
        scan = commit_log_of(found.layout).scan()
        batches = (item for item in scan if isinstance(item, Batch) and item.mark is Mark.NONE)
        asked = [dispatch(b, Dispatching(found.plan.index_tags)).items for b in batches]
        for name in ("key_hash", "physical_offset", "store_timestamp"):
            both = [np.concatenate([getattr(m, name) for m in all_]) for all_ in (made, asked)]
            assert both[0].tolist() == both[1].tolist(), name
    return found


def check_stores(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, and the same files once it is carried out."""
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    found, other = check_plans(root, monkeypatch), slowly(copy, monkeypatch).plan
    apply(Layout.open(root), None, lambda: found.plan, Files(), command="repair")
    apply(Layout.open(copy), None, lambda: other, Files(), command="repair")
    assert contents(root) == contents(copy)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FAST)
def test_the_log_is_not_read_again_for_the_plan(name: str, tmp_path: Path) -> None:
    root = stores.bare(name, tmp_path)
    found, shared = examined(root), with_verify(root)
    assert digest(shared.plan.edits) == digest(found.plan.edits)
    assert [e.to_json() for e in shared.plan.edits] == [e.to_json() for e in found.plan.edits]
    assert (shared.plan.items is None) == (found.plan.items is None)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FAST)
def test_as_record_by_record(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_plans(stores.bare(name, tmp_path), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(CLEAN, "anew"))
def test_every_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_stores(stores.bare(name, tmp_path), monkeypatch)


@pytest.mark.few(1)
@pytest.mark.parametrize("turn", range(3))
def test_with_a_damaged_record(turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before it is made at once, the rest record by record; no item is kept twice."""
    root = stores.bare("5.3.3-clean", tmp_path)
    path = min((root / "commitlog").iterdir())
    end = commit_log_of(Layout.open(root)).end().position
    data = bytearray(path.read_bytes())
    data[rng(f"anew {turn}").randrange(min(end, len(data)))] ^= 0x21
    path.write_bytes(data)
    check_plans(root, monkeypatch)


def test_the_second_look_compares_what_was_written(tmp_path: Path) -> None:
    """Without planning again; a byte that is not what was planned is left to do."""
    root = stores.bare("4.9.7-clean", tmp_path)
    found = examined(root)
    apply(found.layout, None, lambda: found.plan, Files(), command="repair")
    after = reanalyze(found)
    assert after.nothing_to_do and after.plan.items is found.plan.items
    assert examined(root).nothing_to_do
    made = {edit.kind: edit for edit in found.plan.edits}
    path = Path(made["create"].path)
    data = bytearray(path.read_bytes())
    data[made["create"].pieces[-1][0]] ^= 1
    path.write_bytes(data)
    index = next((root / "index").iterdir())
    index.rename(root / "elsewhere")
    left = [(edit.kind, edit.path) for edit in reanalyze(found).plan.edits]
    assert left == [("create", str(path)), ("rebuild", made["rebuild"].path)]


def test_directories_without_files_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stores.bare("5.3.3-clean", tmp_path)
    for queue in ("orders/0", "orders/9", "gone/0"):
        (root / "consumequeue" / queue).mkdir(parents=True)
    assert check_plans(root, monkeypatch).plan.items


def test_stores_with_queues_or_index_are_compared_first(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "index")
    assert examined(root).plan.items is None
    bare_root = stores.bare("5.3.3-clean", tmp_path / "bare")
    assert examined(bare_root).plan.items
