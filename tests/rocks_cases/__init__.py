"""Damaged stores with queues in RocksDB, and what real starts did to them. See README.md here.

`cases` are those in this folder; `all_cases` has those of ``../shared/stores-of-today/rocks-cases`` as well.
"""

from __future__ import annotations

import functools
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from mqstore.store.audit.messages import BEHIND_HOLE, Readability
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.recover.predict import Prediction

from ..archives import extract

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "stores-of-today" / "rocks-cases"
Case = dict[str, Any]


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them."""
    with gzip.open(HERE / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(map(json.loads, lines))


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Those of 5.5.0 as well, where ``../shared`` is there. The project does not need it."""
    if not (SHARED / "cases.jsonl.gz").exists():
        return cases()
    here = {case["case"] for case in cases()}
    with gzip.open(SHARED / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        further = (case for case in map(json.loads, lines) if case["case"] not in here)
        return (*cases(), *map(_cut_down, further))


def served_by_itself(told: Prediction | Readability) -> int:
    """How many messages a pull gets that begins at each, as the real classes were asked: also those behind a hole."""
    behind = (share.messages for share in told.invisible if share.reason.startswith(BEHIND_HOLE))
    return told.readable + sum(behind)


def all_bases() -> list[str]:
    """The names of the bases of `all_cases`."""
    archives = {path for folder in (HERE, SHARED) for path in (folder / "bases").glob("*.tar.gz")}
    return sorted({path.name.removesuffix(".tar.gz") for path in archives})


def _cut_down(case: Case) -> Case:
    """A case of the larger collection as those here are."""
    load, start, told = case["load"], case.get("start") or {}, case.get("messages") or {}
    names = ("case", "base", "version", "mode", "exit", "kind", "description", "edits", "config")
    found = {name: case[name] for name in names}
    found |= {"before": case["before"]["messages"], "loaded": load.get("loaded")}
    found |= {"readable": told.get("readable"), "shifted": bool(told.get("shifted"))}
    found["lost"] = sum(map(len, (told.get("lost") or {}).values()))
    found["exception"] = start.get("exception") or load.get("exception")
    found["dispatched"] = start.get("dispatched_by_load")
    state = start.get("state")
    found["started"] = state is not None
    if state is not None:
        names_of = {"row": "rocks_checkpoint", "database": "rocks_queues", "files": "file_queues"}
        parts = {mine: state[name] for mine, name in names_of.items() if name in state}
        found["state"] = {"log_end": state["max_offset"], "queues": state["queues"], **parts}
    return found


def _base(name: str) -> tuple[Path, dict[str, Any]]:
    """The archive of a base, and its options."""
    if (archive := HERE / "bases" / f"{name}.tar.gz").exists():
        return archive, json.loads((HERE / "bases" / f"{name}.json").read_text())
    with gzip.open(SHARED / "bases" / f"{name}.json.gz", "rt", encoding="utf-8") as text:
        return SHARED / "bases" / f"{name}.tar.gz", json.load(text)["config"]


def case_of(name: str) -> Case:
    """The case of that name."""
    return next(case for case in cases() if case["case"] == name)


def damaged(case: Case, work: Path) -> tuple[Path, BrokerConfig]:
    """The damaged store, in a directory that the next call replaces, and its broker's options."""
    root = work / case["base"]
    shutil.rmtree(root, ignore_errors=True)
    archive, options = _base(case["base"])
    extract(archive, work)
    for edit in case["edits"]:
        _apply(root, edit)
    options |= case["config"]
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
