"""Damaged stores with queues in RocksDB, and what real starts did to them. See README.md here."""

from __future__ import annotations

import functools
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from mqstore.store.disk.broker_conf import BrokerConfig

from ..archives import extract

HERE = Path(__file__).resolve().parent
Case = dict[str, Any]


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them."""
    with gzip.open(HERE / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))


def case_of(name: str) -> Case:
    """The case of that name."""
    return next(case for case in cases() if case["case"] == name)


def damaged(case: Case, work: Path) -> tuple[Path, BrokerConfig]:
    """The damaged store, in a directory that the next call replaces, and its broker's options."""
    root = work / case["base"]
    shutil.rmtree(root, ignore_errors=True)
    extract(HERE / "bases" / f"{case['base']}.tar.gz", work)
    for edit in case["edits"]:
        _apply(root, edit)
    options = json.loads((HERE / "bases" / f"{case['base']}.json").read_text()) | case["config"]
    texts = {name: _text(value).replace("@ROOT@", str(root)) for name, value in options.items()}
    return root, BrokerConfig(texts)


def is_harmed(case: Case) -> bool:
    """The real start was refused, or messages could not be read any more."""
    fewer = case["readable"] is not None and case["readable"] < case["before"]
    return case["loaded"] is False or bool(case["lost"]) or case["shifted"] or fewer


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _apply(root: Path, edit: dict[str, Any]) -> None:
    path = root / edit.get("file", edit.get("path", ""))
    operation = edit["op"]
    if operation == "mkdir":
        path.mkdir(parents=True, exist_ok=True)
    elif operation == "rename":
        path.rename(root / edit["to"])
    elif operation == "delete":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif operation == "create":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(edit.get("data", "")).ljust(edit.get("size", 0), b"\0"))
    else:
        _overwrite(root, path, edit)


def _overwrite(root: Path, path: Path, edit: dict[str, Any]) -> None:
    operation = edit["op"]
    data = path.read_bytes()
    if operation == "truncate":
        path.write_bytes(data[: edit["size"]].ljust(edit["size"], b"\0"))
        return
    if operation == "write":
        new, at = bytes.fromhex(edit["data"]) * edit.get("repeat", 1), edit["offset"]
    elif operation == "fill":
        new, at = bytes([edit["byte"]]) * edit["size"], edit["offset"]
    else:  # a range is copied into another file
        assert operation == "move", operation
        new, at = data[edit["offset"] : edit["offset"] + edit["size"]], edit["to_offset"]
        path = root / edit["to"]
        data = path.read_bytes()
    data = data.ljust(at, b"\0")
    path.write_bytes(data[:at] + new + data[at + len(new) :])
