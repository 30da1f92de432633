"""What `verify` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .datadriven import run_here

Rows = list[dict[str, Any]]


def rows(*arguments: str | Path, code: int) -> Rows:
    """What it prints as NDJSON."""
    result = run_here(["verify", *map(str, arguments), "--format", "ndjson"])
    assert result.code == code, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]
