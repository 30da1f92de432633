"""Real stores left by real brokers, and the truth about them. See README.md here.

`NAMES` are the stores in this folder; `ALL` has those of ``../shared/stores`` too, where that
folder is there. The project does not need it. `FEW` are those of `NAMES` that a fast test looks at
where it asks the same of each store.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..archives import extract

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "stores"
_SHARED_OF_TODAY = SHARED.parent / "stores-of-today"
_TODAY = HERE / "today"
_ARCHIVE = ".tar.gz"
_RESTARTED = "-restarted"


def _names(folder: Path) -> set[str]:
    return {path.name.removesuffix(_ARCHIVE) for path in folder.glob("*" + _ARCHIVE)}


NAMES: tuple[str, ...] = tuple(sorted(_names(HERE)))
ALL: tuple[str, ...] = tuple(sorted(_names(HERE) | _names(SHARED)))
FEW_OF_TODAY: tuple[str, ...] = tuple(sorted(_names(_TODAY)))
"""Stores of 5.5.1: hybrid queues, and what a broker leaves behind that goes over to RocksDB."""
OF_TODAY: tuple[str, ...] = tuple(sorted(_names(_SHARED_OF_TODAY) | set(FEW_OF_TODAY)))
"""These, and those of ``../shared/stores-of-today``, where that folder is there."""
_COPY = re.compile(r"-killed-|-restarted$")
_KEPT_COPIES = {
    *("4.9.7-killed-bit", "4.9.7-killed-hole", "4.9.7-killed-page", "4.9.7-killed-queue"),
    *("4.9.7-killed-torn", "4.9.7-killed-restarted", "5.3.3-killed-checkpoint"),
    *("5.3.3-killed-restarted", "5.3.3-multipath-killed-restarted"),
}
FEW: tuple[str, ...] = tuple(n for n in NAMES if n in _KEPT_COPIES or not _COPY.search(n))
"""Of the copies of a store that were damaged or started again, one of each kind."""


def _file(name: str) -> Path:
    """The file of that name, from this folder first."""
    folders = (HERE, _TODAY, SHARED, _SHARED_OF_TODAY)
    return next((f / name for f in folders if (f / name).exists()), SHARED / name)


def unpack(name: str, target: Path) -> Path:
    """Unpack a store into `target` (made where missing) and return its root, mtimes kept."""
    extract(_file(name + _ARCHIVE), target)
    return target / name


def bare(name: str, target: Path) -> Path:
    """The same without queues and index."""
    root = unpack(name, target)
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part, ignore_errors=True)
    return root


@functools.cache
def _truth(name: str) -> dict[str, Any]:
    packed = _file(f"{name}.json.gz")
    text = gzip.decompress(packed.read_bytes()) if packed.exists() else None
    found: dict[str, Any] = json.loads(text or _file(f"{name}.json").read_bytes())
    return found


def truth(name: str) -> dict[str, Any]:
    """What the real classes say about a store. Long lists are file names: `messages`, `sent`.

    The object is cached and shared: read it only.
    """
    return _truth(name)


@functools.cache
def received(name: str) -> dict[str, dict[str, list[int]]]:
    """By consumer group and unique key: 1 each time that it took a message, 0 where it refused it."""
    text = gzip.decompress((HERE / "received.json.gz").read_bytes())
    found: dict[str, dict[str, list[int]]] = json.loads(text)[name]
    return found


def _rows(name: str, field: str) -> Iterator[dict[str, Any]]:
    value = truth(name).get(field, [])
    if isinstance(value, str):
        with gzip.open(_file(value), "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    else:
        yield from value


def messages(name: str) -> Iterator[dict[str, Any]]:
    """Every record in commit log order as Java reads it before any load."""
    return _rows(name, "messages")


def sent(name: str) -> Iterator[dict[str, Any]]:
    """What the producers got acknowledged; of a damaged copy, that of its source."""
    return _rows(truth(name).get("sent_is_in", name), "sent")


def config(name: str, root: Path) -> dict[str, str]:
    """The broker's options for the store unpacked at `root`."""
    options: dict[str, str] = truth(name)["config"]
    return {key: value.replace("@ROOT@", str(root)) for key, value in options.items()}


def config_set(name: str, root: Path) -> list[str]:
    """The same as ``K=V`` for ``--set``."""
    return [f"{key}={value}" for key, value in config(name, root).items()]


def pairs(names: tuple[str, ...] = NAMES) -> list[tuple[str, str]]:
    """(X, X-restarted) of `names`: before and after a start of the real broker."""
    return [(x, x + _RESTARTED) for x in names if x + _RESTARTED in names]
