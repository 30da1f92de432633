"""Modes that were not run: predicted by the source, and told so (spec 7.2 row 5, 7.4)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats.checkpoint import FIELDS
from mqstore.store.audit.verified import VerifiedRun
from mqstore.store.broker.load_rules import load_files
from mqstore.store.broker.profiles import PROFILES
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import Checkpoint
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.start.log import FileRecords, LogWalk, as_configured

from ... import recovery_cases, stores
from ...cli.datadriven import run_here

DUPLICATION = "duplicationEnable"


def examined(root: Path, version: str, **more: str) -> Recovery:
    config = BrokerConfig({**recovery_cases.CONFIG, **more})
    return analyze(Layout.open(root, config), version)


def test_a_log_without_dup_info(tmp_path: Path) -> None:
    """RocketMQ issue 8032: the log ends at its first record."""
    root = recovery_cases.base("5.3.3-clean-1", tmp_path)
    found = examined(root, "5.3", duplicationEnable="true")
    told = found.prediction
    assert found.harmful and told.starts and told.lost.messages > 0
    assert told.log_end is not None and told.start_file is not None
    assert told.log_end == int(Path(told.start_file).name)
    [told_so] = found.to_json()["by_source"]
    assert told_so.startswith("duplicationEnable: a record without DUP_INFO")


@pytest.mark.few(1)
@pytest.mark.parametrize(("version", "mode"), [("4.9", "duplicationEnable"), ("5.3", "enableControllerMode")])
def test_what_is_only_told(version: str, mode: str, tmp_path: Path) -> None:
    root = recovery_cases.base("4.9.7-clean-1", tmp_path)
    plain, found = examined(root, version), examined(root, version, **{mode: "true"})
    assert [text.partition(":")[0] for text in found.to_json()["by_source"]] == [mode]
    assert "by_source" not in plain.to_json()
    assert found.to_json()["prediction"] == plain.to_json()["prediction"]


def crashed(root: Path, messages: int) -> None:
    """A store of a broker in duplication mode, killed before its queues were written."""
    row = {"topic": "orders", "queue_id": 0, "body": "x", "properties": {"DUP_INFO": "1_2"}}
    rows = root.with_suffix(".ndjson")
    rows.write_text("".join(json.dumps(row) + "\n" for _ in range(messages)))
    assert run_here(["put", str(root), "--from", str(rows), "--as-broker", "5.3"]).code == 0
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()


@pytest.mark.few(2)
@pytest.mark.parametrize("covered", [0, 3, 5])
def test_only_what_is_confirmed_gets_units_after_a_crash(covered: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crashed(root, 5)
    log = Layout.open(root)
    end = analyze(log, "5.3").prediction.log_end
    assert end is not None and end % 5 == 0  # records of one size
    fields = Checkpoint(confirm_phy_offset=end // 5 * covered)
    (root / "checkpoint").write_bytes(FIELDS.build(fields._asdict()))
    told = analyze(Layout.open(root, BrokerConfig({DUPLICATION: "true"})), "5.3").prediction
    assert (told.log_end, told.lost.messages) == (end, 0)
    assert (told.readable, told.invisible.messages) == (covered, 5 - covered)
    assert analyze(log, "5.3").prediction.readable == 5


def test_the_modes_are_data() -> None:
    on = BrokerConfig({DUPLICATION: "true"})
    for profile in PROFILES.values():
        assert as_configured(profile, BrokerConfig({})) is profile
        changed = as_configured(profile, on)
        assert changed.record.dup_info == changed.dispatch.confirmed_only == (profile.since[0] == 5)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), min_size=2, max_size=6), off=st.sampled_from([0, 0, 0, 1]))
def test_a_walk_skips_runs_wherever_they_begin(clean_log: Snapshot, cuts: list[int], off: int) -> None:
    """It reads the same records without those of the runs, and ends at the same place. off: no record begins there."""
    files = load_files(clean_log.log, clean_log.log_file_bytes, PROFILES["5.3"].load).files

    def walked(runs: dict[int, VerifiedRun]) -> tuple[list[int], LogWalk]:
        walk = LogWalk(clean_log, files, PROFILES["5.3"], crashed=True, runs=runs, passes=lambda _run: True)
        found = [item for item in walk.batches(0) if isinstance(item, FileRecords)]
        return [item.file.start + at for item in found for at in item.columns.starts.tolist()], walk

    whole, expected = walked({})
    in_first = sum(at < clean_log.log_file_bytes for at in whole)
    bounds = sorted({*(min(cut, in_first - 1) for cut in cuts)})
    path = clean_log.log[0].path
    spans = [(whole[first] + off, whole[behind]) for first, behind in zip(bounds[::2], bounds[1::2], strict=False)]
    spans = [span for span in spans if off == 0 or span[0] < span[1]]
    runs = {begin: run_of(path, begin, end) for begin, end in spans}
    found, walk = walked(runs)
    inside = [at for at in whole if any(begin <= at < end for begin, end in spans)]
    assert found == (whole if off else [at for at in whole if at not in inside])
    assert (walk.end, walk.reason, walk.failure) == (expected.end, expected.reason, expected.failure)


def run_of(path: str, begin: int, end: int) -> VerifiedRun:
    """A run of which nobody asks more than where it lies."""
    return VerifiedRun(path, begin, end, np.zeros(0, np.int64), 0, False, True, None, "", 0, {}, {}, [])


@pytest.fixture(scope="module")
def clean_log(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A log of one file without damage."""
    return Snapshot.of(Layout.open(stores.unpack("5.3.3-clean", tmp_path_factory.mktemp("log"))))
