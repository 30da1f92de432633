"""A plan that is made once: only where nothing can have changed unseen."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.errors import Refused
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import analyze
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import Fingerprint

from ...recovery_cases import CONFIG
from ..recover.recovered import VERSION, planned

ONE_TICK_S = 0.02
"""More than a tick of the clock that files have their times from."""

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if some seconds had gone by since the store was copied."""
    later = time.time_ns() + 60 * 10**9
    monkeypatch.setattr("mqstore.store.session.journal.time.time_ns", lambda: later)


def _never() -> Plan:
    raise AssertionError("the plan was made again")


def test_a_store_that_lies_still_is_planned_once(root: Path) -> None:
    layout = Layout.open(root, CONFIG)
    found = analyze(layout, VERSION)
    apply(layout, found.plan, _never, Files(), seen=found.seen)
    assert analyze(Layout.open(root, CONFIG), VERSION).nothing_to_do


def _rewritten(path: Path) -> None:
    """Other bytes of the same length, and the time that it had."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.write_bytes(path.with_name("other").read_bytes())
    path.with_name("other").unlink()


def _with_a_neighbour(path: Path) -> None:
    path.with_name("new").touch()


@pytest.mark.parametrize("change", [_rewritten, _replaced, _with_a_neighbour, Path.unlink])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index", "config", "checkpoint"])
def test_any_change_is_seen(root: Path, part: str, change: object) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text("{}")
    layout = Layout.open(root, CONFIG)
    seen = Fingerprint.of(layout)
    assert seen is not None and seen.still_holds(layout)
    place = root / part
    path = place if place.is_file() else next(p for p in sorted(place.rglob("*")) if p.is_file())
    assert callable(change)
    change(path)
    assert not seen.still_holds(layout)


def test_a_changed_store_is_planned_again(root: Path) -> None:
    layout = Layout.open(root, CONFIG)
    found = analyze(layout, VERSION)
    (root / "abort").unlink()
    with pytest.raises(Refused, match="changed since"):
        apply(layout, found.plan, lambda: planned(root, CONFIG, VERSION), Files(), seen=found.seen)


def test_no_fingerprint_of_what_somebody_holds(root: Path) -> None:
    layout = Layout.open(root, CONFIG)
    with StoreLock.take(layout.lock, Files()):
        assert Fingerprint.of(layout) is None
    assert Fingerprint.of(layout) is not None


def test_a_holder_in_between_is_seen(root: Path) -> None:
    """A broker writes its lock file at each start."""
    layout = Layout.open(root, CONFIG)
    layout.lock.write_bytes(b"lock")
    seen = Fingerprint.of(layout)
    time.sleep(ONE_TICK_S)
    layout.lock.write_bytes(b"lock")
    assert seen is not None and not seen.still_holds(layout)


@pytest.fixture(params=[None, b"", b"lock"], ids=["no lock file", "an empty one", "a broker's"])
def with_lock_file(root: Path, request: pytest.FixtureRequest) -> Layout:
    """A store with a lock file that was written long ago, or none."""
    layout = Layout.open(root, CONFIG)
    layout.lock.unlink(missing_ok=True)
    if request.param is not None:
        layout.lock.write_bytes(request.param)
        os.utime(layout.lock, ns=(10**18, 10**18))
    return layout


def test_the_lock_file_that_is_taken_is_no_change(with_lock_file: Layout) -> None:
    """Its holder makes it, and writes into it, as a broker does."""
    found = analyze(with_lock_file, VERSION)
    assert apply(with_lock_file, found.plan, _never, Files(), seen=found.seen).steps


def test_a_lock_file_that_somebody_else_has_written_is_one(with_lock_file: Layout) -> None:
    seen = Fingerprint.of(with_lock_file)
    with_lock_file.lock.write_bytes(b"lock")
    with StoreLock.take(with_lock_file.lock, Files()) as lock:
        assert seen is not None and not seen.still_holds(with_lock_file, lock.was)


def test_none_of_a_store_changed_a_moment_ago(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = max(p.stat().st_ctime_ns for p in root.rglob("*") if p.is_file())
    clock = "mqstore.store.session.journal.time.time_ns"
    monkeypatch.setattr(clock, lambda: newest + 10**9)
    assert Fingerprint.of(Layout.open(root, CONFIG)) is None


def test_a_replica_is_not_watched(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    layout = Layout.open(root, CONFIG)
    found = analyze(layout, VERSION, options=RecoveryOptions(Policy.KEEP, replica=os.fspath(copy)))
    assert found.seen is None


def test_no_way_leads_through_a_link_that_is_no_part(root: Path, tmp_path: Path) -> None:
    """Nor does one by a link back to the store, under whose path the first has another name."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a file").touch()
    (root / "everything").symlink_to(tmp_path / "elsewhere")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "loop").symlink_to("..")
    found = Fingerprint.now(Layout.open(root, CONFIG))
    assert found is not None and not [path for path in found.files if path.endswith("/a file")]
