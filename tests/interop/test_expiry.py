"""Files that a real broker deletes, and those that `stats --expires` says it would."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from .brokers import VERSIONS, Broker, missing
from .served import mqstore, put, rows, settings

pytestmark = [pytest.mark.interop, pytest.mark.slow]

HOURS = ";".join(f"{hour:02}" for hour in range(24))
CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "fileReservedTime": 2,
    "deleteWhen": HOURS,
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": False,
}
OLD = 4
#: A broker begins to look for old files a minute after its start.
PATIENCE_SECONDS = 120


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_that_go(version: str, tmp_path: Path) -> None:
    """Four that are old enough, and one behind a younger one, which stays; a group loses what was said."""
    if why := missing(version):
        pytest.skip(why)
    root, log = tmp_path / "store", tmp_path / "store" / "commitlog"
    messages = [{"topic": "orders", "queue_id": n % 2, "body": "x" * 500} for n in range(240)]
    put(root, messages, CONFIG, "--as-broker", version.rpartition(".")[0])
    config = root / "config"
    config.mkdir(exist_ok=True)
    table = json.dumps({"offsetTable": {"orders@late": {"0": 0, "1": 3}}})
    (config / "consumerOffset.json").write_text(table)
    files = sorted(log.iterdir())
    assert len(files) > OLD + 3
    hour_s = 3600
    for number, path in enumerate(files):
        age_s = 3 * hour_s if number < OLD or number == OLD + 1 else 0
        os.utime(path, (time.time() - age_s,) * 2)
    words = ["--expires", "--within", "5m", "--trend", "1h", *settings(CONFIG), "--format", "ndjson"]
    disk = ["--disk-size", "100G", "--disk-used", "1G"]
    found = rows(mqstore("stats", root, *words, *disk, codes=(0, 1)))
    going = [row["file"] for row in found if row["type"] == "expiring_file"]
    assert going == [path.name for path in files[:OLD]]
    (losing,) = [row for row in found if row["type"] == "losing_group"]
    with Broker(version, root, CONFIG):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any((log / name).exists() for name in going) and time.monotonic() < deadline:
            time.sleep(1)
    left = sorted(path.name for path in log.iterdir())
    assert left[0] == files[OLD].name
    assert files[OLD + 1].name in left
    told = rows(mqstore("offsets", root, "--by", "queue", "--group", "late", "--format", "ndjson"))
    expired = sum(row["min_offset"] - max(0, {0: 0, 1: 3}[row["queue_id"]]) for row in told)
    assert losing["messages"] == expired
