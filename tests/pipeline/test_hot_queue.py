"""One queue has all messages: it is cut into groups of files, and no process holds it whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT
from mqstore.formats.derive import dtype_of

from .. import hot_queue
from ..slices import share
from ..spark_processes import jvm_below, worker_peaks

MESSAGES = 20_000_000
WORKER_BYTES_MAX = 300_000_000
_POLL_S = 0.3


@pytest.mark.slow
def test_no_worker_holds_a_hot_queue(tmp_path: Path) -> None:
    root, new = tmp_path / "store", tmp_path / "new"
    expected = hot_queue.make(root, share(MESSAGES))
    command = ["pipeline", "rebuild", str(root), "--to", str(new), "--master=local[2]"]
    job = subprocess.Popen(
        [sys.executable, "-m", "mqstore", *command, "--broker-version=5.3.3", "--format=json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peaks: dict[int, int] = {}
    while job.poll() is None:
        if (jvm := jvm_below(job.pid)) is not None:
            peaks |= worker_peaks(jvm)
        time.sleep(_POLL_S)
    out, err = job.communicate()
    assert (job.returncode, err) == (0, "")
    assert json.loads(out)["units"] == len(expected)
    queue = new / "consumequeue" / hot_queue.TOPIC / str(hot_queue.QUEUE_ID)
    first = 0
    for path in sorted(queue.iterdir()):
        units = np.fromfile(path, dtype_of(UNIT))[: len(expected) - first]
        assert units.tobytes() == expected[first : first + len(units)].tobytes(), path.name
        first += len(units)
    assert first == len(expected)
    print(f"{len(peaks)} workers, the largest {max(peaks.values()) / 1e6:.0f} MB")
    assert max(peaks.values()) <= WORKER_BYTES_MAX, peaks
