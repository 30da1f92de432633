"""Commands that read a store whose RocksDB a real broker's classes write at that moment.

The commands see the store through a read-only mount in a namespace of their own, the classes write by the
original path: nothing that a command does, native code included, can change a byte there. strace, where
it is installed, shows that none even tries.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .oracle import Oracle, OracleDied, missing
from .served import Row, settings
from .test_rocksdb_queues import ALONE, BOTH

pytestmark = [pytest.mark.interop, pytest.mark.slow]

VERSION = "5.5.1"
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 50,
    "maxIndexNum": 2000,
}
BEFORE = 300
"""Messages of an earlier life: their units are in the files of the RocksDB, not in memory."""
ROUNDS, AT_ONCE = 6000, 20
ENTRY = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
POSITIONS = {"T0@billing": {"0": 20, "1": 60}}
MOUNTED = 'mount --bind -o ro "$0" "$1" && shift && exec "$@"'


def namespace(folder: Path) -> list[str]:
    """What runs a program in a mount namespace of its own; skips where this machine allows none."""
    command = ["unshare", "-rm"]
    trial = ["sh", "-c", 'mount --bind -o ro "$0" "$0" && ! touch "$0/x" 2>/dev/null', str(folder)]
    if not shutil.which("unshare") or subprocess.run([*command, *trial], check=False).returncode:
        pytest.skip("no read-only mount in a namespace here")
    return command


def messages(first: int, count: int) -> list[Row]:
    """Numbered ones: message n has the key kn; they take turns in six queues."""
    return [
        {"topic": f"T{n % 3}", "queue_id": n % 2, "keys": f"k{n}", "tags": "a", "body": f"{n} " + "x" * (n * 53 % 400)}
        for n in range(first, first + count)
    ]


@dataclass
class Live:
    """A store at `root` that somebody writes, mounted read-only at `seen`. asked: what was run."""

    root: Path
    seen: Path
    options: list[str]
    writing: threading.Thread
    prefix: list[str]
    asked: list[str] = field(default_factory=list)

    def run(self, command: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Standard output of a command on the store, which writes nothing and does not fail."""
        line = [sys.executable, "-m", "mqstore", command, *words, *self.options]
        calls = self.root.parent / "calls"
        if shutil.which("strace"):
            line = ["strace", "-f", "-qq", "-Z", "-o", str(calls), *line]
        said = subprocess.run(
            [*self.prefix, "sh", "-c", MOUNTED, str(self.root), str(self.seen), *line],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        about = f"{command} {' '.join(words)}: exit {said.returncode}\n{said.stdout[-3000:]}\n{said.stderr}"
        assert self.writing.is_alive(), "the classes have ended: nothing is proven"
        assert said.returncode in codes, about
        assert "internal error" not in said.stderr and "Traceback" not in said.stderr, about
        if calls.exists():
            failed = calls.read_text(errors="replace").splitlines()
            assert [call for call in failed if "EROFS" in call] == [], about
        self.asked.append(command)
        return said.stdout

    def rows(self, command: str, *words: str, codes: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """The same as records."""
        said = self.run(command, *words, "--format", "ndjson", codes=codes)
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(params=["alone", "both"])
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Live]:
    if why := missing(VERSION):
        pytest.skip(why)
    prefix = namespace(tmp_path)
    config: dict[str, Any] = {**SIZES, **(ALONE if request.param == "alone" else BOTH)}
    root, seen = tmp_path / "store", tmp_path / "seen"
    (root / "config").mkdir(parents=True)
    seen.mkdir()
    table = {f"T{n}": {"topicName": f"T{n}", **ENTRY} for n in range(3)}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": POSITIONS}))
    with Oracle(VERSION, timeout_seconds=600) as oracle:
        first = {"do": "put", "messages": messages(0, BEFORE)}
        oracle.run(root, config=config, steps=[first, {"do": "wait", "ms": 500}], files="none")
        ended: list[str] = []
        writing = threading.Thread(target=_write, args=(oracle, root, config, ended))
        writing.start()
        try:
            _wait_for(root / "abort", writing)
            yield Live(root, seen, settings(config), writing, prefix)
        finally:
            oracle.kill()
            writing.join()
    assert ended == ["killed"], "the classes had ended before they were killed"


def _write(oracle: Oracle, root: Path, config: dict[str, Any], ended: list[str]) -> None:
    """Append until the JVM is killed."""
    steps: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        steps.append({"do": "put", "messages": messages(BEFORE + number * AT_ONCE, AT_ONCE)})
        steps.append({"do": "wait", "ms": 30})
    try:
        oracle.run(root, config=config, steps=steps, files="none")
    except OracleDied:
        ended.append("killed")


def _wait_for(path: Path, writing: threading.Thread) -> None:
    """The classes have started, and written for a second."""
    end = time.monotonic() + 60
    while not path.exists() and writing.is_alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert path.exists(), "the classes did not start"
    time.sleep(1)


def test_commands_beside_a_writing_broker(live: Live) -> None:
    """Each tells what there is, takes what is just being written for no damage, and writes nothing."""
    store, newest = str(live.seen), f"k{BEFORE + 40}"
    in_files = (live.root / "consumequeue_rocksdb").is_dir()
    database = live.seen / ("consumequeue_rocksdb" if in_files else "consumequeue")

    (described,) = live.rows("inspect", store)
    assert described["exit"].startswith("running"), described
    assert len(live.rows("dump", store, "--count", "700")) == 700
    units = live.rows("dump", str(database))
    assert len([row for row in units if row["type"] == "rocksdb_queue_unit"]) >= BEFORE

    place = ("--topic", "T0", "--queue", "0", "--offset")
    (old,) = live.rows("get", store, *place, "5")
    assert old["properties"]["KEYS"] == "k30"
    # its unit is in the memory of the broker alone, where no queue in files names it
    (new,) = live.rows("get", store, *place, str(BEFORE // 6 + 8))
    assert new["properties"]["KEYS"] == f"k{BEFORE + 48}"
    across = live.rows("get", store, *place, str(BEFORE // 6 - 2), "--count", "4")
    assert [row["queue_offset"] for row in across] == list(range(BEFORE // 6 - 2, BEFORE // 6 + 2))
    (keyed,) = live.rows("get", store, "--topic", f"T{(BEFORE + 40) % 3}", "--key", newest)
    assert keyed["properties"]["KEYS"] == newest
    live.run("get", store, *place, "99999999", codes=(1,))
    assert len(live.rows("get", store, "--topic", "T1", "--limit", "200")) == 200
    told = int(live.run("get", store, *place[:4], "--offset-at", "-1s"))
    assert told > BEFORE // 6, "the queue seems to end where its files do"

    for words in ((), ("--quick",)):
        found = live.rows("verify", store, *words)
        worse = [row for row in found if row.get("severity") in ("warning", "error", "fatal")]
        assert worse == []
    (plan,) = live.rows("recover", store)
    assert plan["summary"]["damaged"] == plan["summary"]["lost_by_broker"] == 0
    assert plan["prediction"]["outcome"] == "starts" and plan["plan"]["lost"] == []
    changed = [row["path"] for row in plan["prediction"]["files"]]
    assert [path for path in changed if path.startswith("commitlog/")] == []
    live.run("repair", store, codes=(0, 3))

    assert {row["topic"] for row in live.rows("stats", store, "--by", "topic")} == {"T0", "T1", "T2"}
    for key in ("k30", newest):
        (traced,) = live.rows("trace", store, key)
        verdict = (traced["for_all"] or {}).get("verdict")
        assert verdict in (None, "unknown"), traced
    lags = live.rows("offsets", store, "--by", "queue")
    assert {row["state"] for row in lags} <= {"behind", "unknown"}, lags
    ((units_there,),) = [row.values() for row in live.rows("sql", "SELECT count(*) FROM queues", store)]
    assert units_there >= BEFORE
    live.run("inspect", store, "--timers", "--pop", "--retries", "--delays", "--transactions")
