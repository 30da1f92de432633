"""What is proved to be in order is left out by the pass over the log: nothing that is told changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from mqstore.store.audit import prove
from mqstore.store.audit.verified import VerifiedLog
from mqstore.store.broker import load_rules
from mqstore.store.broker.profiles import VERSIONS, profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.broker.system_topics import LMQ_PREFIX
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.plan.lost_messages import MOST
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover import recovery
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import digest
from mqstore.store.start import simulate
from mqstore.store.start.log import proof_of, switches_of
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.judged import verified_before
from mqstore.store.verify.run import verify

from ... import recovery_cases, stores
from ...rocks_cases import Case, cases, damaged
from ...slices import pick, rng

pytestmark = pytest.mark.long

IN_DATABASE = ["5.3.3-rocksdb", "5.5.0-rocksdb-killed"]
ALL_PARTS = 10
FEW = ["4.9.7-killed", "5.3.3-clean", "5.5.0-killed", "4.3.1-clean"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small stores, too, are looked at in several groups and by several processes."""
    monkeypatch.setattr(prove, "AT_ONCE", 7)
    monkeypatch.setattr(prove, "_PART_BYTES", 4096)
    monkeypatch.setattr(log_pass, "CUT_BYTES", 4096)
    yield


def told(
    root: Path,
    config: BrokerConfig,
    version: str | None,
    policy: Policy,
    jobs: int,
    proved: recovery.ProvedLog | None = None,
) -> Any:
    """Everything that `analyze` says. The time of the plan's records is the clock's.

    With several jobs the plan is also made without a prediction: its edits are the same.
    """
    named = list[Any]()
    layout = Layout.open(root, config)
    found = recovery.analyze(layout, version, options=RecoveryOptions(policy), jobs=jobs, proved=proved)
    for most in (7, MOST):
        found.name_lost(most)
        named.append(found.to_json())
    edits = [] if found.plan is None else found.plan.edits
    if found.plan is not None and jobs > 1:
        again = recovery.replan(Layout.open(root, config), found.main_version, found.options)
        assert digest(again.edits) == digest(edits), "another plan, where nobody predicts"
    return json.dumps([*named, [len(edit.to_json()) for edit in edits]], indent=1)


def same(root: Path, config: BrokerConfig, version: str | None, policy: Policy) -> None:
    """The same is told with the proof, with that of `verify`, and without any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_verified", lambda *_: None)
        expected = told(root, config, version, policy, 1)
    assert told(root, config, version, policy, 3) == expected
    proved = verified_before(Layout.open(root, config), version, jobs=2)[1]
    assert told(root, config, version, policy, 1, proved) == expected


def proved(root: Path, jobs: int = 1) -> VerifiedLog:
    """What is in order in a store."""
    proof = proof_of(Layout.open(root), None)
    assert proof is not None
    return prove.prove_log(proof, jobs)


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("name", FEW)
def test_real_stores(name: str, policy: Policy, tmp_path: Path) -> None:
    same(stores.unpack(name, tmp_path), BrokerConfig({}), None, policy)


@pytest.mark.few(2)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("name", IN_DATABASE)
def test_queues_in_a_database(name: str, killed: bool, policy: Policy, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    if killed:
        (root / "abort").touch()
    same(root, BrokerConfig({}), None, policy)


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in cases() if "rocks-" in case["base"]])
def test_damaged_databases(case: Case, tmp_path: Path) -> None:
    root, config = damaged(case, tmp_path)
    for policy in Policy:
        same(root, config, case["version"], policy)


def test_a_log_is_proved_with_the_queues_of_a_database(tmp_path: Path) -> None:
    root = stores.unpack(IN_DATABASE[0], tmp_path)
    found = verified_before(Layout.open(root), None)[1]
    assert found is not None and found.verified.copied is not None
    log_end = commit_log_of(Layout.open(root)).end().position
    assert found.verified.end == log_end, "the proof ends before the log does"
    copied = found.verified.copied
    assert all(copied.entries[name] for run in found.verified.runs for name in run.queues)


def test_a_whole_store_is_proved_to_its_end(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    verified = proved(root)
    assert verified.end == commit_log_of(Layout.open(root)).end().position
    assert sum(queue_range.messages for run in verified.runs for queue_range in run.queues.values()) > 0
    parts = proved(root, 3)
    assert (parts.end, len(parts.runs) > len(verified.runs)) == (verified.end, True)


def test_what_is_told_on_the_way_reaches_the_end(tmp_path: Path) -> None:
    layout = Layout.open(stores.unpack("5.3.3-clean", tmp_path))
    reached: list[int] = []
    recovery.analyze(layout, options=RecoveryOptions(Policy.KEEP), jobs=3, tell=reached.append)
    log = commit_log_of(layout)
    assert log.min_offset < min(reached) and max(reached) <= log.max_file_end
    assert log.end().position in reached


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 3])
def test_verify_proves_what_it_reads(jobs: int, tmp_path: Path) -> None:
    """The runs are those of a pass of their own, whichever process has seen them."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    expected, (_, found) = proved(root), verified_before(Layout.open(root), None, jobs=jobs)
    assert found is not None and found.verified.end == expected.end
    assert found.verified.offsets() == expected.offsets()
    assert len(found.verified.runs) >= jobs


