"""`mqstore recover`: exit codes, JSON, and what it does to a store."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.cli.record_types import schema_of
from mqstore.store import library
from mqstore.store.disk.files import Files
from mqstore.store.disk.lock import StoreLock
from mqstore.store.queues.units import UNIT_DTYPE

from .. import recovery_cases, stores
from ..store.put.faults import Killed, KilledFiles
from .damaged_case import SIZES, of_case
from .datadriven import run_here
from .json_schema import errors

pytestmark = pytest.mark.long

LOSSES = (("lost", "broker"), ("invisible", "broker"), ("lost", "plan"))


def answer(*arguments: str, code: int) -> dict[str, Any]:
    """The JSON of `recover`, checked against its schema."""
    result = run_here(["recover", *arguments, "--format", "json"])
    assert result.code == code, result.stderr + result.stdout
    record: dict[str, Any] = json.loads(result.stdout)
    assert list(errors(schema_of("recovery"), record)) == []
    return record


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("checkpoint_zero", 1),  # the broker starts, and looks in the wrong place after a crash
        ("abort_toggled", 3),
        ("torn_body", 1),  # a queue knows the record: it was a message
        ("cq_all_missing", 1),
        ("body_crc_middle", 1),
        ("cq_queue_missing", 1),
        ("short_last_half", 1),
        ("files_missing_all", 1),
    ],
)
def test_the_exit_code_without_apply(kind: str, code: int, tmp_path: Path) -> None:
    root, options = of_case(kind, tmp_path)
    record = answer(str(root), *options, code=code)
    worst = record["prediction"]
    harm = sum(record["summary"][f"{what}_by_{who}"] or 0 for what, who in LOSSES)
    status = {0: "clean", 1: "damaged", 3: "unclean"}[code]
    assert record["verdict"]["status"] == status
    assert code == 1 or not (harm or worst["outcome"] != "starts" or not record["plan"])
    assert sum(row["messages"] for row in worst["lost"]) == record["summary"]["lost_by_broker"]


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "code"), [("abort_toggled", 0), ("cq_queue_missing", 0), ("body_crc_middle", 1)])
def test_the_exit_code_of_apply(kind: str, code: int, tmp_path: Path) -> None:
    root, options = of_case(kind, tmp_path)
    record = answer(str(root), *options, "--apply", "--yes", code=code)
    assert record["applied"]["session"] in {p.name for p in (root / ".mqstore").iterdir()}
    assert not (root / "abort").exists()
    assert answer(str(root), *options, code=0)["plan"]["edits"] == []
    again = answer(str(root), *options, "--apply", "--yes", code=0)
    assert "applied" not in again


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["4.9.7-killed-hole", "5.3.3-timer-killed"])
def test_verify_agrees_with_a_recovery(name: str, tmp_path: Path) -> None:
    """What a start puts right by itself is no reason not to start."""
    root = stores.unpack(name, tmp_path)
    assert "A broker can be started." in run_here(["recover", str(root), "--apply", "-y"]).stdout
    seen = run_here(["verify", str(root), "--format", "json"])
    wrong = [row for row in json.loads(seen.stdout) if row.get("severity") in ("error", "fatal")]
    assert (seen.code, wrong) == (0, [])


def test_what_was_lost_before_is_not_laid_on_the_plan(tmp_path: Path) -> None:
    """No start loses them, and nobody knows their times."""
    page = run_here(["recover", str(stores.unpack("4.9.7-killed-hole", tmp_path))]).stdout
    head, _, rest = page.partition("Messages whose records are damaged or missing:\n")
    assert "     lost  messages of topic\n" in head and "the plan  messages" not in head
    assert "gives up" not in page
    assert re.search(r"\d{4}-\d\d-\d\d", rest.partition("The single messages")[0]) is None


def test_apply_says_what_the_next_start_does(tmp_path: Path) -> None:
    """This broker would cut at a record without its checksum: the plan gives it back its name."""
    case = recovery_cases.case_of("flip_crcName_last_force")
    root = recovery_cases.damaged(case, tmp_path)
    config = recovery_cases.config_of(case, root)
    options = [f"--set={name}={value}" for name, value in config.items()]
    options += ["--broker-version", case["version"]]
    assert answer(str(root), *options, code=1)["summary"]["lost_by_broker"] > 0
    applied = answer(str(root), *options, "--apply", "--yes", code=0)["applied"]
    assert (applied["outcome"], applied["lost"], applied["edits_left"]) == ("starts", 0, 0)
    assert answer(str(root), *options, code=0)["summary"]["lost_by_broker"] == 0


def test_the_run_that_goes_on_names_what_was_lost(tmp_path: Path) -> None:
    """Cut off once the log is mended: the store as it is shows no loss any more."""
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    with pytest.raises(Killed):
        library.apply(library.recovery(root), KilledFiles(150))
    assert answer(str(root), code=1)["summary"]["lost_by_plan"] == 0
    copies = {name: shutil.copytree(root, tmp_path / name) for name in ("repair", "offsets")}
    applied = answer(str(root), "--apply", "--yes", code=1)["applied"]
    assert (applied["resumed"], applied["lost_by_plan"], applied["edits_left"]) == (True, 11, 0)
    repaired = run_here(["repair", str(copies["repair"]), "--queues", "--apply", "--yes", "--format", "json"])
    assert (repaired.code, json.loads(repaired.stdout)["applied"]["lost_by_plan"]) == (1, 11)
    moved = run_here(["offsets", str(copies["offsets"]), "--reset", "orders@group-a_tags=earliest", "--apply", "--yes"])
    assert moved.code == 1 and "finished now, 11 messages lost" in moved.stderr


@pytest.mark.parametrize("kind", ["files_missing_all"])
def test_what_is_refused_stays_as_it_is(kind: str, tmp_path: Path) -> None:
    root, options = of_case(kind, tmp_path)
    before = sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*"))
    result = run_here(["recover", str(root), *options, "--apply", "--yes"])
    assert result.code == 5
    assert len(result.stderr.splitlines()) == 1
    assert sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*")) == before


def test_a_store_in_use(tmp_path: Path) -> None:
    root, options = of_case("abort_toggled", tmp_path)
    with StoreLock.take(root / "lock", Files()):
        result = run_here(["recover", str(root), *options, "--apply", "--yes"])
    assert result.code == 4
    assert (root / "abort").exists()
    assert not (root / ".mqstore").exists()


def test_files_of_another_size_than_the_configuration_says(tmp_path: Path) -> None:
    root, options = of_case("abort_toggled", tmp_path)
    size = "--set=mappedFileSizeConsumeQueue=4000"
    result = run_here(["recover", str(root), *options, size, "--apply", "--yes"])
    assert result.code == 5
    assert "mappedFileSizeConsumeQueue" in result.stderr


@pytest.mark.parametrize("name", [n for n in ("4.3.1-killed", "5.5.0-killed-bit") if n in stores.NAMES])
def test_several_generations_fit(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    result = run_here(["recover", str(root), *_sizes(name, root), "--format", "json"])
    record = json.loads(result.stdout)
    assert list(errors(schema_of("recovery"), record)) == []
    assert record["prediction"] == record["candidates"][0]
    versions = {candidate["broker_version"] for candidate in record["candidates"]}
    assert str(stores.truth(name)["broker_version"])[:3] in versions
    text = run_here(["recover", str(root), *_sizes(name, root)]).stdout
    assert "it may be" in text


def _sizes(name: str, root: Path) -> list[str]:
    return [f"--set={setting}" for setting in stores.config_set(name, root)]


def test_another_version_takes_the_nearest_profile(tmp_path: Path) -> None:
    root, _ = of_case("abort_toggled", tmp_path)
    result = run_here(["recover", str(root), *SIZES, "--broker-version", "4.7.1"])
    assert "no profile of 4.7.1" in result.stderr


def test_groups_that_had_not_consumed_what_is_lost(tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    lost = answer(str(root), *options, code=1)["prediction"]["lost"]
    row = max(lost, key=lambda share: share["messages"])
    (root / "config").mkdir(exist_ok=True)
    progress = f'{{"offsetTable":{{"{row["topic"]}@readers":{{{row["queue_id"]}:0}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(progress)
    options = [*options, "--policy", "broker"]
    record = answer(str(root), *options, code=1)
    told = {"group": "readers", "topic": row["topic"], "unconsumed_lost": row["messages"]}
    assert record["prediction"]["groups"] == [told]
    told["unconsumed_lost"] += 1  # the damaged message, which the start does not lose: nobody can read it before
    assert record["plan"]["groups"] == [told]


def test_a_lost_tag(tmp_path: Path) -> None:
    """Tombstones carry it, and the units of their queues are those of the tag."""
    root, options = of_case("body_crc_middle", tmp_path)
    (lost,) = answer(str(root), *options, code=1)["plan"]["lost"]
    tagged = [*options, "--lost-tag", "gone"]
    answer(str(root), *tagged, "--apply", "--yes", code=1)
    found = run_here(["get", str(root), *SIZES, "--tag", "gone", "--format", "json"])
    (tombstone,) = json.loads(found.stdout)
    assert tombstone["tombstone"] is True
    assert (tombstone["topic"], tombstone["queue_id"]) == (lost["topic"], lost["queue_id"])
    again = answer(str(root), *tagged, code=0)
    assert again["summary"]["tombstones"] == 1 and again["plan"]["edits"] == []


@pytest.mark.few(1)
@pytest.mark.parametrize("policy", ["keep", "broker"])
def test_what_the_next_plan_says(policy: str, tmp_path: Path) -> None:
    """Nothing is left to do, under either policy."""
    root, options = of_case("body_crc_middle", tmp_path)
    answer(str(root), *options, "--policy", policy, "--apply", "--yes", code=1)
    for then in ("keep", "broker"):
        assert answer(str(root), *options, "--policy", then, code=0)["plan"]["edits"] == []


@pytest.mark.few(3)
@pytest.mark.parametrize("offset", ["1e999", "NaN", "9" * 5000, "-1", '"x"', "[]"])
def test_progress_that_no_broker_writes(offset: str, tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    (root / "config").mkdir(exist_ok=True)
    progress = f'{{"offsetTable":{{"TopicA@g":{{"0":{offset}}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(progress)
    answer(str(root), *options, code=1)


@pytest.mark.parametrize("tag", ["a\x01b", "a\nb", "a || b", "*", "a b", "\udcff", "x" * 31])
def test_a_tag_that_is_none(tag: str, tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    result = run_here(["recover", str(root), *options, "--lost-tag", tag])
    assert result.code == 2
    assert "--lost-tag" in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--lost-tag", "--replica"])
def test_what_has_no_effect_under_the_policy_of_a_broker(option: str, tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    result = run_here(["recover", str(root), *options, "--policy", "broker", option, "x"])
    assert (result.code, result.stdout) == (2, "")
    limit = {"--lost-tag": "only with --policy keep", "--replica": "with --policy broker only for a slave"}[option]
    assert f"{option} works {limit}" in result.stderr


def test_two_replicas_are_refused(tmp_path: Path) -> None:
    """One of them would be left out in silence."""
    result = run_here(["recover", str(tmp_path), "--replica", "a", "--replica", "b"])
    assert (result.code, result.stdout) == (2, "")
    assert "only one --replica at a time: carry out the recovery once with each" in result.stderr


@pytest.mark.parametrize("option", ["enableDLegerCommitLog=false", "dLegerSelfId=n9"])
def test_a_broker_that_looks_into_another_log(option: str, tmp_path: Path) -> None:
    """The queues are full, and what the configuration names is not there; the log of DLedger is."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    record = answer(str(root), "--set", option, code=1)
    assert record["verdict"]["status"] == "damaged" and record["prediction"]["case"] == "no-commit-log"
    told = record["verdict"]["sentence"]
    assert f"leaves out the DLedger log: {root}/dledger-n0/data;" in told and "--force-empty-log" not in told
    plain = shlex.split(told.rpartition("make a plain store: mqstore ")[2])
    assert option not in plain and run_here(plain).code == 0
    assert run_here(["verify", f"{root}-plain"]).code == 0


