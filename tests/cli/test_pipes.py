"""`dump` in a pipe: readers that stop early, memory that does not grow with the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .. import huge_store, stores
from ..slices import pick
from .peak import ENVIRONMENT, peak_bytes

MQSTORE = f'"{sys.executable}" -m mqstore'


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; `mqstore` in it is this checkout's."""
    script = f'mqstore() {{ {MQSTORE} "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("options", ["--hex", *(f"--format {name}" for name in ("text", "json", "ndjson", "csv"))])
def test_a_reader_that_stops_early(options: str, tmp_path: Path) -> None:
    """Exit code 0, nothing on stderr."""
    stores.unpack("5.3.3-clean", tmp_path)
    done = shell(f"mqstore dump 5.3.3-clean {options} | head -n 2; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_ndjson_goes_through_a_pipe_whole(tmp_path: Path) -> None:
    """As many lines as the truth has messages and BLANKs."""
    stores.unpack("5.3.3-clean", tmp_path)
    done = shell("mqstore dump 5.3.3-clean --format ndjson | cat", tmp_path)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    messages = [record for record in records if record["type"] == "message"]
    assert len(messages) == stores.truth("5.3.3-clean")["message_count"]


@pytest.mark.slow
@pytest.mark.parametrize("format", pick(["ndjson", "json", "csv", "text"], "memory"))
def test_memory_is_flat(format: str, tmp_path: Path) -> None:
    """Four times the log takes no more memory, but for noise."""
    peaks = []
    for mebibytes in (16, 64):
        root = tmp_path / str(mebibytes)
        huge_store.make(root, 1, 4, 1, mebibytes << 20)
        peaks.append(peak_bytes("dump", str(root), "--format", format))
    small, large = peaks
    assert large - small < 8 << 20
    assert large < 200 << 20
