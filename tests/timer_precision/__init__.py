"""Stores whose wheel has slots of 100, 500 and 1000 ms, left by real brokers (README.md)."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

from ..archives import extract

HERE = Path(__file__).resolve().parent
NAMES = tuple(sorted(path.name.removesuffix(".tar.gz") for path in HERE.glob("*.tar.gz")))
CLEAN = tuple(name for name in NAMES if not name.endswith("-killed"))
KILLED = tuple(name for name in NAMES if name.endswith("-killed"))


def unpack(name: str, target: Path) -> Path:
    """Unpack a store into `target` and return its root."""
    extract(HERE / f"{name}.tar.gz", target)
    return target / name


@functools.cache
def truth(name: str) -> dict[str, Any]:
    """What the real classes say about a store. Read it only."""
    found: dict[str, Any] = json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))
    return found


def config(name: str, root: Path) -> list[str]:
    """The broker's options as ``K=V`` for ``--set``."""
    options: dict[str, str] = truth(name)["config"]
    return [f"{key}={value.replace('@ROOT@', str(root))}" for key, value in options.items()]
