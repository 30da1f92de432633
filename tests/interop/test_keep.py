"""What the policy "keep" leaves, in the hands of real brokers: all of it is served, nothing is cut."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.recovery import replan
from mqstore.store.session.apply import apply
from tests import recovery_cases, stores
from tests.recovery_cases import CONFIG, Case
from tests.slices import pick
from tests.store.plan.narrow import narrow, overwrite
from tests.store.recover.recovered import record_bytes, started, unharmed, units_of

from .conftest import Judge
from .oracle import VERSIONS
from .served import Row, loaded

pytestmark = pytest.mark.interop

SIZES = dict(CONFIG.items())
Place = tuple[str, int]


def kept(root: Path, version: str, config: BrokerConfig = CONFIG) -> Plan:
    """Recover a store under the policy."""
    options = RecoveryOptions(Policy.KEEP, 1_795_300_000_000, (version.rpartition(".")[0],))

    def again() -> Plan:
        return replan(Layout.open(root, config), version, options)

    plan = again()
    apply(Layout.open(root, config), plan, again, Files())
    return plan


def served(answer: list[Row]) -> dict[Place, tuple[int, str]]:
    """Queue and queue offset → position and body of every message that a consumer pulls."""
    return {
        ("/".join(row["queue"].rsplit("-", 1)), row["unit"]): (row["physical_offset"], row["sha1"])
        for row in answer
        if "sha1" in row and row["look_ok"]
    }


def changed(answer: Row) -> list[str]:
    """Files of the store's data that came, went or changed; RocksDB writes its own at each start."""
    before, after = (
        {name: entry.get("sha256") for name, entry in answer[part].items() if _is_data(name)}
        for part in ("files_before", "files_after")
    )
    return sorted(name for name in before | after if before.get(name) != after.get(name))


def _is_data(name: str) -> bool:
    return name.split("/")[0] in ("commitlog", "consumequeue", "index", "checkpoint")


def check(case: Case, judge: Judge, work: Path) -> None:
    """Load, read, write, and rebuild the queues of a kept store: the rest is where it was."""
    name = f"{case['version']} {case['exit']} {case['seed']} {case['kind']}"
    base = recovery_cases.base(case["base"], work)
    root = recovery_cases.damaged(case, work)
    expected = undamaged(judge, base, root, work)
    try:
        plan = kept(root, case["version"])
    except Refused:
        return
    check_kept(judge, root, plan, expected, work, name)


def undamaged(judge: Judge, base: Path, root: Path, work: Path) -> dict[Place, tuple[int, str]]:
    """What the broker serves of `base`, as far as the records are the same in `root`."""
    whole = loaded(judge, _copy(base, work / "whole"), SIZES, {"do": "get"}, files="none")
    truth = served(whole["steps"][0])
    alive = unharmed(base, root, CONFIG)
    expected = {place: truth[place] for place in truth if place in alive}
    assert expected or not alive, "the names of the queues differ"
    return expected


def check_kept(
    judge: Judge, root: Path, plan: Plan, expected: dict[Place, tuple[int, str]], work: Path, name: str
) -> None:
    """The broker changes nothing, serves what is expected, and makes the same queues again."""
    result = _copy(root, work / "kept")
    answer = loaded(judge, result, SIZES, start=False)
    own = set() if plan.edits else {"checkpoint"}  # a broker mends that one by itself
    assert set(changed(answer)) <= own, f"{name}: load changes files"
    assert answer["after_load"]["max_offset"] == plan.log_end, name
    new = {"topic": "TopicA", "queue_id": 0, "body": "after", "store_timestamp": 1_795_400_000_000}
    steps = ({"do": "get"}, {"do": "put", "messages": [new]}, {"do": "get"})
    answer = loaded(judge, result, SIZES, *steps, files="none")
    for step in (0, 2):
        found = served(answer["steps"][step])
        missing = {place: row for place, row in expected.items() if found.get(place) != row}
        assert not missing, f"{name}: {len(missing)} messages gone, {sorted(missing)[:3]}"
    before, after = (served(answer["steps"][step]) for step in (0, 2))
    bodies = {body for _, body in before.values()}  # 4.x delivers delayed messages meanwhile, with bodies of before
    added = [place for place, (_, body) in after.items() if place not in before and body not in bodies]
    assert len(added) == 1, f"{name}: one message was put, new are {added}"
    _rebuilt(judge, _copy(root, work / "kept"), expected, name)


def _rebuilt(judge: Judge, root: Path, expected: dict[Place, Any], name: str) -> None:
    """The broker makes the same queues from the log alone."""
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    start = started(root, CONFIG, judge.version)
    if start.hangs or start.delay_seconds:
        return  # a record whose damaged topic is no directory: a broker tries it again and again
    answer = loaded(judge, root, SIZES, {"do": "get"}, files="none")
    found = served(answer["steps"][0])
    missing = {place: row for place, row in expected.items() if found.get(place) != row}
    assert not missing, f"{name}: {len(missing)} gone after a rebuild, {sorted(missing)[:3]}"


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def some_case(version: str) -> Case:
    """A shipped case of a version that breaks the middle of the log; 5.5.1 takes those of 5.5.0."""
    like = {"5.5.1": "5.5.0"}.get(version, version)
    case = next(c for c in recovery_cases.cases() if c["version"] == like and _breaks_log(c))
    return case | {"version": version}


