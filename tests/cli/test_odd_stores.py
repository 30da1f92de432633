"""Stores that are not one directory of fresh files from 0 on: several directories, expired beginnings,
records of two versions, recycled files, single files somewhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.references import commit_log_of

from ..slices import pick
from ..stores import ALL, NAMES, config, messages, unpack
from .datadriven import run_here

pytestmark = pytest.mark.long

Record = dict[str, Any]
MULTIPLE = tuple(name for name in NAMES if "multipath" in name)
_WORDS = ("expired", "-v2", "long", "ipv6", "ha-", "multipath")
ODD = tuple(name for name in NAMES if any(word in name for word in _WORDS[:3]))
ODD_OF_ALL = [name for name in ALL if any(word in name for word in _WORDS)]


def records(*arguments: str) -> list[Record]:
    """What a command prints."""
    result = run_here([*arguments, "--format", "ndjson"])
    assert result.code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(*arguments: str) -> list[int]:
    return [r["physical_offset"] for r in records(*arguments) if r["type"] == "message"]


def check_answers(name: str, root: Path, *options: str) -> None:
    """All messages, and one from the beginning, the middle and the end by every address."""
    known = list(messages(name))
    dumped = records("dump", str(root), *options)
    found = [r for r in dumped if r["type"] == "message" and "stale" not in r]
    assert [r["physical_offset"] for r in found] == [r["physical_offset"] for r in known]
    assert [r["topic"] for r in found] == [r["topic"] for r in known]
    assert [r["properties"] for r in found] == [r["properties"] for r in known]
    store = str(root)
    for record in (known[0], known[len(known) // 2], known[-1]):
        position = record["physical_offset"]
        assert offsets("get", store, "--at", str(position), *options) == [position]
        assert offsets("get", store, "--message-id", record["offset_msg_id"], *options) == [position]
        assert position in offsets("get", store, "--topic", record["topic"], *options)
        if unique_key := record["properties"].get("UNIQ_KEY"):
            assert position in offsets("get", store, "--unique-key", unique_key, *options)
    middle = known[len(known) // 2]["store_timestamp"]
    expected = [r["physical_offset"] for r in known if r["store_timestamp"] >= middle]
    assert offsets("get", store, "--since", str(middle), *options) == expected
    [described] = records("inspect", store, *options)
    assert described["log_start"] == commit_log_of(Layout.open(root)).min_offset or options
    assert described["log_end"] == known[-1]["physical_offset"] + found[-1]["total_size"]


# -- several directories --------------------------------------------------------------------------


def test_a_log_file_that_was_moved_aside_is_read_but_not_by_a_broker(tmp_path: Path) -> None:
    """A start would cut queues and give numbers again: all say that, and their hint mends it."""
    root = unpack("5.3.3-clean", tmp_path)
    assert run_here(["verify", str(root)]).code == 0
    aside = root / "bad dir"
    aside.mkdir()
    (root / "commitlog" / file_name(262144)).rename(aside / file_name(262144))
    broker_conf = tmp_path / "broker.conf"
    broker_conf.write_text("brokerName=a\n")
    assert len(offsets("dump", str(root))) == len(list(messages("5.3.3-clean")))
    why = f"1 file of this log is in {aside}, which "
    for options in ([], ["--set", "fileReservedTime=48"], ["--broker-config", str(broker_conf)]):
        verified = run_here(["verify", str(root), *options])
        assert verified.code == 1 and "Do not start a broker: " in verified.stdout and why in verified.stdout
        recovered = run_here(["recover", str(root), "--format", "json", *options])
        found = json.loads(recovered.stdout)
        assert (recovered.code, found["plan"], why in found["refusal"]) == (1, None, True)
        assert found["prediction"]["log_end"] <= 262144, "of the files that a broker reads"
        for command in (["recover", "--apply", "--yes"], ["repair", "--all"], ["put"]):
            refused = run_here([command[0], str(root), *(["T", "x"] if command == ["put"] else command[1:]), *options])
            assert (refused.code, why in refused.stderr) == (5, True), (command, refused)
    assert run_here(["recover", str(root), "--set", f"storePathCommitLog={root}/commitlog,{aside}"]).code == 0
    hint = refused.stderr.split("`")[1]
    subprocess.run(hint, shell=True, check=True)
    assert run_here(["verify", str(root), "--broker-config", str(broker_conf)]).code == 0


@pytest.mark.parametrize("command", ["recover", "repair"])
def test_directories_that_nobody_names_are_recovered(command: str, tmp_path: Path) -> None:
    """The start barrier, which lies beside the log, does not hide it."""
    root = unpack("4.9.7-multipath", tmp_path)
    shutil.rmtree(root / "index")
    done = run_here([command, str(root), *(["--all"] if command == "repair" else []), "--apply", "--yes"])
    assert done.code == 0, done.stderr
    assert run_here(["verify", str(root)]).code == 0
    assert run_here(["undo", str(root), "--yes"]).code == 0


@pytest.mark.few(2)
@pytest.mark.parametrize("separator", [",", ":", ";"])
@pytest.mark.parametrize("name", MULTIPLE)
def test_directories_of_the_configuration(name: str, separator: str, tmp_path: Path) -> None:
    """As broker.conf names them, whole paths and paths in the store, in any order."""
    root = unpack(name, tmp_path)
    paths = config(name, root)["storePathCommitLog"].split(",")
    inside = [os.path.relpath(path, root) for path in paths]
    for chosen in (paths, paths[::-1], inside) if separator == "," else (inside,):
        conf = tmp_path / "broker.conf"
        conf.write_text(f"# a broker\nstorePathCommitLog = {separator.join(chosen)}\n")
        check_answers(name, root, "--broker-config", str(conf))


@pytest.mark.parametrize("name", MULTIPLE)
def test_directories_without_a_configuration(name: str, tmp_path: Path) -> None:
    check_answers(name, unpack(name, tmp_path))


@pytest.mark.parametrize("name", MULTIPLE)
def test_directories_on_other_disks(name: str, tmp_path: Path) -> None:
    """Outside the store, some of them read-only: nothing is found without the configuration."""
    root = unpack(name, tmp_path)
    paths = [Path(path) for path in config(name, root)["storePathCommitLog"].split(",")]
    moved = []
    for number, path in enumerate(paths):
        target = tmp_path / f"disk{number}" / "log"
        target.parent.mkdir()
        shutil.move(path, target)
        moved.append(str(target))
    writable, read_only = moved[:-1], moved[-1]
    check_answers(
        name,
        root,
        *("--set", f"storePathCommitLog={','.join([*writable, ''])}"),
        *("--set", f"readOnlyCommitLogStorePaths={read_only}"),
    )
    [described] = records("inspect", str(root), "--set", f"storePathCommitLog={','.join(moved)}")
    assert described["commit_log"]["directories"] == moved
    assert described["commit_log"]["origin"] == "configuration"
    refused = run_here(["dump", str(root)])
    assert (refused.code, refused.stdout) == (5, "")
    assert "no commit log, but full queues" in refused.stderr


@pytest.mark.parametrize("name", MULTIPLE)
def test_a_directory_that_is_missing(name: str, tmp_path: Path) -> None:
    """The messages of the others are there; the hole is told."""
    root = unpack(name, tmp_path)
    paths = config(name, root)["storePathCommitLog"].split(",")
    first = commit_log_of(Layout.open(root)).files[0]
    shutil.rmtree(Path(first.path).parent)
    known = [r["physical_offset"] for r in messages(name)]
    left = [position for position in known if position >= first.end]
    options = ["--set", f"storePathCommitLog={','.join(paths)}"]
    if not left:
        assert run_here(["dump", str(root), *options]).code == 5
        return
    found = [r for r in records("dump", str(root), *options) if r["type"] == "message"]
    assert [r["physical_offset"] for r in found if "stale" not in r] == left


# -- where logs begin, what records look like -----------------------------------------------------


@pytest.mark.parametrize("name", ODD)
def test_stores_that_begin_late_or_have_two_versions(name: str, tmp_path: Path) -> None:
    check_answers(name, unpack(name, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(ODD_OF_ALL, "odd stores"))
def test_all_odd_stores(name: str, tmp_path: Path) -> None:
    check_answers(name, unpack(name, tmp_path))


def test_versions_stand_side_by_side(tmp_path: Path) -> None:
    """A topic of more than 127 bytes takes a record of version 2, the others stay as they are."""
    for name in (name for name in ODD if name.endswith("-v2")):
        found = records("dump", str(unpack(name, tmp_path)))
        versions = {r["magic_code"] for r in found if r["type"] == "message"}
        assert versions == {"daa320a7", "daa320ab"}
        for record in found:
            if record["type"] == "message":
                long = len(record["topic"].encode()) > 127
                assert long == (record["magic_code"] == "daa320ab"), record["topic"]


@pytest.mark.parametrize("name", [name for name in ODD if "expired" in name])
def test_what_has_expired_is_not_there(name: str, tmp_path: Path) -> None:
    """Positions before the log, queue offsets before the queue: no message, and no other one."""
    root = unpack(name, tmp_path)
    start = commit_log_of(Layout.open(root)).min_offset
    assert start > 0
    assert run_here(["get", str(root), "--at", "0"]).code == 1
    assert run_here(["get", str(root), "--at", str(start - 1)]).code == 1
    [described] = records("inspect", str(root))
    late = [q for q in described["queues"] if q["min_offset"] > 0]
    assert late
    for queue in late:
        place = ["--topic", queue["topic"], "--queue", str(queue["queue_id"]), "--offset"]
        assert run_here(["get", str(root), *place, str(queue["min_offset"] - 1)]).code == 1
        if queue["min_offset"] < queue["max_offset"]:
            [first] = records("get", str(root), *place, str(queue["min_offset"]))
            assert first["queue_offset"] == queue["min_offset"]


# -- recycled files -------------------------------------------------------------------------------


def recycle(root: Path) -> int:
    """Put old records behind the log's end: in the last file, and as a file made ahead.

    Returns where the log ends.
    """
    log = commit_log_of(Layout.open(root))
    end = log.end().position
    old = Path(log.files[0].path).read_bytes()
    last = log.queue.file_at(end)
    assert last is not None and last.start > 0
    content = Path(last.path).read_bytes()
    cut = end - last.start
    begin = next(
        r["physical_offset"] for r in messages(root.name) if r["physical_offset"] >= cut
    )  # a record that begins where the new ones end
    Path(last.path).write_bytes(
        content[:cut] + old[begin : begin + len(content) - cut].ljust(len(content) - cut, b"\0")
    )
    (Path(last.path).parent / file_name(last.end)).write_bytes(old)
    return end


@pytest.mark.parametrize("name", ["5.3.3-killed", "4.9.7-killed", "5.1.4-killed"])
def test_old_records_in_recycled_files_are_stale(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(name)
    known = [r["physical_offset"] for r in messages(name)]
    times = [r["store_timestamp"] for r in messages(name)]
    end = recycle(root)
    found = [r for r in records("dump", str(root)) if r["type"] == "message"]
    fresh = [r for r in found if "stale" not in r]
    stale = [r for r in found if "stale" in r]
    assert [r["physical_offset"] for r in fresh] == known
    assert len(stale) > 100
    assert {r["stale"] for r in stale} == {"earlier_life"}
    assert all(r["position"] >= end and r["physical_offset"] != r["position"] for r in stale)
    assert any(r["position"] < records_end(root) for r in stale)
    # no search gives one
    assert offsets("get", str(root), "--since", str(times[0])) == known
    assert offsets("get", str(root), "--where", "@queue_id >= 0") == known
    topic = stale[0]["topic"]
    expected = [r["physical_offset"] for r in messages(name) if r["topic"] == topic]
    assert offsets("get", str(root), "--topic", topic) == expected
    for keyed in [r for r in stale if r["unique_key"]][:3]:
        by_key = records("get", str(root), "--unique-key", keyed["unique_key"])
        assert all(r["physical_offset"] in known and "position" not in r for r in by_key)
    # whoever names its position is told what it is
    asked = tmp_path / "asked"
    asked.write_text("\n".join(str(r["position"]) for r in stale[:5]))
    for one in records("get", str(root), "--addresses", str(asked)):
        assert one["stale"] == "earlier_life"
    [one] = records("get", str(root), "--at", str(stale[0]["position"]))
    assert (one["stale"], one["position"]) == ("earlier_life", stale[0]["position"])
    [described] = records("inspect", str(root))
    assert described["log_end"] == end


def records_end(root: Path) -> int:
    """Where the last file but one ends: behind it lies the file made ahead."""
    return commit_log_of(Layout.open(root)).files[-1].start


def test_an_id_of_an_old_record_leads_nowhere(store: Callable[[str], Path]) -> None:
    """The id names the position: the record there has another id."""
    root = store("5.3.3-killed")
    recycle(root)
    stale = next(r for r in records("dump", str(root)) if r.get("stale"))
    at = stale["position"]
    wrong = stale["message_id"][:-16] + f"{at:016X}"
    result = run_here(["get", str(root), "--message-id", wrong])
    assert result.code == 1
    assert f"the record at {at} has the id {stale['message_id']}" in result.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["behind the end", "next file"])
def test_nothing_is_put_before_old_records(where: str, store: Callable[[str], Path]) -> None:
    """A broker takes them for new ones. What recover plans leaves none of them in its way."""
    root = store("5.3.3-clean")
    known = [r["physical_offset"] for r in messages(root.name)]
    log = commit_log_of(Layout.open(root))
    end = log.end().position
    old = Path(log.files[0].path).read_bytes()
    last = log.files[-1]
    if where == "next file":
        (root / "commitlog" / file_name(last.end)).write_bytes(old)
    else:
        content = Path(last.path).read_bytes()[: end - last.start]
        Path(last.path).write_bytes((content + old)[: last.size])
    refused = run_here(["put", str(root), "orders", "new"])
    assert refused.code == 3
    assert "old records of a recycled file behind the log's end" in refused.stderr
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    [stored] = records("put", str(root), "orders", "new")
    assert stored["physical_offset"] == end
    assert offsets("dump", str(root)) == [*known, end]


# -- single files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["5.3.3-expired", "5.3.3-v2", "5.3.3-clean", "4.3.1-clean"])
def test_one_file_anywhere(name: str, tmp_path: Path) -> None:
    """A copy under another name is recognised, and its positions are those of the store."""
    root = unpack(name, tmp_path)
    whole = records("dump", str(root))
    log = [*commit_log_of(Layout.open(root)).files][-2:]
    for number, file in enumerate(log):
        copy = tmp_path / f"segment-{number}.bin"
        shutil.copy(file.path, copy)
        [described] = records("inspect", str(copy))
        inside = [r for r in whole if file.start <= r["physical_offset"] < file.end]
        if not inside:
            continue
        assert (described["kind"], described["log_start"]) == ("commit-log", file.start)
        assert described["messages"] == sum(r["type"] == "message" for r in inside)
        assert records("dump", str(copy)) == inside
    queue = max((root / "consumequeue").glob("*/*/0*"), key=lambda p: p.stat().st_mtime)
    copy = tmp_path / "a queue"
    shutil.copy(queue, copy)
    units = records("dump", str(copy))
    assert units
    place = {"topic": queue.parts[-3], "queue_id": int(queue.parts[-2])}
    first = int(queue.name) // 20
    moved = [r | place | {"queue_offset": r["queue_offset"] + first} for r in units]
    in_place = records("dump", str(queue))
    assert moved == in_place
    index = next(iter(sorted((root / "index").iterdir())))
    copy = tmp_path / "an index"
    shutil.copy(index, copy)
    assert [r | {"file": index.name} for r in records("dump", str(copy))] == records("dump", str(index))
    for kind in ("a queue", "an index"):
        [described] = records("inspect", str(tmp_path / kind))
        assert described["kind"] == {"a queue": "consume-queue", "an index": "index-file"}[kind]
