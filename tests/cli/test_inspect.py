"""`inspect` of real stores against their truth, of single files, and of a store of a terabyte."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import huge_store, stores
from ..store.choices import few
from .datadriven import run_here
from .held import held
from .printed import inspected

CLEAN = tuple(
    name for name in stores.NAMES if stores.truth(name)["expected_verdict"] == "clean" and "-killed" not in name
)
GENERATION = {"4.3.1": "4.3", "4.9.7": "4.9", "5.1.4": "5.1", "5.3.3": "5.3", "5.5.0": "5.5"}
QUEUES_ELSEWHERE = ("rocksdb", "compaction")
"""Stores of which some queues are no files of consumequeue/."""


@pytest.mark.few(16)
@pytest.mark.parametrize("name", few())
def test_exit_sizes_checkpoint_and_generation(name: str, tmp_path: Path) -> None:
    """Told from the files alone: no configuration is given."""
    truth = stores.truth(name)
    found = inspected(stores.unpack(name, tmp_path))
    crashed = "abort" in truth["files"]
    assert found["exit"] == ("crashed" if crashed else "clean")
    assert GENERATION[truth["broker_version"]] in found["broker_versions"]
    assert found["broker_version_reason"]
    for field, value in truth["checkpoint"].items():
        assert found["checkpoint"][field] == value, field
    config = truth["config"]
    for size, option in (
        ("commit_log", "mappedFileSizeCommitLog"),
        ("index_slots", "maxHashSlotNum"),
        ("index_items", "maxIndexNum"),
    ):
        if found["sizes"][size]["origin"] == "files" and option in config:
            assert found["sizes"][size]["value"] == int(config[option]), size
    names = sorted(Path(p).name for p in truth["files"] if p.startswith("index/"))
    assert [file["file"] for file in found["index_files"]] == names
    strangers = [Path(stranger["path"]) for stranger in found["foreign_files"]]
    assert not any(path.is_file() for path in strangers), "only an unused log directory is one"


@pytest.mark.few(8)
@pytest.mark.parametrize("name", CLEAN)
def test_log_and_queues_of_clean_stores(name: str, tmp_path: Path) -> None:
    """The same range of the log and the same queue offsets that a broker has after its start."""
    truth = stores.truth(name)
    found = inspected(stores.unpack(name, tmp_path))
    load = truth["load"]["after_start"]
    assert found["log_start"] == load["min_phy_offset"]
    if "dledger" not in name:
        assert found["log_end"] == load["max_phy_offset"]
    times = [message["store_timestamp"] for message in stores.messages(name)]
    assert found["first_store_timestamp"] == times[0]
    assert found["last_store_timestamp"] == times[-1]
    if not any(word in name for word in QUEUES_ELSEWHERE):
        queues = {
            f"{queue['topic']}/{queue['queue_id']}": {
                "min_offset": queue["min_offset"],
                "max_offset": queue["max_offset"],
            }
            for queue in found["queues"]
        }
        expected = {q: o for q, o in truth["queues"].items() if q.count("/") == 1 or o["max_offset"]}
        assert queues == expected


@pytest.mark.parametrize("name", ["5.1.4-batchcq", "5.3.3-batchcq"])
def test_queues_of_batches_are_queues(name: str, tmp_path: Path) -> None:
    """With the offsets of their messages; and what is lost with topics.json is what recover says."""
    root = stores.unpack(name, tmp_path)
    found = inspected(root)["queues"]
    told = {
        f"{q['topic']}/{q['queue_id']}": {"min_offset": q["min_offset"], "max_offset": q["max_offset"]} for q in found
    }
    assert told == stores.truth(name)["queues"]
    assert [(q["topic"], q["queue_id"]) for q in found] == sorted((q["topic"], q["queue_id"]) for q in found)
    for file in (root / "config").glob("topics.json*"):
        file.unlink()
    lines = [run_here([command, str(root)]).stdout.partition("Next:")[0] for command in ("inspect", "recover")]
    assert all("would forget configuration: 2 topics are no longer served" in line for line in lines), lines


def test_a_store_in_use_is_told(tmp_path: Path) -> None:
    """With the process that holds the lock, as a broker does; reading goes on."""
    store = stores.unpack("5.3.3-killed", tmp_path)
    with held(store) as holder:
        found = inspected(store)
    assert (found["exit"], found["lock_holder"]) == ("running", holder)
    assert inspected(store)["exit"] == "crashed"


def test_an_abort_that_cannot_be_read_is_there_all_the_same(tmp_path: Path) -> None:
    """As for verify and recover."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    (store / "abort").mkdir()  # what another user may not read is told the same way, but for a test as root
    found = inspected(store)
    assert found["exit"] == "crashed" and found["exit_reason"].startswith("abort is there: not a file")


def test_damage_is_told(tmp_path: Path) -> None:
    """In the JSON, on the page and on stderr, there in the words of `dump`."""
    store = stores.unpack("5.3.3-killed-page", tmp_path)
    assert inspected(store)["damaged_ranges"] == 1
    shown = run_here(["inspect", str(store)])
    assert "damage: 1 range" in shown.stdout
    assert shown.stderr == run_here(["dump", str(store), "--format", "ndjson"]).stderr
    assert run_here(["inspect", str(store / "commitlog")]).stderr == "mqstore: 4269 damaged bytes (dump shows them)\n"
    assert [run_here(["inspect", str(path), "-q"]).stderr for path in (store, store / "commitlog")] == ["", ""]