def test_a_directory_of_dledger_that_is_not_there(tmp_path: Path) -> None:
    """It is the one that is named, not that of a plain log, which the broker would not read."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    shutil.rmtree(root / "dledger-n0")
    options = ["--set", "enableDLegerCommitLog=true", "--set", "dLegerSelfId=n0"]
    told = answer(str(root), *options, code=1)["verdict"]["sentence"]
    assert f"not mounted?: {root}/dledger-n0/data;" in told and f"mkdir -p {root}/dledger-n0/data &&" in told


def test_an_empty_log_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    root, options = of_case("files_missing_all", tmp_path)
    refused = run_here(["recover", str(root), *options, "--apply", "--yes"])
    again = shlex.split(refused.stderr.rpartition("gone for good: mqstore ")[2])
    assert refused.code == 5 and again[:3] == ["recover", str(root), "--force-empty-log"]
    assert again[3:5] == options[-2:] and [f"--set={each}" for each in again[6::2]] == options[:-2]
    shown = run_here(again)
    assert "--apply --force-empty-log --broker-version" in shown.stdout
    done = run_here(["recover", str(root), *options, "--force-empty-log", "--apply", "--yes"])
    assert done.code == 1 and done.stdout.startswith("Done: recovered")
    assert run_here(["recover", str(root), *options]).code == 0
    assert run_here(["undo", str(root), "--yes"]).code == 0
    assert run_here(["recover", str(root), *options]).code == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("part", ["abort", "consumequeue/TopicA/0/", "commitlog/"])
def test_what_is_no_file_is_told_before_anything_is_offered(part: str, tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    path = root / part
    path = max(path.iterdir()) if path.is_dir() else path
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for more in ([], ["--apply", "--yes"]):
        found = run_here(["recover", str(root), *options, *more])
        assert "neither file nor directory" in found.stdout + found.stderr
        assert found.code == (5 if more else 1)
    assert not (root / ".mqstore").exists()


def test_a_directory_in_the_place_of_the_lock(tmp_path: Path) -> None:
    """No broker starts: the rest of the store is described, and the plan waits for the directory to go."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "lock").unlink()
    (root / "lock").mkdir()
    move = f"mv {root}/lock {root}-aside-lock"
    for command, code in (("inspect", 0), ("verify", 1), ("recover", 1)):
        found = run_here([command, str(root)])
        assert found.code == code, (command, found)
        assert "Do not start a broker" in found.stdout and move in found.stdout
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 5


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
def test_a_directory_in_the_place_of_a_configuration_file(name: str, tmp_path: Path) -> None:
    root, options = of_case("body_crc_middle", tmp_path)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / name).unlink(missing_ok=True)
    (root / "config" / name).mkdir()
    assert run_here(["recover", str(root), *options]).code == 1
    assert run_here(["recover", str(root), *options, "--apply", "--yes"]).code == 1
    left = run_here(["recover", str(root), *options])
    assert (left.code, "would forget" in left.stdout) == (1, True)  # nothing moves it away