def test_parts_that_do_not_meet_are_not_one(tmp_path: Path) -> None:
    verified = proved(stores.unpack("5.3.3-clean", tmp_path), 3)
    first, *_, last = (VerifiedLog([run], run.end, verified.index) for run in verified.runs)
    together = last.after(first)
    assert (together.items, together.end) == ([*first.items, *last.items], first.end)
    assert together.offsets() == first.offsets()


def test_short_runs_are_left_out_where_there_are_many(tmp_path: Path) -> None:
    verified = proved(stores.unpack("5.3.3-clean", tmp_path))
    run = max(verified.runs, key=lambda run: len(run.queues))
    large = 1 << 20
    size = [1000, len(run.queues) * (64 << 10), *[1000] * 98]
    runs = [run._replace(begin=n * large, end=n * large + size[n]) for n in range(100)]
    few = VerifiedLog([*runs[:3]], runs[2].end, verified.index)
    assert few.of_long_runs() is few
    many = VerifiedLog([*runs], runs[-1].end, verified.index).of_long_runs()
    assert (many.items, many.end) == ([*runs[:2]], runs[2].begin)  # the first one stays, however short
    later = VerifiedLog([*runs[1:]], runs[-1].end, verified.index).of_long_runs()
    assert (later.items, later.end) == ([runs[1]], runs[2].begin)


def test_a_child_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    expected = proved(root)

    class Dead:
        def __init__(self, work: object) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def result(self) -> None:
            return None

    monkeypatch.setattr(prove, "Forked", Dead)
    assert proved(root, 3).end == expected.end


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_the_proof_ends_before_a_wrong_byte(part: int, tmp_path: Path) -> None:
    """Anywhere in a record, or in its unit: what is left of the proof does not reach it."""
    whole = stores.unpack("5.3.3-clean", tmp_path)
    (run, *_) = proved(whole).runs
    chance = rng(f"wrong byte {part}")
    for number in range(2):
        root = tmp_path / str(number)
        shutil.copytree(whole, root)
        at = chance.randrange(run.begin, run.end)
        with Path(root, "commitlog", Path(run.path).name).open("r+b") as file:
            file.seek(at - run.begin)
            byte = file.read(1)[0]
            file.seek(at - run.begin)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        same(root, BrokerConfig({}), None, Policy.KEEP)
        shutil.rmtree(root)


def test_light_queues_are_proved_with_the_others(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-lmq", tmp_path)
    snapshot, profile = Snapshot.of(Layout.open(root)), profile_of("5.3")
    verified = recovery._verified(snapshot, profile, switches_of(snapshot), 1, None)
    assert verified is not None and verified.end == commit_log_of(Layout.open(root)).end().position
    assert {run.further_by for run in verified.runs} == {profile.version}
    assert any(queue.topic.startswith(LMQ_PREFIX) for run in verified.runs for queue in run.queues)
    for version in (None, profile.version):
        same(root, BrokerConfig({}), version, Policy.KEEP)


def _spoiled(root: Path, at: int) -> int:
    """One byte of a body is another one; the position of its record."""
    log = commit_log_of(Layout.open(root))
    batch = next(b for b in log.scan() if isinstance(b, Batch) and int(b.position[-1]) >= at)
    row = int(np.searchsorted(batch.position, at))
    body = batch.columns.ragged("body")
    place = int(body.start[row]) - int(batch.columns.starts[row])
    position = int(batch.position[row])
    file = log.queue.file_at(position)
    assert file is not None
    with Path(file.path).open("r+b") as opened:
        opened.seek(position - file.start + place)
        byte = opened.read(1)[0]
        opened.seek(position - file.start + place)
        opened.write(bytes([byte ^ 1]))
    return position


@pytest.mark.slow
@pytest.mark.parametrize("places", [(0,), (0, 20_000), (1000, 1600, 150_000)])
@pytest.mark.parametrize("name", ["5.3.3-killed", "4.9.7-clean"])
def test_the_proof_goes_on_behind_damage(name: str, places: tuple[int, ...], tmp_path: Path) -> None:
    """Most of the log is proved still, and of it nobody sees a record."""
    root = stores.unpack(name, tmp_path)
    whole = sum(run.end - run.begin for run in proved(root).runs)
    spoiled = [_spoiled(root, at) for at in places]
    verified = proved(root)
    assert not any(run.begin <= at < run.end for run in verified.runs for at in spoiled)
    assert sum(run.end - run.begin for run in verified.runs) > whole * 0.5
    assert verified.end <= spoiled[0] < verified.runs[-1].begin
    for policy in Policy:
        same(root, BrokerConfig({}), None, policy)


@pytest.mark.few(1)
@pytest.mark.parametrize("case", recovery_cases.cases()[::40], ids=lambda case: case["kind"])
def test_damaged_stores(case: dict[str, Any], tmp_path: Path) -> None:
    root = recovery_cases.damaged(case, tmp_path)
    same(root, recovery_cases.config_of(case, root), case["version"], Policy.KEEP)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(ALL_PARTS))
