"""`mqstore put` in this process and as one of its own, and what it has put."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mqstore.formats.message import SysFlag
from mqstore.formats.message_properties import CRC32

from .. import stores
from .datadriven import run_here

Row = dict[str, Any]

MADE_ANEW = {
    *(
        "physical_offset",
        "prepared_transaction_offset",
        "queue_offset",
        "message_id",
        "store_timestamp",
        "store_host",
        "body_crc",
    ),
    *("total_size", "magic_code"),
}
"""What a message gets from the store it is put into."""


def rows(text: str) -> list[Row]:
    return [json.loads(line) for line in text.splitlines()]


def mqstore(*words: str | Path, code: int = 0) -> list[Row]:
    """Run a command here; its NDJSON."""
    result = run_here([*map(str, words), "--format", "ndjson"])
    assert result.code == code, result.stderr
    return rows(result.stdout)


def process(*words: str | Path, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "mqstore", *map(str, words)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def config_of(name: str, root: Path) -> list[str]:
    """Sizes of a store, as options for one that is rebuilt."""
    return [word for setting in stores.config_set(name, root) if "Path" not in setting for word in ("--set", setting)]


def given(row: Row) -> Row:
    """What the producer gave: without what belongs to the store or to the place in its log."""
    kept = {name: value for name, value in row.items() if name not in MADE_ANEW}
    kept["sys_flag"] &= ~SysFlag.STORE_V6
    kept["properties"] = {k: v for k, v in row["properties"].items() if k != CRC32}
    kept["properties_raw"] = row.get("properties_raw", "").partition(CRC32)[0].removesuffix("\2")
    return kept


def line(number: int, **fields: Any) -> str:
    return json.dumps({"topic": "T", "body": f"b{number}"} | fields) + "\n"


def bodies(root: Path) -> list[str]:
    return [row["body"] for row in mqstore("dump", root) if row["type"] == "message"]


def fed(root: Path, lines: Sequence[str]) -> tuple[subprocess.Popen[bytes], list[Row]]:
    """A `put --from -` that has answered these lines and waits for more."""
    words = ("put", root, "--from", "-", "--flush", "sync", "--format", "ndjson")
    running = process(*words)
    assert running.stdin is not None and running.stdout is not None
    running.stdin.write("".join(lines).encode())
    running.stdin.flush()
    return running, [json.loads(running.stdout.readline()) for _ in lines]


def ended(running: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process; what it said on stderr."""
    _, said = running.communicate(timeout=60)
    return said.decode()
