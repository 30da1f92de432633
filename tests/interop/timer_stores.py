"""Stores whose timer has another precision than the usual one, left by real brokers.

    python -m tests.interop.timer_stores FOLDER [VERSION…]

rebuilds those of `tests/timer_precision`: a clean one and a killed one for each version, the killed one
started again, each packed with the truth of the real classes beside it.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.recovery_cases import sparse_copy

from .brokers import Broker
from .oracle import Oracle

Row = dict[str, Any]

STORES = (("5.1.4", 100), ("5.3.3", 500), ("5.5.0", 2000))
"""Versions, and what their broker.conf says; of 2000 a broker makes 1000."""
SIZES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "97",
    "maxIndexNum": "400",
    "mappedFileSizeTimerLog": "1024",
}
TOPICS = ("alarms", "alarms-2")
TOPIC_FIRST = "5.3.3"
"""A cancel message names topic and unique key there, the unique key alone elsewhere."""
_STORM = 240
_PATIENCE_SECONDS = 60
_DAY_SECONDS = 86_400


def config(precision_ms: int) -> dict[str, str]:
    """The options of such a store; `@ROOT@` is the store."""
    own = {"timerWheelEnable": "true", "timerPrecisionMs": str(precision_ms)}
    return {"brokerName": "interop", "storePathCommitLog": "@ROOT@/commitlog", **SIZES, **own}


def requests(version: str, chance: random.Random, now_ms: int, count: int) -> list[Row]:
    """Messages of parts of seconds, seconds, hours, days (rolled); same tick; cancels."""
    topic_first = version == TOPIC_FIRST
    found: list[Row] = []
    for number in range(count):
        key = f"{number:032X}"
        topic = chance.choice(TOPICS)
        ways = (
            {"TIMER_DELAY_MS": str(chance.randrange(150, 1_900))},
            {"TIMER_DELAY_SEC": str(chance.randrange(1, 3))},
            {"TIMER_DELIVER_MS": str(now_ms + chance.randrange(3_600_000, 7_200_000))},
            {"TIMER_DELIVER_MS": str(now_ms + 5_400_000)},
            {"TIMER_DELAY_SEC": str(3 * _DAY_SECONDS - 60)},
        )
        asked = ways[number % len(ways)]
        found.append(_message(topic, f"m{number}", UNIQ_KEY=key, KEYS=f"k{number}", **asked))
        if number % len(ways) == 3 and chance.random() < 0.4:
            name = f"{topic}+{key}" if topic_first else key
            found.append(_message(topic, "cancel", TIMER_DEL_UNIQKEY=name, **asked))
    return found


def _message(topic: str, body: str, **properties: str) -> Row:
    return {"topic": topic, "body": body, "properties": properties}


def run_clean(version: str, root: Path, precision_ms: int) -> list[Row]:
    """A broker that has delivered what was due, and was shut down."""
    settings = _settings(root, precision_ms)
    with Broker(version, root, settings) as broker:
        asked = requests(version, random.Random(precision_ms), int(time.time() * 1000), 40)
        broker.produce(asked)
        time.sleep(4.3)
        broker.stop()
    return asked


def run_killed(version: str, root: Path, precision_ms: int) -> list[Row]:
    """One that was killed in a storm of timer messages."""
    settings = _settings(root, precision_ms)
    broker = Broker(version, root, settings)
    asked = requests(version, random.Random(precision_ms), int(time.time() * 1000), _STORM)
    broker.produce(asked[:40])
    _wait_for(root / "checkpoint", root / "config" / "timercheck")

    def storm() -> None:
        with contextlib.suppress(RuntimeError, ValueError, OSError):  # it is killed meanwhile
            broker.produce(asked[40:])

    sender = threading.Thread(target=storm)
    sender.start()
    time.sleep(0.9)
    broker.kill()
    sender.join()
    return asked


def _wait_for(*files: Path) -> None:
    """Until a broker has flushed them: what was killed before that is another case."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not all(path.exists() and any(path.read_bytes()[8:32]) for path in files):
        if time.monotonic() > deadline:
            raise TimeoutError(str(files))
        time.sleep(0.1)


def run_again(version: str, root: Path, precision_ms: int) -> None:
    """The same broker on what it left, for some seconds."""
    with Broker(version, root, _settings(root, precision_ms)) as broker:
        time.sleep(6)
        broker.stop()


def _settings(root: Path, precision_ms: int) -> dict[str, str]:
    return {k: v.replace("@ROOT@", str(root)) for k, v in config(precision_ms).items()}


def truth(oracle: Oracle, root: Path, precision_ms: int) -> Row:
    """What the classes of that version say about a store; it is not changed."""
    with tempfile.TemporaryDirectory(prefix="mqstore-truth-") as work:
        copy = Path(work) / "store"
        shutil.copytree(root, copy, copy_function=sparse_copy)
        settings = _settings(copy, precision_ms)
        loaded = oracle.run(copy, config=settings, start=False, files="none")
    return {
        "broker_version": oracle.version,
        "precision_ms": min(precision_ms, 1000),
        "config": config(precision_ms),
        "exit": "killed" if (root / "abort").exists() else "clean",
        "messages": oracle.decode(root)["messages"],
        "timer": loaded["timer_after_load"],
        "queues": loaded["after_load"]["queues"],
        "files": {str(p.relative_to(root)): p.stat().st_size for p in _files(root)},
    }


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def pack(root: Path, target: Path) -> None:
    """A store as an archive; GNU tar keeps the holes of the wheel."""
    command = ["tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "-C", str(root.parent)]
    packed = subprocess.run([*command, "-c", root.name], check=True, capture_output=True).stdout
    target.write_bytes(gzip.compress(packed, 9, mtime=0))


def main(folder: Path, versions: Sequence[str] = ()) -> None:
    """Make all of them, or those of some versions."""
    for version, precision_ms in STORES:
        if versions and version not in versions:
            continue
        with tempfile.TemporaryDirectory(prefix="mqstore-timer-") as work, Oracle(version) as oracle:
            for way, run in (("clean", run_clean), ("killed", run_killed)):
                root = Path(work) / f"{version}-{precision_ms}ms-{way}"
                root.mkdir()
                asked = run(version, root, precision_ms)
                _keep(oracle, root, precision_ms, folder, {"requested": asked})
            again = root.with_name(root.name + "-restarted")
            root.rename(again)
            run_again(version, again, precision_ms)
            _keep(oracle, again, precision_ms, folder, {"before": root.name})


def _keep(oracle: Oracle, root: Path, precision_ms: int, folder: Path, more: Row) -> None:
    found = json.dumps(truth(oracle, root, precision_ms) | more, separators=(",", ":"))
    (folder / f"{root.name}.json.gz").write_bytes(gzip.compress(found.encode(), 9, mtime=0))
    pack(root, folder / f"{root.name}.tar.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
