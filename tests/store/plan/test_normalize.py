"""Entries that no version should meet: files with other names, far from all others, without units."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import time
from pathlib import Path

import pytest

from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Missing
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import next_commands
from mqstore.store.plan.normalize import missing_parts
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.put.new_message import NewMessage
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import lacks_first_files

from ... import recovery_cases, stores
from ...cli.datadriven import run_here
from ...mixed_store import mixed_store
from ...packing import pack_below
from ...verdict import said_of
from ..put.writing import writer
from ..recover.recovered import changes_of_starts

END_OF_RECORDS, LOG_FILE_BYTES = 102_141, 262_144
"""Of 5.3.3-cqext."""


@pytest.mark.parametrize("policy", list(Policy))
def test_renamed_log_files_are_no_empty_log(policy: Policy, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    for path in sorted((root / "commitlog").iterdir(), reverse=True):
        path.rename(path.with_name(f"{int(path.name) + 8192 * 100:020d}"))
    found = analyze(Layout.open(root, recovery_cases.CONFIG), "5.3.3", options=RecoveryOptions(policy))
    assert found.plan is None and "were the files renamed?" in str(found.refusal)


@pytest.mark.few(3)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("queues", [True, False])
def test_log_files_without_a_name_are_no_empty_log(queues: bool, policy: Policy, tmp_path: Path) -> None:
    """All messages are in them: none is moved away, also where no queue is there to miss it."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    for path in (root / "commitlog").iterdir():
        path.rename(path.with_name(f"{int(path.name) + 8}"))
    if not queues:
        shutil.rmtree(root / "consumequeue")
    found = analyze(Layout.open(root, recovery_cases.CONFIG), "5.3.3", options=RecoveryOptions(policy))
    assert found.plan is None and "were the files renamed?" in str(found.refusal)


@pytest.mark.parametrize(
    ("log", "read_only", "splitter", "unread"),
    [
        ("disk2/commitlog-b", "commitlog-a", "", "commitlog-a"),
        ("disk2/commitlog-b,", "commitlog-a", "", ""),
        ("disk2/commitlog-b", "none", "", "full queues"),
        ("disk2/commitlog-b;commitlog-a", "", "", "only at a comma, not at ;"),
        ("disk2/commitlog-b;commitlog-a", "", ";", ""),
        ("commitlog-a", "disk2/commitlog-b", "", ""),
    ],
)
def test_directories_of_the_log_that_no_broker_reads(
    log: str, read_only: str, splitter: str, unread: str, tmp_path: Path
) -> None:
    """With these options the real classes come up with an empty log, and delete the queues."""
    root = stores.unpack("4.9.7-multipath", tmp_path)
    config = stores.config("4.9.7-multipath", root)
    config |= {"storePathCommitLog": log, "readOnlyCommitLogStorePaths": read_only}
    config |= {"rocketmq.broker.multiPathSplitter": splitter} if splitter else {}
    with StoreReader(root, BrokerConfig(config)) as store:
        refusals = [finding.message for finding in verify(store).findings if finding.code == "I-187"]
    assert [unread in each for each in refusals] == [True] * bool(unread)


@pytest.mark.parametrize(("configured", "cut"), [(4096, False), (16384, False), (16384, True)])
def test_a_configured_length_that_is_not_that_of_the_files(configured: int, cut: bool, tmp_path: Path) -> None:
    """Files that agree with one another are not at fault."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    if cut:
        os.truncate(min((root / "commitlog").iterdir()), 5000)
    config = BrokerConfig({**recovery_cases.CONFIG, "mappedFileSizeCommitLog": str(configured)})
    refusal = str(analyze(Layout.open(root, config), "5.3.3").refusal)
    hint = "restore its length" if cut else "mappedFileSizeCommitLog should be 8192"
    assert hint in refusal


@pytest.mark.parametrize(("length", "lost"), [(262_143, 0), (102_141, 0), (102_140, 1), (300_000, 0)])
def test_the_only_log_file_with_another_length(length: int, lost: int, tmp_path: Path) -> None:
    """A default broker has one for its first GiB. Its configuration tells the length, and no byte contradicts it."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    (path,) = (root / "commitlog").iterdir()
    assert len(path.read_bytes().rstrip(b"\0")) == END_OF_RECORDS
    os.truncate(path, length)
    config = BrokerConfig(stores.config("5.3.3-cqext", root))
    options = RecoveryOptions(Policy.KEEP)
    plan = analyze(Layout.open(root, config), "5.3", options=options).plan
    assert plan is not None and plan.lost_messages == lost
    apply(Layout.open(root, config), plan, lambda: replan(Layout.open(root, config), "5.3", options), Files())
    assert path.stat().st_size == LOG_FILE_BYTES