@pytest.mark.few(1)
@pytest.mark.parametrize(("command", "passes"), [("recover", 1), ("repair", 2)])
def test_the_rate_limits_reading(command: str, passes: int, tmp_path: Path, waited: list[float]) -> None:
    """Where another process verifies beside, each has its share."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    plain = run_here([command, str(root), "--quiet"])
    assert not waited
    assert run_here([command, str(root), "--quiet", "--rate", "1K"]) == plain
    shown = json.loads(run_here(["inspect", str(root), "--format", "json"]).stdout)
    assert sum(waited) > 0.9 * shown["log_end"] * passes / 1024


def test_a_healthy_store_is_nothing_to_recover(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    result = run_here(["recover", str(root), "--apply", "--yes"])
    assert (result.code, "Nothing to do" in result.stdout) == (0, True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_messages_of_a_missing_last_file_are_lost(tmp_path: Path) -> None:
    """Queues name them; nothing is put in the place of the file."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    max((root / "commitlog").iterdir()).unlink()
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-clean", root).items()]
    lines = run_here(["recover", str(root), *settings]).stdout.splitlines()
    assert lines[0].endswith("` loses 132 messages."), lines[0]
    assert any(line.startswith("  case       last-file-missing: ") for line in lines), lines
    record = answer(str(root), *settings, "--apply", "--yes", code=1)
    assert (record["summary"]["lost_by_plan"], len(record["plan"]["lost_messages"])) == (132, 132)
    assert answer(str(root), *settings, code=0)["summary"]["lost_by_plan"] == 0