def test_all_damaged_stores(part: int, tmp_path: Path) -> None:
    cases = [*recovery_cases.all_cases(), *recovery_cases.all_feature_cases()]
    wrong = []
    for number, case in enumerate(pick(cases, "sound")[part::ALL_PARTS]):
        root = recovery_cases.damaged(case, tmp_path / str(number))
        config = recovery_cases.config_of(case, root)
        try:
            for policy in pick(list(Policy), case["case"]):
                same(root, config, case["version"], policy)
        except AssertionError as error:
            wrong.append(f"{case['case']}: {str(error)[:300]}")
        shutil.rmtree(tmp_path / str(number))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", stores.ALL)
def test_all_real_stores(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    try:
        Snapshot.of(Layout.open(root))
    except Exception:  # noqa: BLE001
        return
    for version in VERSIONS:
        same(root, BrokerConfig({}), version, Policy.KEEP)


@pytest.mark.few(2)
@pytest.mark.parametrize("version", ["4.3.1", "4.9.7", "5.3.3"])
@pytest.mark.parametrize("name", ["4.9.7-killed", "5.3.3-clean", "5.3.3-lmq"])
def test_stores_without_queues(name: str, version: str, tmp_path: Path) -> None:
    """A start makes the queues anew: brokers up to 4.9 once the log is recovered."""
    root = stores.bare(name, tmp_path)
    for policy in Policy:
        same(root, BrokerConfig({}), version, policy)


def test_what_a_start_dispatches_at_last_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs whose units are made a broker up to 4.9 takes these."""
    walked = list[int]()

    def reput(outcome: object, waiting: object, file: object, position: int, end: int) -> int:
        walked.append(position)
        return _reput_file(outcome, waiting, file, position, end)  # type: ignore[arg-type]

    _reput_file = simulate._reput_file
    monkeypatch.setattr(simulate, "_reput_file", reput)
    root = stores.bare("4.9.7-clean", tmp_path)
    recovery.analyze(Layout.open(root), "4.9.7", options=RecoveryOptions(Policy.BROKER))
    proof = proof_of(Layout.open(root), "4.9.7")
    assert proof is not None
    begins = {run.begin for run in prove.prove_log(proof, 1).runs}
    assert 0 in begins and begins.isdisjoint(walked)


def test_a_start_takes_units_made_for_an_index_with_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess is of several generations, some of which index tags: their queues are the same."""
    root = stores.bare("5.3.3-clean", tmp_path)
    snapshot, proof = Snapshot.of(Layout.open(root)), proof_of(Layout.open(root), "5.5.0")
    assert proof is not None and proof.making is not None and proof.making.index_tags
    verified = prove.prove_log(proof, 1)
    walked = list[int]()

    def walk(content: Any, offset: int, record: Any, check: Any, start: int, end: int | None) -> Any:
        walked.append(start + offset)
        return load_rules.walk(content, offset, record, check, start, end)

    def ends(known: VerifiedLog | None) -> dict[Any, tuple[int, int]]:
        walked.clear()
        outcome = simulate.simulate(snapshot, profile_of("5.3.3"), switches_of(snapshot), verified=known)
        return {name: (queue.max_physical, queue.max_offset) for name, queue in outcome.queues.items()}

    monkeypatch.setattr("mqstore.store.start.log.walk", walk)
    begins = {run.begin for run in verified.runs}
    whole = ends(None)
    assert whole and 0 in walked and 0 in begins
    assert ends(verified) == whole and begins.isdisjoint(walked)


def test_where_good_records_go_on_is_known_behind_damage(tmp_path: Path) -> None:
    """The end of the last one, wherever runs are too short to be kept."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    end = commit_log_of(Layout.open(root)).end().position
    for at in (1000, end // 2):
        _spoiled(root, at)
    assert proved(root).reach == proved(root, 3).reach == end
    found = verified_before(Layout.open(root), None, jobs=3)[1]
    assert found is not None and found.verified.reach == end


def test_nothing_is_proved_of_a_store_that_has_changed(tmp_path: Path) -> None:
    """A unit is lost between the pass and the plan: the plan knows."""
    layout = Layout.open(stores.unpack("5.3.3-clean", tmp_path))
    _, proved = verified_before(layout, None)
    queue = min((layout.consume_queue / "orders/0").iterdir())
    with queue.open("r+b") as file:
        file.write(bytes(20))
    found = recovery.analyze(layout, options=RecoveryOptions(Policy.KEEP), proved=proved)
    assert proved is not None and found.plan is not None and found.plan.completed


def test_a_run_that_goes_on_proves_nothing(tmp_path: Path) -> None:
    """It has not seen the beginning of the log, from which on a proof tells."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    with StoreReader(root) as store:
        begin = int(next(b for b in store.log.scan() if isinstance(b, Batch)).position[1])
        assert verify(store, Scope(proof=True)).verified is not None
        assert verify(store, Scope(proof=True, start=begin)).verified is None