def test_records_behind_the_configured_length_of_the_only_file(tmp_path: Path) -> None:
    """Then the configuration is not that of this store: nothing is cut off."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    config = BrokerConfig({**stores.config("5.3.3-cqext", root), "mappedFileSizeCommitLog": "65536"})
    found = analyze(Layout.open(root, config), "5.3", options=RecoveryOptions(Policy.KEEP))
    assert found.plan is None and "--set mappedFileSizeCommitLog=BYTES" in str(found.refusal)


def test_a_file_far_from_all_others(tmp_path: Path) -> None:
    """No number of files between them is rebuilt because of one odd name."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    first = min((root / "commitlog").iterdir())
    shutil.copyfile(first, first.with_name(f"{8192 * 10**12:020d}"))
    layout = Layout.open(root, recovery_cases.CONFIG)
    plan = analyze(layout, "5.3.3", options=RecoveryOptions(Policy.KEEP)).plan
    assert plan is not None and not plan.lost.messages
    assert [edit.kind for edit in plan.edits if "commitlog" in edit.path] == ["move"]
    first.rename(root / "other")
    for path in sorted((root / "commitlog").iterdir())[:-1]:
        path.unlink()
    found = analyze(Layout.open(root, recovery_cases.CONFIG), "5.3.3", options=RecoveryOptions(Policy.KEEP))
    assert found.plan is None and "were the files renamed?" in str(found.refusal)


@pytest.mark.parametrize("policy", list(Policy))
def test_an_empty_file_behind_the_units_of_consumequeue_ext(policy: Policy, tmp_path: Path) -> None:
    """A start would delete it: the plan moves it away, and the next start changes nothing."""
    case = recovery_cases.case_of("ext_extra_next")
    root = recovery_cases.damaged(case, tmp_path)
    config = recovery_cases.config_of(case, root)

    def again() -> Plan:
        return replan(Layout.open(root, config), case["version"], RecoveryOptions(policy, 0))

    plan = again()
    apply(Layout.open(root, config), plan, again, Files())
    assert [edit.path for edit in plan.edits if edit.kind == "remove"] == [str(root / case["edits"][0]["file"])]
    assert not changes_of_starts(root, config, plan, ("5.3", "5.4", "5.5"))


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("at", [0, -1])
def test_a_log_file_whose_number_has_other_digits(at: int, policy: Policy, tmp_path: Path) -> None:
    """Readers and brokers take it for what it is: it is not moved away, and the command that names it is told."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    named = sorted((root / "commitlog").iterdir())[at]
    short = named.rename(named.with_name(f"00{int(named.name)}"))
    options = RecoveryOptions(policy)
    layout = Layout.open(root, BrokerConfig(stores.config("5.3.3-clean", root)))
    found = analyze(layout, "5.3.3", options=options)
    assert found.plan is None and found.refusal is not None and f"mv {short} {named}" in (found.refusal.hint or "")
    with StoreReader(root, layout.broker_config) as store:
        verdict = verify(store)
    commands = next_commands(verdict.findings, root)
    assert str(commands[0]) == f"mv {short} {named}" and "--apply" not in " ".join(map(str, commands))
    shutil.copyfile(short, named)  # the place is taken: this one is a copy
    plan = analyze(layout, "5.3.3", options=options).plan
    assert plan is not None and [e.path for e in plan.edits if "commitlog" in e.path] == [str(short)]


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("at", [0, 1])
def test_a_file_with_the_records_of_a_missing_one(at: int, policy: Policy, tmp_path: Path) -> None:
    """It is not moved away: the command that gives it its name is told, by `verify`, too."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    named = sorted((root / "commitlog").iterdir())[at]
    other = named.rename(named.with_name(f"{named.name} (1).bak"))
    layout = Layout.open(root, BrokerConfig(stores.config("5.3.3-killed", root)))
    found = analyze(layout, "5.3.3", options=RecoveryOptions(policy))
    command = f"mv '{other}' {named}"
    assert found.plan is None and found.refusal is not None and command in (found.refusal.hint or "")
    with StoreReader(root, layout.broker_config) as store:
        commands = next_commands(verify(store).findings, root)
    assert str(commands[0]) == command and "--apply" not in " ".join(map(str, commands))