@pytest.mark.parametrize("policy", ["keep", "broker"])
def test_messages_of_a_missing_file_in_front_of_an_empty_one_are_lost(policy: str, tmp_path: Path) -> None:
    """Under either policy: a start loses none of them, as nobody can read them before."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    last = max((root / "commitlog").iterdir())
    last.with_name(f"{int(last.name) + 262_144:020}").write_bytes(bytes(262_144))
    last.unlink()
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-clean", root).items()]
    options = [*settings, "--broker-version=5.1", "--policy", policy]
    record = answer(str(root), *options, "--apply", "--yes", code=1)
    assert (record["summary"]["lost_by_plan"], len(record["plan"]["lost_messages"])) == (132, 132)
    verified = run_here(["verify", str(root), *settings, "--broker-version=5.1"])
    left = ("I-186" in verified.stdout, verified.code, answer(str(root), *options, code=verified.code)["plan"]["edits"])
    assert left == (policy == "broker", int(policy == "broker"), [])


@pytest.mark.parametrize(("begin", "lost"), [(131_072, 154), (204_558, 132)])
def test_a_missing_last_file_behind_a_torn_end(tmp_path: Path, begin: int, lost: int) -> None:
    """The end of the file in front is gone too, its last records or the BLANK alone."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    *_, before, last = sorted((root / "commitlog").iterdir())
    last.unlink()
    before.write_bytes(before.read_bytes()[:begin].ljust(262_144, b"\0"))
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-clean", root).items()]
    record = answer(str(root), *settings, code=1)
    assert (record["summary"]["lost_by_plan"], record["plan"]["case"]) == (lost, "last-file-missing")


