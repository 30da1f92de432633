"""Which parts of the log a run reads, and that a run which ends early says so."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import LogFacts, Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from ...stores import unpack

_LOG = frozenset({"commit_log"})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of 256 KiB, 600 records, damage in the second."""
    return unpack("5.3.3-killed-page", tmp_path_factory.mktemp("parts"))


def _verified(store: Path, **scope: object) -> Verdict:
    with StoreReader(store) as opened:
        return verify(opened, Scope(groups=_LOG, **scope))  # type: ignore[arg-type]


def _places(findings: list[Finding], codes: tuple[str, ...]) -> list[tuple[str, str, int | None]]:
    return [(f.code, f.path, f.offset) for f in findings if f.code in codes]


def test_any_record_is_a_start(store: Path) -> None:
    """A run that begins in the middle of a record goes on with the next one."""
    whole = _verified(store)
    for start in (1, 1000, 262144, 262145, 300_000):
        part = _verified(store, start=start)
        assert 0 < part.records < whole.records
        codes = ("I-022", "I-042")
        assert _places(part.findings, codes) == _places(whole.findings, codes)
        assert {f.code for f in part.findings} <= {f.code for f in whole.findings}


def test_a_sample_has_the_end_and_no_more_than_asked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "SLICE_BYTES", 1 << 15)
    with StoreReader(store) as opened:
        start = int(opened.log.record(0).columns.ints("total_size")[0])
        whole = log_pass.parts_of(VerifyContext(opened, Scope()))
        assert whole == [log_pass.ReadRange(0, None)]
        for percent in (0.1, 10, 50, 90):
            scene = VerifyContext(opened, Scope(sample_percent=percent))
            parts = log_pass.parts_of(scene)
            assert parts[-1].stop is None
            for one, other in pairwise(parts):
                assert one.stop is not None and one.stop < other.start
            assert scene.unread and not scene.log.complete
    sampled = _verified(store, sample_percent=50)
    assert 0 < sampled.records < 600
    goes_on = _verified(store, sample_percent=50, start=start, earlier=LogFacts())
    alarms = {"I-020", "I-021", "I-023", "I-040", "I-054"}
    assert not alarms & {f.code for f in (*sampled.findings, *goes_on.findings)}


def test_a_run_is_ended_from_outside(store: Path) -> None:
    asked = iter([False] * 3 + [True] * 100)
    with StoreReader(store) as opened:
        verdict = verify(opened, Scope(groups=_LOG), stop=lambda: next(asked))
    assert verdict.stopped_at is not None
    assert any("interrupted" in text for text in verdict.unread)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_log_that_loses_its_oldest_file_is_read_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """As when a broker deletes what has expired between the listing and the reading."""
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    first = copy / "commitlog" / f"{0:020}"
    parts_of = log_pass.parts_of

    def and_delete(scene: VerifyContext) -> list[log_pass.ReadRange]:
        parts = parts_of(scene)
        first.unlink(missing_ok=True)
        return parts

    monkeypatch.setattr("mqstore.store.verify.run.parts_of", and_delete)
    with StoreReader(copy) as opened:
        verdict = verify(opened, Scope(groups=_LOG | {"layout"}), jobs=jobs)
    assert verdict.live
    assert verdict.records
    assert {f.code for f in verdict.findings} & {"I-002", "I-020"} == set()