@pytest.mark.parametrize("policy", list(Policy))
def test_a_file_with_the_records_of_a_missing_one_and_the_name_of_another(policy: Policy, tmp_path: Path) -> None:
    """The first file has the number of the second one, which is there: it is not moved away."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    first, second = sorted((root / "commitlog").iterdir())
    other = first.rename(first.with_name(f"{int(second.name)}"))
    layout = Layout.open(root, BrokerConfig(stores.config("5.3.3-clean", root)))
    found = analyze(layout, "5.3.3", options=RecoveryOptions(policy))
    assert found.plan is None and "the name of another log file" in str(found.refusal)
    with StoreReader(root, layout.broker_config) as store:
        commands = next_commands(verify(store).findings, root)
    assert str(commands[0]) == f"mv {other} {first}" and "--apply" not in " ".join(map(str, commands))


def test_a_file_with_records_far_from_the_log(tmp_path: Path) -> None:
    """One that has expired long ago stands in the way alone; the plan says what it moves away."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    first, *others = sorted((root / "commitlog").iterdir())
    first.rename(first.with_name(f"{first.name}.bak"))
    others[0].unlink()
    layout = Layout.open(root, BrokerConfig(stores.config("5.3.3-killed", root)))
    plan = analyze(layout, "5.3.3", options=RecoveryOptions(Policy.BROKER, force_empty_log=True)).plan
    assert plan is not None
    (moved,) = (edit for edit in plan.edits if edit.path.endswith(".bak"))
    assert f"belong to {first.name}, which is missing" in moved.reason


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("name", ["5.3.3-compaction-killed", "5.5.0-rocksdb-killed", "4.9.7-killed"])
@pytest.mark.parametrize("noise", [False, True])
def test_nothing_but_a_file_without_a_record_is_left(noise: bool, name: str, policy: Policy, tmp_path: Path) -> None:
    """No broker deletes what it has just stored: it is no expired log. `--force-empty-log` says that it is gone."""
    root = stores.unpack(name, tmp_path)
    *others, last = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    if noise:  # of a copy that went wrong, which is short, too
        last.write_bytes(random.Random(1).randbytes(last.stat().st_size // 2))

    def found(*, gone: bool = False) -> Recovery:
        layout = Layout.open(root, BrokerConfig(stores.config(name, root)))
        return analyze(layout, name[:5], options=RecoveryOptions(policy, force_empty_log=gone))

    assert str(found().refusal).startswith("no record in the commit log, but ")
    if "rocksdb" not in name:
        plan = found(gone=True).plan
        assert plan is not None and plan.lost.messages and str(last) in {edit.path for edit in plan.edits}
    with StoreReader(root, BrokerConfig(stores.config(name, root))) as store:
        assert {"I-187"} <= {finding.code for finding in verify(store).findings}
    os.utime(root / "checkpoint")  # a broker has run for long enough since
    assert found().plan is not None


@pytest.mark.parametrize("length", [None, 524288])
def test_a_log_whose_files_all_have_a_wrong_length(length: int | None, tmp_path: Path) -> None:
    """Cut behind their last byte, or grown: the names tell the size, and no message is lost."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    files = sorted((root / "commitlog").iterdir())
    before = [file.read_bytes() for file in files]
    for file, data in zip(files, before, strict=True):
        os.truncate(file, length or len(data.rstrip(b"\0")))
    layout, options = Layout.open(root, BrokerConfig()), RecoveryOptions(Policy.KEEP)
    plan = analyze(layout, "5.3", options=options).plan
    assert plan is not None and plan.lost.messages == 0
    apply(layout, plan, lambda: replan(layout, "5.3", options), Files())
    assert [file.read_bytes() for file in files] == before


@pytest.mark.parametrize("size", [204566, 524288])
def test_no_file_is_moved_away_for_the_size_of_another(size: int, tmp_path: Path) -> None:
    """Its name and its records agree: a configuration that says otherwise is asked about."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for file in (root / "commitlog").iterdir():
        os.truncate(file, size)
    layout = Layout.open(root, BrokerConfig({"mappedFileSizeCommitLog": str(size)}))
    found = analyze(layout, "5.3", options=RecoveryOptions(Policy.KEEP))
    assert found.plan is None and found.refusal is not None
    assert "--set mappedFileSizeCommitLog" in (found.refusal.hint or "")


_THREE = "5.3.3-multipath-killed"


def _of_directories(root: Path, *names: str) -> Layout:
    """A store whose broker.conf names these directories for its log."""
    return Layout.open(root, BrokerConfig({"storePathCommitLog": ",".join(str(root / name) for name in names)}))


@pytest.mark.parametrize(
    ("lost", "part"),
    [
        (("d1",), "before the beginning of the log, 262,144, and {}/d1/log is not there"),
        (("d2",), "the log has a gap at 262,144, and {}/d2/log is not there"),
        (("d2", "d3"), "at the end of the log, 262,144, and {0}/d2/log is not there and {0}/d3/log is not there"),
        (("d3",), ""),  # a file of zeros, made in advance
        ((), ""),
    ],
)
@pytest.mark.parametrize("empty", [False, True])
def test_a_log_directory_that_is_not_mounted(empty: bool, lost: tuple[str, ...], part: str, tmp_path: Path) -> None:
    """What was in it has not expired, and is not lost; of a directory that had no file yet nothing is missing."""
    root = stores.unpack(_THREE, tmp_path)
    for name in ("d1", "d2", "d3"):
        (root / name / "commitlog").rename(root / name / "log")
    for name in lost:
        shutil.rmtree(root / name / "log")
        if empty:
            (root / name / "log").mkdir()
    layout = _of_directories(root, "d1/log", "d2/log", "d3/log")
    found = analyze(layout, "5.3.3")
    told = part.format(root).replace("is not there", "is empty") if empty else part.format(root)
    assert told in str(found.refusal or "") and (found.plan is None) == bool(part)
    case = "log-directory-missing" if part else "preallocated-zeros"
    assert found.prediction.case.label == case
    with StoreReader(root, layout.broker_config) as opened:
        findings = verify(opened).findings
    assert bool(part) == any(finding.code == "I-187" for finding in findings)
    assert not any("expired" in finding.message for finding in findings)


def test_a_compressed_file_is_no_lost_part_of_a_log(tmp_path: Path) -> None:
    """Readers take it for whole; in front of it the first file is missing."""
    root = stores.unpack(_THREE, tmp_path)
    assert pack_below([root / "d2" / "commitlog", root / "consumequeue" / "TopicB"], "gzip")
    assert not [*missing_parts(Snapshot.as_read(_of_directories(root, "d1/commitlog", "d2/commitlog", "d4")))]
    shutil.rmtree(root / "d1")
    (told, _), *_ = missing_parts(Snapshot.as_read(_of_directories(root, "d1/commitlog", "d2/commitlog")))
    assert told == "queues name messages before the beginning of the log, 262,144"
    with StoreReader(root, _of_directories(root, "d2/commitlog", "d3/commitlog").broker_config) as opened:
        (finding,) = (each for each in verify(opened).findings if each.code == "I-002")
    assert " name messages before the beginning of the log, 262,144: " in finding.message


@pytest.mark.parametrize("empty", [False, True])
def test_the_older_log_that_a_dledger_log_goes_on_from(empty: bool, tmp_path: Path) -> None:
    """A broker deletes all files of it once they are old enough, and right behind them whole files of queues."""
    root = mixed_store(tmp_path)
    shutil.rmtree(root / "commitlog")
    if empty:
        (root / "commitlog").mkdir()
    found = analyze(Layout.open(root), "5.3.3")
    assert f"before the beginning of the log, 524,288, and {root}/commitlog is " in str(found.refusal)
    assert found.prediction.case.label == "log-directory-missing"
    assert found.refusal is not None and found.refusal.hint is not None
    option = shlex.split(found.refusal.hint)[-2:]
    assert option == ["--set", f"storePathCommitLog={root}/dledger-n0/data"]
    assert analyze(Layout.open(root, BrokerConfig(dict([option[1].split("=")]))), "5.3.3").nothing_to_do
    for path in (*(root / "index").iterdir(), *root.glob("consumequeue/logs/0/*")):
        if path.name.isdigit() and path != max(path.parent.iterdir()):
            path.unlink()  # as a broker does that has run without the older log
    assert analyze(Layout.open(root), "5.3.3").refusal is None


def test_first_files_that_did_not_expire(tmp_path: Path) -> None:
    """The log is what it is without them, and in order; a copy of it that has them is named for them."""
    root = stores.unpack(_THREE, tmp_path)
    shutil.copytree(root / "d1/commitlog", copy := tmp_path / "copy")
    for path in (root / "d2/commitlog").iterdir():
        shutil.copy2(path, copy)
    shutil.rmtree(root / "d1/commitlog")
    layout = _of_directories(root, "d2/commitlog")
    assert analyze(layout, "5.3.3").plan is not None
    said = said_of(root, layout.broker_config)
    assert not said.codes and lacks_first_files(said.verdict), said
    text = "598 queue units name messages before the beginning of the log, 262,144: its first files are gone, before"
    assert text in str(said), said
    wanted = f"cp -a {copy}/{file_name(0)} {root}/d2/commitlog"
    of_copy = RecoveryOptions(Policy.KEEP, replica=str(copy))
    refused = analyze(layout, "5.3.3", options=of_copy).refusal
    assert refused is not None and str(refused.hint).endswith(f"replica's log there first: {wanted}")
    late = time.time() + 10 * 365 * 24 * 3600
    os.utime(root / "checkpoint", (late, late))  # a broker ran later, and may have been killed while it deleted them
    layout = _of_directories(root, "d2/commitlog")
    found = analyze(layout, "5.3.3")
    assert found.plan is not None and any("its first files are lost" in note for note in found.notes)
    with StoreReader(root, layout.broker_config) as opened:
        (told,) = (each for each in verify(opened).findings if each.code == "I-002")
    assert told.severity is Severity.WARNING and "of the log, 262,144: its first files are lost" in told.message
    with_copy = analyze(layout, "5.3.3", options=of_copy)
    assert (
        with_copy.plan is not None and f"before --apply, copy the first files of the log: {wanted}" in with_copy.notes
    )
    both = _of_directories(root, "d1/commitlog", "d2/commitlog")
    unmounted = analyze(both, "5.3.3", options=RecoveryOptions(Policy.KEEP, replica=str(copy))).refusal
    made = f"mkdir -p {root}/d1/commitlog && {wanted.replace(f'{root}/d2', f'{root}/d1')}"
    assert unmounted is not None and str(unmounted.hint).endswith(f"replica's log there: {made}")


def _hint(layout: Layout, replica: Path | str) -> str:
    """What is told of a log that is refused, with a copy that was named."""
    found = analyze(layout, "5.3.3", options=RecoveryOptions(Policy.KEEP, replica=str(replica)))
    assert found.plan is None and found.refusal is not None
    return found.refusal.hint or ""


def _copied(hint: str) -> list[int]:
    """The starts of the files that the command copies."""
    return [int(Path(path).name) for path in shlex.split(hint.partition("cp -a ")[2])[:-1]]


@pytest.mark.parametrize(
    ("lost", "starts"), [(("d1",), [0]), (("d2",), [262_144]), (("d2", "d3"), [262_144]), (("d1", "d3"), [0])]
)
def test_the_files_of_a_replica_that_a_lost_directory_had(
    lost: tuple[str, ...], starts: list[int], tmp_path: Path
) -> None:
    """Not what the replica has behind this log; and no command where it has not all that is lost."""
    root = stores.unpack(_THREE, tmp_path)
    (copy := tmp_path / "copy").mkdir()
    for path in [*root.glob("d?/commitlog/*")]:
        shutil.copy2(path, copy)
    shutil.copy2(copy / file_name(0), copy / file_name(3 * 262_144))
    for name in lost:
        shutil.rmtree(root / name)
    layout = _of_directories(root, "d1/commitlog", "d2/commitlog", "d3/commitlog")
    assert _copied(_hint(layout, copy)) == starts
    (copy / file_name(starts[0])).rename(copy / f"{file_name(starts[0])}.gz")
    told = _hint(layout, copy)
    assert f"does not have the file {file_name(starts[0])}, or has it compressed" in told and "cp -a" not in told


def test_a_replica_in_directories_with_colons_in_their_names(tmp_path: Path) -> None:
    root = stores.unpack(_THREE, tmp_path)
    places = [tmp_path / "r:1", tmp_path / "r2"]
    for number, path in enumerate(sorted(root.glob("d?/commitlog/*"))):
        places[number % 2].mkdir(exist_ok=True)
        shutil.copy2(path, places[number % 2])
    shutil.rmtree(root / "d1")
    layout = _of_directories(root, "d1/commitlog", "d2/commitlog", "d3/commitlog")
    assert f"cp -a {places[0]}/{file_name(0)} " in _hint(layout, ":".join(map(str, places)))
    with pytest.raises(Missing, match=f"no such directory: {tmp_path}/r"):
        _hint(layout, f"{places[0]}:{tmp_path}/gone")


def test_all_gaps_of_a_lost_directory_are_closed(tmp_path: Path) -> None:
    """Its files lie between those of the others: in front of the log, in gaps, and at the end."""
    starts = _fresh_store(tmp_path)
    root, copy = tmp_path / "store", tmp_path / "copy"
    for at, start in enumerate(starts):
        if at % 2 == 0:
            (root / "d2" / file_name(start)).unlink()
    assert _copied(_hint(_of_directories(root, "d1", "d2"), copy)) == starts[::2]


def _fresh_store(tmp_path: Path, old: int = 0) -> list[int]:
    """A store of today but for its first messages, `old` of them, with five files of its log in one directory; a copy
    of the log with one file more. The starts of the five.
    """
    root, now = tmp_path / "store", int(time.time() * 1000)
    root.mkdir()
    with writer(root, config=BrokerConfig({"mappedFileSizeCommitLog": "65536"})) as out:
        for n in range(1500):
            stored = now - 1500 + n - (100 * 3_600_000 if n < old else 0)
            out.append(NewMessage(b"T", b"x" * 100, store_timestamp=stored))
    (root / "commitlog").rename(root / "d2")
    shutil.copytree(root / "d2", copy := tmp_path / "copy")
    starts = sorted(int(path.name) for path in copy.iterdir())
    shutil.copy2(copy / file_name(0), copy / file_name(5 * 65_536))
    return starts


@pytest.mark.parametrize(("old", "first"), [(0, 0), (500, 1)])
def test_first_files_of_a_replica_that_cannot_have_expired(old: int, first: int, tmp_path: Path) -> None:
    """The replica's own records tell how far back; what it has in front of them may have expired here."""
    starts = _fresh_store(tmp_path, old)
    root, copy = tmp_path / "store", tmp_path / "copy"
    assert starts == [0, 65_536, 131_072, 196_608, 262_144]
    for start in starts[:3]:
        (root / "d2" / file_name(start)).unlink()
    layout = _of_directories(root, "d1", "d2")
    assert _copied(_hint(layout, copy)) == starts[first:3]
    (copy / file_name(starts[first])).unlink()
    told = _hint(layout, copy)
    assert f"does not have the file {file_name(starts[first])}" in told and "cp -a" not in told


@pytest.mark.parametrize("name", ["4.9.7-expired", "5.3.3-expired"])
def test_what_a_broker_has_deleted_lies_in_no_other_directory(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    assert analyze(_of_directories(root, "commitlog", "further"), name[:5]).refusal is None


def test_what_cannot_have_expired_yet(tmp_path: Path) -> None:
    """Files of queues and of the index that are not full tell nothing: it is a matter of time."""
    root = stores.unpack(_THREE, tmp_path)
    for name in ("d1", "index", "consumequeue/TopicA"):
        shutil.rmtree(root / name)
    for path in sorted((root / "consumequeue/TopicB/0").iterdir())[1:]:
        path.unlink()
    layout = _of_directories(root, "d1/commitlog", "d2/commitlog", "d3/commitlog")
    assert "before the beginning of the log" in str(analyze(layout, "5.3.3").refusal)
    day_s = 86_400
    now = (root / "checkpoint").stat().st_mtime
    os.utime(root / "checkpoint", (now + 4 * day_s, now + 4 * day_s))
    assert analyze(layout, "5.3.3").refusal is None


def test_first_files_of_a_dledger_log_that_cannot_have_expired(tmp_path: Path) -> None:
    """The first record of a file lies in an entry. A store keeps the times of its files when it is unpacked."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    for path in sorted((root / "dledger-n0" / "data").iterdir())[:2]:
        path.unlink()
    assert "first files are gone, before their time" in run_here(["recover", str(root)]).stdout.partition("\n")[0]


@pytest.mark.parametrize("version", ["4.3", "4.9", "5.1", "5.5"])
def test_what_stands_in_the_way_of_a_new_store(version: str, tmp_path: Path) -> None:
    """No message was ever there: an empty file of the log and a checkpoint of another store are put right."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / file_name(0)).touch()
    shutil.copyfile(stores.unpack("5.3.3-clean", tmp_path) / "checkpoint", root / "checkpoint")
    run_here(["recover", str(root), "--broker-version", version, "--apply", "--yes"])
    assert not list((root / "commitlog").iterdir())
    assert run_here(["verify", str(root), "--broker-version", version]).code == 0
    assert "Nothing to do." in run_here(["recover", str(root), "--broker-version", version]).stdout


@pytest.mark.parametrize("place", ["checkpoint", "index", "abort"])
def test_a_directory_where_a_start_opens_a_file(place: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As after a repair of the file system: 5.3.3 does not start; it is moved away, and can be taken back. Not in
    memory: on a disk a directory is often as long as a checkpoint.
    """
    root = stores.unpack("5.3.3-clean", tmp_path_factory.mktemp("disk"))
    path = max((root / "index").iterdir()) if place == "index" else root / place
    path.unlink(missing_ok=True)
    path.mkdir()
    first = run_here(["inspect", str(root)]).stdout.splitlines()[0]
    assert f"would not start: FileNotFoundException: Is a directory ({path.relative_to(root)})" in first
    assert "I-180" in said_of(root, BrokerConfig()).of_start
    older = said_of(root, BrokerConfig(), "4.9.7")
    assert ("I-180" in older.of_start) is (place == "checkpoint"), "others do not keep 4.9.7 from its start"
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    assert not path.is_dir() and not said_of(root, BrokerConfig()).codes
    assert run_here(["undo", str(root), "--yes"]).code == 0 and path.is_dir()


@pytest.mark.parametrize("place", ["orders", "orders/0"])
def test_a_file_in_place_of_a_queue(place: str, tmp_path: Path) -> None:
    """What a start leaves unread is told, and the command that makes room."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "consumequeue" / place
    shutil.rmtree(path)
    path.touch()
    told = run_here(["verify", str(root)])
    move = f"mv {path} {root}-aside-consumequeue-{place.replace('/', '-')}"
    assert told.code == 1 and move in told.stdout and "messages unread" in told.stdout
    assert move in run_here(["inspect", str(root)]).stdout.splitlines()[0]
    assert run_here(["recover", str(root), "--apply", "--yes"]).code != 0
    path.rename(tmp_path / "aside")
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    assert not said_of(root, BrokerConfig()).codes


def test_empty_queue_files_whose_names_show_another_length(tmp_path: Path) -> None:
    """All of them: what a broker has by default would make files that the one of this store refuses."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    before = {path: path.read_bytes() for path in (root / "consumequeue").glob("*/*/*")}
    for path in before:
        os.truncate(path, 0)
    told = run_here(["recover", str(root), "--apply", "--yes"])
    assert told.code != 0 and "--set mappedFileSizeConsumeQueue=1000" in told.stdout + told.stderr
    assert run_here(["recover", str(root), "--apply", "--yes", "--set", "mappedFileSizeConsumeQueue=1000"]).code == 0
    assert {path: path.read_bytes() for path in (root / "consumequeue").glob("*/*/*")} == before


@pytest.mark.parametrize("place", ["consumequeue", "index", "config", "commitlog"])
def test_a_file_in_place_of_a_part(place: str, tmp_path: Path) -> None:
    """Nothing is said of the store before the file is moved away, with the command that is told."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / place)
    (root / place).touch()
    for command in ("inspect", "verify", "recover"):
        told = run_here([command, str(root)])
        assert told.code == 5
        assert told.stderr.endswith(f"move the file out of the store: mv {root}/{place} {root}-aside-{place}\n")