def test_a_missing_last_file_that_a_replica_has_is_no_loss(tmp_path: Path) -> None:
    root, replica = (stores.unpack("5.3.3-clean", tmp_path / name) for name in ("store", "replica"))
    max((root / "commitlog").iterdir()).unlink()
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-clean", root).items()]
    first = run_here(["recover", str(root), *settings, "--replica", str(replica)]).stdout.partition("\n")[0]
    assert first.endswith("` loses no message."), first
    record = answer(str(root), *settings, "--replica", str(replica), "--apply", "--yes", code=0)
    assert record["summary"]["lost_by_plan"] == 0
    assert max((root / "commitlog").iterdir()).read_bytes() == max((replica / "commitlog").iterdir()).read_bytes()


def test_units_of_a_missing_file_that_stand_alone_are_no_loss(tmp_path: Path) -> None:
    """A cut of the log leaves such units: their messages went with it, long ago."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    max((root / "commitlog").iterdir()).unlink()
    for queue in sorted((root / "consumequeue").glob("*/*/*")):
        units = np.frombuffer(queue.read_bytes(), UNIT_DTYPE).copy()
        units[units["physical_offset"] == 262_144] = 0
        queue.write_bytes(units.tobytes())
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-clean", root).items()]
    assert answer(str(root), *settings, code=1)["summary"]["lost_by_plan"] == 0


def test_dead_units_of_a_cut_prove_no_missing_file(tmp_path: Path) -> None:
    """The log ends in the middle of its last file: what lay behind was cut off, in the next file, too."""
    root = stores.unpack("5.3.3-killed-bit-restarted", tmp_path)
    path = root / "consumequeue/T%a|b_c-D/0/00000000000000001000"
    units = np.frombuffer(path.read_bytes(), UNIT_DTYPE).copy()
    last = int(np.flatnonzero(units["size"] > 0)[-1])
    units["physical_offset"][last] = 524_288
    path.write_bytes(units.tobytes())
    settings = [f"--set={name}={value}" for name, value in stores.config(root.name, root).items()]
    record = answer(str(root), *settings, code=1)  # for units that a start keeps
    assert (record["summary"]["lost_by_plan"], record["plan"]["case"]) == (0, "stale-records")


def test_a_record_that_is_put_right_at_the_end_is_not_behind_it(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed", tmp_path)
    path = max((root / "commitlog").iterdir())
    whole = path.read_bytes()
    at = 395_813 - int(path.name) + 87
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    settings = [f"--set={name}={value}" for name, value in stores.config("5.3.3-killed", root).items()]
    first = run_here(["recover", str(root), *settings]).stdout.partition("\n")[0]
    assert first.endswith("` loses no message."), first


def test_what_only_the_index_names_is_lost(tmp_path: Path) -> None:
    """Verdict and exit code say so."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    log = min((root / "commitlog").iterdir())
    whole = log.read_bytes()
    log.write_bytes(whole[:155_342].ljust(len(whole), b"\0"))
    record = answer(str(root), "--apply", "--yes", code=1)
    assert (record["summary"]["lost_by_plan"], record["plan"]["lost"]) == (157, [])
    assert answer(str(root), code=0)["summary"]["lost_by_plan"] == 0
