"""What a command prints, as records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .datadriven import Result, run_here


def printed(*words: str | Path) -> list[dict[str, Any]]:
    """The NDJSON of a command that ends well."""
    result = run_here([*map(str, words), "--format", "ndjson"])
    assert result.code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def dumped(path: Path, *options: str) -> list[dict[str, Any]]:
    """What `dump` prints of a path."""
    return printed("dump", path, *options)


def inspected(path: Path, *options: str) -> dict[str, Any]:
    """What `inspect` says of a path, without a word on stderr but for one line where something is damaged."""
    result = run_here(["inspect", str(path), "--format", "json", *options])
    assert result.code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    damaged = any(found.get(f"damaged_{things}") for things in ("ranges", "bytes", "files"))
    damaged |= found.get("state") == "broken" or found.get("log_end_reason", "").startswith("torn tail")
    assert result.stderr.count("\n") == damaged, result.stderr
    return found


def queue_offsets(path: Path, *options: str) -> list[int]:
    """Those of what `dump` prints of a path, without a word on stderr."""
    result = run_here(["dump", str(path), "--format", "ndjson", *options])
    assert (result.code, result.stderr) == (0, "")
    return [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()]


def get(root: Path, *options: str) -> Result:
    """The answer of `get`, whatever it is."""
    return run_here(["get", str(root), *options])