def test_a_torn_tail_is_told(tmp_path: Path) -> None:
    """As damage; while somebody has the store it may be a record that is being written."""
    store = stores.unpack("4.9.7-killed-torn", tmp_path)
    shown = run_here(["inspect", str(store)])
    assert shown.stdout.startswith("Damaged: commitlog/00000000000000262144 @122993: the last record")
    assert shown.stderr == run_here(["dump", str(store), "--format", "ndjson"]).stderr != ""
    with held(store):
        assert run_here(["inspect", str(store)]).stderr == ""


def test_an_end_that_is_lost_is_told(tmp_path: Path) -> None:
    """The last file of the log is missing: the queues tell of it, not the log. Not while somebody has the store."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    max((store / "commitlog").iterdir()).unlink()
    shown = run_here(["inspect", str(store)]).stdout
    said = "queues name a message at 204,558, where the log ends: that message is gone."
    assert shown.startswith(f"Damaged: the store: {said}")
    assert f"Next: mqstore recover {store} --apply" in shown
    with held(store):
        assert run_here(["inspect", str(store)]).stdout.startswith("In use, and in order")


def test_a_log_without_a_byte_is_described(tmp_path: Path) -> None:
    """There is no end that it could have lost: what comes first is that it is not there."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    for file in (store / "commitlog").iterdir():
        file.write_bytes(b"")
    shown = run_here(["inspect", str(store)])
    assert shown.code == 0 and "is the path wrong, or a disk not mounted?" in shown.stdout


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    """A file of config/ that no broker takes."""
    path = tmp_path / "topics.json"
    path.write_text('{"topicConfigTable":{"a":')
    (line,) = run_here(["inspect", str(path)]).stderr.splitlines()
    assert line.startswith(f"mqstore: {path}: broken at byte ")


def test_strangers_are_told(tmp_path: Path) -> None:
    """Wherever they lie."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    for place in ("notes.txt", "commitlog/backup", "index/copy", "consumequeue/logs/0/old"):
        (store / place).write_bytes(b"x")
    found = {Path(f["path"]).relative_to(store).as_posix() for f in inspected(store)["foreign_files"]}
    assert found == {"notes.txt", "commitlog/backup", "index/copy", "consumequeue/logs/0/old"}


def check_huge(root: Path, files: int, topics: int, queues: int, mebibytes: int) -> None:
    """Make a sparse store and compare its description."""
    made = huge_store.make(root, files, topics, queues, mebibytes << 20)
    found = inspected(root)
    assert found["log_start"] == 0
    assert found["log_end"] == made.log_end
    assert found["last_store_timestamp"] == made.last_store_timestamp
    assert "walked from the highest queue unit, topic-" in found["log_end_reason"]
    offsets = {(q["topic"], q["queue_id"]): q["max_offset"] for q in found["queues"]}
    assert offsets == dict(made.messages)


def test_the_end_of_a_large_log_is_found_from_the_queues(tmp_path: Path) -> None:
    """Four files of 1 GiB with 2 MiB of records in the last one."""
    check_huge(tmp_path / "store", 4, 3, 2, 2)


def test_units_that_point_nowhere_are_no_way_to_the_end(tmp_path: Path) -> None:
    """The next highest one is, or the last file with a record."""
    root = tmp_path / "store"
    made = huge_store.make(root, 2, 2, 1, 1 << 20)
    unit = made.messages["topic-00000", 0]
    queue = next((root / "consumequeue" / "topic-00000" / "0").iterdir())
    with queue.open("r+b") as file:
        file.seek(20 * (unit - 1))
        file.write((made.log_end + 12345).to_bytes(8, "big"))
    found = inspected(root)
    assert found["log_end"] == made.log_end
    assert "topic-00001/0" in found["log_end_reason"]
    for path in (root / "consumequeue").rglob("0*"):
        if path.is_file():
            path.unlink()
    found = inspected(root)
    assert found["log_end"] == made.log_end
    assert "the last file with a record" in found["log_end_reason"]


@pytest.mark.slow
def test_a_terabyte(tmp_path: Path) -> None:
    """1,024 files, 2,000 topics x 8 queues, 100 bytes a record."""
    check_huge(tmp_path / "store", 1024, 2000, 8, 200)


def test_timers_of_a_running_broker_come_again_only_if_it_is_killed(tmp_path: Path) -> None:
    """It writes timercheck once a second, and continues from what it knows."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    check = root / "config" / "timercheck"
    data = check.read_bytes()
    read_ms = int.from_bytes(data[:8], "big")
    check.write_bytes((read_ms - 60_000).to_bytes(8, "big") + data[8:])
    words = ["inspect", str(root), "--timers", "--now", str(read_ms)]
    free = run_here(words)
    with held(root):
        used, told = run_here(words), run_here([*words, "--format", "ndjson"])
    assert "will be delivered once too often" in free.stdout and "(again)" in free.stdout
    assert "would be delivered once too often if the broker were killed now" in used.stdout
    assert "(again)" not in used.stdout and "a broker would continue at" in used.stdout
    assert '"live":true' in told.stdout
    check.write_bytes(data[:16] + bytes(16) + data[32:])
    elected = run_here(["inspect", str(root), "--timers", "--now", str(read_ms), "--set", "enableControllerMode=true"])
    assert "will be delivered once too often, if this node is elected" in elected.stdout
