"""`mqstore salvage`: what is damaged, and what of it a new store takes."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT
from mqstore.formats.derive import dtype_of
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.system_topics import OP_TOPIC, TIMER_TOPIC
from mqstore.store.disk.file_queue import file_name

from .. import stores
from .datadriven import run_here
from .printed import printed


def test_a_damaged_body_is_told_and_ends_with_1(tmp_path: Path) -> None:
    root = stores.unpack("4.9.7-killed-bit", tmp_path)
    done = run_here(["salvage", str(root / "commitlog"), "--dry-run"])
    first, *lines = done.stdout.splitlines()
    count = len(list(stores.messages("4.9.7-killed-bit")))
    assert done.code == 1 and first.startswith(f"{count} records in ") and first.endswith(f": {count - 1} whole")
    assert "          1 with a damaged body" in lines
    told = json.loads(run_here(["salvage", str(root), "--dry-run", "--format", "json"]).stdout)
    assert (told["whole"], told["structure"], told["to"]) == (count - 1, 1, None)


def test_without_a_record_for_a_log_all_lies_in_conflicts(tmp_path: Path) -> None:
    """The one record of the image has a damaged body."""
    log = stores.unpack("5.3.3-clean", tmp_path) / "commitlog" / file_name(0)
    record = MESSAGE.parse(log.read_bytes())
    (tmp_path / "image").write_bytes(MESSAGE.build({**record, "body_crc": record.body_crc ^ 1}))
    done = run_here(["salvage", str(tmp_path / "image"), "--to", str(tmp_path / "new")])
    assert done.code == 1 and "          1 outside the log, in conflicts" in done.stdout.splitlines()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["conflicts", "manifest.ndjson"]


def test_a_queue_offset_that_no_record_has_is_told_with_what_consumers_get(tmp_path: Path) -> None:
    """A wrong topic in the first record: nothing in an image tells what it was."""
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    log = root / "commitlog" / file_name(0)
    record = MESSAGE.parse(log.read_bytes())
    made = MESSAGE.build({**record, "topic": b"X" + record.topic[1:]})
    with log.open("r+b") as file:
        file.write(made)
    done = run_here(["salvage", str(root / "commitlog"), "--to", str(new)])
    assert done.code == 1
    assert "  1 queue offset is missing" in done.stdout and "consumers get a neighbouring message twice" in done.stdout
    queue = new / "consumequeue" / record.topic.decode() / str(record.queue_id)
    units = np.fromfile(queue / file_name(0), dtype_of(UNIT), 2)
    assert units[0] == units[1]


@pytest.mark.parametrize("topic", ["orders", "nothing of it"])
def test_a_compact_store_has_the_topic_that_is_asked_for(topic: str, tmp_path: Path) -> None:
    """The rest is counted; the page names it."""
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    topics = Counter(message["topic"] for message in stores.messages("5.3.3-clean"))
    words = ["--to", str(new), "--layout", "compact", "--topic", topic]
    sizes = ["--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=4000"]
    done = run_here(["salvage", str(root / "commitlog"), *words, *sizes])
    asked = topics[topic]
    assert f"  {asked} messages stored" in done.stdout.splitlines()
    assert f"  {topics.total() - asked} not selected" in done.stdout.splitlines()
    found = printed("dump", new) if asked else []
    assert [row["topic"] for row in found if row["type"] == "message"] == [topic] * asked


def test_op_records_name_their_half_messages_in_a_compact_store(tmp_path: Path) -> None:
    """Those that begin before the first half message that comes are left out, and the manifest says so."""
    root, new = stores.unpack("4.9.7-clean", tmp_path), tmp_path / "new"
    states = {row["unique_key"]: row["state"] for row in printed("inspect", root, "--transactions")[0]["transactions"]}
    halves = [row for row in printed("dump", root) if row.get("topic") == "RMQ_SYS_TRANS_HALF_TOPIC"]
    since = halves[3]["store_timestamp"]
    sizes = ["--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=4000"]
    words = ["salvage", str(root / "commitlog"), "--to", str(new), "--layout", "compact", "--since", since, *sizes]
    done = run_here([*words, "--format", "json"])
    told = json.loads(done.stdout)
    assert told["op_records"] > 0
    (found,) = printed("inspect", new, "--transactions")
    come = {row["unique_key"] for row in halves if row["store_timestamp"] >= since}
    assert {row["unique_key"]: row["state"] for row in found["transactions"]} == {key: states[key] for key in come}
    lines = [json.loads(line) for line in (new / "manifest.ndjson").read_text().splitlines()]
    assert sum(line["fate"] == "left_out" for line in lines) == told["left_out"] > told["op_records"]


@pytest.mark.parametrize("layout", ["original", "compact"])
def test_the_configuration_of_the_old_store_names_no_place_of_the_new_one(layout: str, tmp_path: Path) -> None:
    """broker.conf has storePathCommitLog: nothing there is read, or written, for the new store."""
    root, new = stores.unpack("5.3.3-killed-page", tmp_path), tmp_path / "new"
    log = root / "commitlog"
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    options = [word for text in stores.config_set("5.3.3-killed-page", root) for word in ("--set", text)]
    assert f"storePathCommitLog={log}" in options
    done = run_here(["salvage", str(log), "--to", str(new), "--layout", layout, *options])
    assert done.code == 1 and "1 cut off" in done.stdout and "not complete" not in done.stdout, done
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
    assert run_here(["verify", str(new), "--quick"]).code == 0


@pytest.mark.parametrize("layout", ["original", "compact"])
def test_epochs_are_not_restored(layout: str, tmp_path: Path) -> None:
    """They are still right where each record has its old position: without them a slave compares nothing."""
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    (root / "epochFileCheckpoint.bak").write_text("1\n0\n1-0\n")
    done = run_here(["salvage", str(root / "commitlog"), "--to", str(new), "--layout", layout])
    assert ("epochFileCheckpoint is not restored: copy" in done.stderr) is (layout == "original")


def test_what_a_full_disk_has_moved_behind_links_is_salvaged(tmp_path: Path) -> None:
    """Files and directories, each once, whatever leads to them; a link to nothing is told."""
    root, other = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "other"
    log, later = root / "commitlog", tmp_path / "disk9" / file_name(0)
    last = max(log.iterdir())
    log.rename(other)
    log.symlink_to(other)
    last = (other / last.name).rename(tmp_path / "moved")
    (other / "000").symlink_to(last)
    (other / "001").hardlink_to(last)
    (other / "loop").symlink_to(root)
    (other / "self").symlink_to("self")
    (other / "gone").symlink_to(later)
    done = run_here(["salvage", str(root), str(other), str(last), "--dry-run", "--format", "json"])
    told = json.loads(done.stdout)
    count = len(list(stores.messages("5.3.3-clean")))
    assert (told["records"], told["whole"], told["duplicates"]) == (count, count, 0)
    named = [f"mqstore: left out, a link that leads to no file or directory: {other / n}" for n in ("gone", "self")]
    assert done.stderr.splitlines() == named


@pytest.mark.parametrize("layout", ["original", "compact"])
def test_open_transactions_that_only_a_rocksdb_names(layout: str, tmp_path: Path) -> None:
    """No image brings it: a broker asks for none of them, until it is put beside the log again."""
    name, new = "5.5.1-rocks-trans-open", tmp_path / "new"
    root = stores.unpack(name, tmp_path)
    waits = sum(row.get("transaction_state") == "UNKNOW" for row in stores.sent(name))
    sizes = ["--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=4000"]
    told = f"  {waits} open transactions are unknown to brokers, which find them in rocksdbstore: it is not restored"
    for to in (["--dry-run"], ["--to", str(new)]):
        done = run_here(["salvage", str(root / "commitlog"), *to, "--layout", layout, *sizes])
        assert done.code == 1 and told in done.stdout.splitlines()
    (found,) = printed("inspect", new, "--transactions")
    assert (found["open"], found["unknown"]) == (0, waits)


@pytest.mark.parametrize("layout", ["original", "compact"])
@pytest.mark.parametrize("name", ["5.3.3-timer-clean", "5.5.0-timer-killed"])
def test_a_new_store_is_recovered_until_verify_calls_it_safe(name: str, layout: str, tmp_path: Path) -> None:
    """Entries of timers are made of queues, which the first plan makes. No session is there to take back."""
    root, new = stores.unpack(name, tmp_path), tmp_path / "new"
    told = [text for text in stores.config_set(name, root) if not text.startswith("storePath")]
    options = [*(word for text in told for word in ("--set", text)), "--broker-version", name.partition("-")[0]]
    done = run_here(["salvage", str(root / "commitlog"), "--to", str(new), "--layout", layout, *options])
    assert done.code == 0 and "incomplete" not in done.stdout, done
    assert run_here(["verify", str(new), *options]).code == 0
    assert "Nothing to do" in run_here(["recover", str(new), *options]).stdout
    assert not (new / ".mqstore").exists()


@pytest.mark.parametrize("name", ["5.1.4-timer-killed", "5.3.3-timer-killed"])
def test_a_timer_that_is_newer_than_the_log_is_set_back(name: str, tmp_path: Path) -> None:
    """As of a running broker, whose log is read first: the timer then has entries of later messages."""
    root, new = stores.unpack(name, tmp_path), tmp_path / "new"
    places = [row["physical_offset"] for row in printed("dump", root) if row.get("topic") == TIMER_TOPIC]
    log = root / "commitlog" / file_name(0)
    with log.open("r+b") as file:
        file.seek(places[100])
        file.write(bytes(log.stat().st_size - places[100]))
    options = [word for text in stores.config_set(name, root) for word in ("--set", text) if "storePath" not in text]
    done = run_here(["salvage", str(root), "--to", str(new), *options])
    assert done.code == 0 and "incomplete" not in done.stdout, done
    assert run_here(["verify", str(new), *options]).code == 0
    assert printed("inspect", new, "--timers")[0]["queue_offset"] == 100
    for part in (new / "timerlog").iterdir():  # cut off, and as long as before
        assert part.stat().st_size == (root / "timerlog" / part.name).stat().st_size


def test_logs_of_two_brokers_are_salvaged_one_by_one_and_appended(tmp_path: Path) -> None:
    """As the help says. All messages are there, in the order of each log; each transaction has its state.

    Named together, the new log is a mixture, and the page says how to avoid that.
    """
    names = ["4.9.7-clean", "4.9.7-killed"]
    roots = [stores.unpack(name, tmp_path) for name in names]
    logs, made = [root / "commitlog" for root in roots], [tmp_path / "one", tmp_path / "two"]
    hint = "If the images are of several brokers, the log mixes them: salvage each broker by itself (see --help)"
    together = run_here(["salvage", *map(str, logs), "--dry-run"])
    assert together.code == 1 and f"  {hint}" in together.stdout.splitlines()
    sizes = ["--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=4000"]
    for log, new in zip(logs, made, strict=True):
        assert run_here(["salvage", str(log), "--to", str(new), "--layout", "compact", *sizes]).code == 0
    states = [printed("inspect", each, "--transactions")[0] for each in made]
    lines = tmp_path / "lines"
    assert run_here(["dump", str(made[1]), "--format", "ndjson", "-o", str(lines)]).code == 0
    words = ["put", str(made[0]), "--from", str(lines), "--keep-times", "--no-answers"]
    assert run_here([*words, *sizes]).code == 0
    found = [row for row in printed("dump", made[0]) if row["type"] == "message"]
    expected = [message for name in names for message in stores.messages(name)]
    for field in ("topic", "queue_id", "properties", "born_timestamp", "store_timestamp"):
        same = [row[field] for row in found if row["topic"] != OP_TOPIC]
        assert same == [message[field] for message in expected if message["topic"] != OP_TOPIC]
    (sums,) = printed("inspect", made[0], "--transactions")
    for state in ("open", "unknown", "committed", "rolled_back"):
        assert sums[state] == states[0][state] + states[1][state]
    assert run_here(["verify", str(made[0])]).code == 0


def test_a_store_and_its_replica_may_be_named_together(tmp_path: Path) -> None:
    """Each record counts once."""
    roots = [stores.unpack(f"5.3.3-ha-{role}", tmp_path) for role in ("master", "slave")]
    counts = [len(list(stores.messages(root.name))) for root in roots]
    sizes = ["--set", "mappedFileSizeCommitLog=262144", "--set", "maxHashSlotNum=100", "--set", "maxIndexNum=4000"]
    words = ["--to", str(tmp_path / "new"), "--layout", "compact", *sizes, "--format", "json"]
    done = run_here(["salvage", *(str(root / "commitlog") for root in roots), *words])
    told = json.loads(done.stdout)
    assert done.code == 0 and told["stored"] == max(counts)
    assert (told["duplicates"], told["aside"]) == (min(counts), 0)


def test_what_no_repair_can_fix_is_told_so(tmp_path: Path) -> None:
    """Topics that a broker reads from a RocksDB, which mqstore does not write."""
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    options = ["--broker-version", "5.5.1", "--set", "configManagerVersion=v2"]
    done = run_here(["salvage", str(root / "commitlog"), "--to", str(new), *options])
    shows = shlex.join(["mqstore", "verify", str(new), *options])
    told = f"  incomplete: no repair can fix what is wrong; see `{shows}`"
    assert done.code == 1 and told in done.stdout.splitlines()
    assert "No repair can fix it" in run_here(["recover", str(new), *options]).stdout
    options += ["--layout", "compact", "--set", "storeType=defaultRocksDB"]
    done = run_here(["salvage", str(root / "commitlog"), "--to", str(tmp_path / "none"), *options])
    assert done.code == 5 and "--as rocksdb --apply --broker-version 5.5.1 --set" in done.stderr, done


def test_times_that_end_before_they_begin(tmp_path: Path) -> None:
    root = stores.unpack("4.9.7-clean", tmp_path)
    late = ["--layout", "compact", "--since", "now", "--until", "-1h"]
    done = run_here(["salvage", str(root), "--dry-run", *late])
    assert (done.code, done.stdout) == (2, "") and "later" in done.stderr


def test_a_store_keeps_its_sizes_and_what_only_its_config_says(tmp_path: Path) -> None:
    """Without positions every group would start anew, and without delayOffset.json 21 messages would come twice."""
    root, new = stores.unpack("5.3.3-killed-page", tmp_path), tmp_path / "new"
    done = run_here(["salvage", str(root), "--to", str(new), "--format", "json"])
    told = json.loads(done.stdout)
    names = sorted(path.name for path in (root / "config").iterdir())
    assert told["brought"] == [*(f"config/{name}" for name in names), "timerwheel"]
    assert (told["not_brought"], told["not_restored"], told["left"]) == ([], [], "")
    for name in names:
        if name != "topics.json":
            assert (new / "config" / name).read_bytes() == (root / "config" / name).read_bytes()
    assert '"message.type":"FIFO"' in (new / "config/topics.json").read_text()
    was, now = ((printed("inspect", each, "--delays")[0]) for each in (root, new))
    assert (now["pending"], now["levels"]) == (was["pending"], was["levels"])
    assert {path.stat().st_size for path in (new / "consumequeue").rglob("0*") if path.is_file()} == {1000}
    assert run_here(["verify", str(new), *stores_config(root, new)]).stdout.startswith(f"{new}: Safe to start")


def stores_config(root: Path, new: Path) -> list[str]:
    """Options of the broker that ran the store, with the paths of the new one."""
    texts = (text.replace(str(root), str(new)) for text in stores.config_set("5.3.3-killed-page", root))
    return [word for text in texts for word in ("--set", text)]


def test_topics_that_cannot_be_parsed_stay_behind(tmp_path: Path) -> None:
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("{")
    done = run_here(["salvage", str(root), "--to", str(new)])
    left = "makes files of them): config/topics.json, config/topics.json.bak\n"
    assert (done.code, left in done.stdout) == (1, True), done
    assert (new / "config/consumerOffset.json").exists()
    assert run_here(["verify", str(new)]).stdout.startswith(f"{new}: Safe to start")


@pytest.mark.parametrize("words", [["--layout", "compact"], ["other"]])
def test_what_does_not_come_along_is_told(words: list[str], tmp_path: Path) -> None:
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    if words == ["other"]:
        words = [str(stores.unpack("5.3.3-clean", tmp_path / "other"))]
    done = run_here(["salvage", str(root), "--to", str(new), *words])
    (line,) = (line for line in done.stdout.splitlines() if "not restored" in line)
    assert line.startswith(f"  not restored: positions, delay progress, groups and topic settings of {root}/config")
    assert sorted(path.name for path in (new / "config").iterdir()) == ["topics.json"]


@pytest.mark.parametrize("image", ["commitlog", "."])
def test_without_the_config_of_a_store_it_is_told_what_that_costs(image: str, tmp_path: Path) -> None:
    root, new = stores.unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    shutil.rmtree(root / "config")
    done = run_here(["salvage", str(root / image), "--to", str(new)])
    (line,) = (line for line in done.stdout.splitlines() if "not restored" in line)
    why = f"(no IMAGE is a store with config/; copy that of the old store into {new})"
    assert line == f"  not restored: positions, delay progress, groups and topic settings {why}"


def test_rocksdbs_that_no_broker_of_the_new_store_reads_are_left_out(tmp_path: Path) -> None:
    root, new = stores.unpack("5.3.3-rocksdb", tmp_path), tmp_path / "new"
    done = run_here(["salvage", str(root), "--to", str(new)])
    assert "config/consumerOffsets, config/subscriptionGroups, config/topics\n" in done.stdout, done
    assert done.code == 1 and not [path for path in (new / "config").iterdir() if path.is_dir()]