def _breaks_log(case: Case) -> bool:
    edit = case["edits"][0]
    file = edit.get("file", edit.get("path", ""))
    return "commitlog" in file and "last" not in case["kind"] and "first" not in case["kind"]


def test_a_store_of_each_version(judge: Judge, tmp_path: Path) -> None:
    check(some_case(judge.version), judge, tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [False, True])
def test_bytes_too_few_for_a_record(judge: Judge, lost: bool, tmp_path: Path) -> None:
    """They are in the properties of the record before, or in the tombstone beside."""
    name = some_case(judge.version)["base"]
    base, root = recovery_cases.base(name, tmp_path), tmp_path / "store"
    shutil.copytree(base, root)
    queue, offset = narrow(root, CONFIG, 17, lost=lost)
    expected = undamaged(judge, base, root, tmp_path)
    position, size, _ = units_of(root, CONFIG)[queue][offset]
    if not lost:
        record = record_bytes(root, int(SIZES["mappedFileSizeCommitLog"]), position, size)
        body = sha1(MESSAGE.parse(record).body, usedforsecurity=False).hexdigest()
        expected[str(queue), offset] = (position, body)
    plan = kept(root, judge.version)
    assert plan.lost.messages == lost
    check_kept(judge, root, plan, expected, tmp_path, name)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
@pytest.mark.parametrize("lost", [False, True])
def test_checksums_of_whole_records(oracle: Callable[[str], Judge], version: str, lost: bool, tmp_path: Path) -> None:
    """A broker that demands them takes a record with padding, and a tombstone that was made longer."""
    root = stores.unpack(name := f"{version}-propcrc", tmp_path)
    options = stores.config(name, root) | {"forceVerifyPropCRC": "true"}
    config = BrokerConfig(options)
    queue, offset = narrow(root, config, 17, lost=lost)
    position = units_of(root, config)[queue][offset][0]
    kept(root, version, config)
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    end = commit_log_of(Layout.open(root, config)).end().position
    sizes = {key: value for key, value in options.items() if not key.startswith("storePath")}
    answer = loaded(oracle(version), root, sizes, {"do": "get"}, files="none")
    assert answer["after_load"]["max_offset"] == end
    row = next(row for row in answer["steps"][0] if row.get("physical_offset") == position)
    assert (row["unit"], "LOST" in row["properties"]) == (offset, lost)


def test_lost_messages_that_no_unit_names(judge: Judge, tmp_path: Path) -> None:
    """Records and units gone: a broker that rebuilds the queues moves no later message."""
    name = some_case(judge.version)["base"]
    base, root = recovery_cases.base(name, tmp_path), tmp_path / "store"
    shutil.copytree(base, root)
    units = units_of(root, CONFIG)[QueueId("TopicA", 0)]
    middle, log_file = len(units) // 2, int(SIZES["mappedFileSizeCommitLog"])
    for offset in (middle, middle + 1):
        position, size, _ = units[offset]
        overwrite(root / "commitlog", log_file, position, bytes(size))
        queue_file = int(SIZES["mappedFileSizeConsumeQueue"])
        at = offset * UNIT_BYTES
        overwrite(root / "consumequeue/TopicA/0", queue_file, at, bytes(UNIT_BYTES))
    expected = undamaged(judge, base, root, tmp_path)
    plan = kept(root, judge.version)
    assert plan.lost.messages == 2
    check_kept(judge, root, plan, expected, tmp_path, name)


def test_a_log_that_is_gone(judge: Judge, tmp_path: Path) -> None:
    """With --force-empty-log a broker starts over, at position and queue offset 0."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base(some_case(judge.version)["base"], tmp_path), root)
    for path in (root / "commitlog").iterdir():
        path.unlink()
    options = RecoveryOptions(Policy.KEEP, 0, (), force_empty_log=True)

    def again() -> Plan:
        return replan(Layout.open(root, CONFIG), judge.version, options)

    apply(Layout.open(root, CONFIG), again(), again, Files())
    new = {"topic": "TopicA", "queue_id": 0, "body": "after", "store_timestamp": 1_795_400_000_000}
    steps = ({"do": "get"}, {"do": "put", "messages": [new]}, {"do": "get"})
    answer = loaded(judge, root, SIZES, *steps, files="none")
    assert answer["steps"][0] == []
    assert list(served(answer["steps"][2])) == [("TopicA/0", 0)]


@pytest.mark.slow
def test_every_case(judge: Judge, tmp_path: Path) -> None:
    """Every kind of damage that leaves a log, judged by the version that wrote the store."""
    cases = [case for case in recovery_cases.all_cases() if case["version"] == judge.version]
    for case in pick(cases, f"kept {judge.version}"):
        check(case, judge, tmp_path)


@pytest.mark.slow
def test_judged_by_other_versions(oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """A kept store is the same for every version that knows its records."""
    for case in pick(recovery_cases.all_cases(), "kept, other versions")[::4]:
        later = VERSIONS[VERSIONS.index(case["version"]) + 1 :]
        if later:
            check(case, oracle(later[-1]), tmp_path)
