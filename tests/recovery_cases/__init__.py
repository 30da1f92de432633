"""What starts of the real store classes did to damaged stores. See README.md here.

`CASES` are the cases in this folder: every kind of damage once; `all_cases()` gives those of
``../shared/recovery-cases``, where that folder is there. The project does not need it.
`feature_cases` and `all_feature_cases` are those of stores that use more than plain queues.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mqstore.store.disk.broker_conf import BrokerConfig

from ..archives import extract

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[2] / "shared" / "recovery-cases"
FEATURES = "features"

Case = dict[str, Any]

#: The sizes that all these stores were written with.
CONFIG = BrokerConfig(
    {
        "mappedFileSizeCommitLog": "8192",
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "10",
        "maxIndexNum": "200",
    }
)


def _read(folder: Path) -> Iterator[Case]:
    with gzip.open(folder / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@functools.cache
def cases() -> tuple[Case, ...]:
    """The cases of this folder."""
    return tuple(_read(HERE))


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """The cases of ``../shared``; those of this folder where it is missing."""
    return tuple(_read(SHARED)) if (SHARED / "cases.jsonl.gz").exists() else cases()


@functools.cache
def feature_cases() -> tuple[Case, ...]:
    """Every kind of damage of each feature once."""
    return tuple(_read(HERE / FEATURES))


@functools.cache
def all_feature_cases() -> tuple[Case, ...]:
    """All of ``../shared`` whose outcome is no matter of luck; those here where it is missing."""
    return tuple(case for case in _feature_cases() if not case.get("unstable"))


@functools.cache
def cases_of_either_order() -> tuple[Case, ...]:
    """Two log files of one name: where the store lay decides which of them a broker met first."""
    return tuple(case for case in _feature_cases() if case.get("unstable"))


def _feature_cases() -> tuple[Case, ...]:
    there = (SHARED / FEATURES / "cases.jsonl.gz").exists()
    return tuple(_read(SHARED / FEATURES)) if there else feature_cases()


def config_of(case: Case, root: Path) -> BrokerConfig:
    """What the store of a case is to be opened with."""
    if "config" not in case:
        return CONFIG
    texts = ((name, str(value)) for name, value in case["config"].items())
    return BrokerConfig({name: text.replace("{store}", str(root)) for name, text in texts})


def case_of(kind: str, version: str = "", exit: str = "") -> Case:
    """A case of this folder by its kind; the first that fits."""
    for case in (*cases(), *feature_cases()):
        fits = case["kind"] == kind and case["version"].startswith(version)
        if fits and exit in ("", case["exit"]):
            return case
    raise LookupError(f"no case {kind} {version} {exit}")


def base(name: str, work: Path) -> Path:
    """The undamaged store of that name, unpacked once below `work`; do not change it."""
    target = work / "bases" / name
    if not target.exists():
        folders = [folder / part for folder in (HERE, SHARED) for part in ("", FEATURES)]
        files = [folder / "bases" / f"{name}.tar.gz" for folder in folders]
        target.parent.mkdir(parents=True, exist_ok=True)
        extract(next(file for file in files if file.exists()), target.parent)
    return target


def damaged(case: Case, work: Path) -> Path:
    """The damaged store of a case, in a directory that the next call replaces."""
    source, target = base(case["base"], work), work / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=sparse_copy)
    for edit in case["edits"]:
        _EDITS[edit["op"]](target, edit)
    if topics := case.get("topics"):
        table = {path.name: {"topicName": path.name} for path in source.glob("*consumequeue/*")}
        table |= {name: {"topicName": name, "attributes": it} for name, it in topics.items()}
        (target / "config").mkdir(exist_ok=True)
        (target / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return target


def sparse_copy(source: str, target: str) -> None:
    """Copy a file with its holes: a timer wheel is nothing else."""
    with Path(source).open("rb") as file, Path(target).open("wb") as copy:
        size = os.fstat(file.fileno()).st_size
        begin = 0
        while begin < size:
            try:
                begin = os.lseek(file.fileno(), begin, os.SEEK_DATA)
            except OSError:
                break  # nothing but a hole
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            file.seek(begin)
            copy.seek(begin)
            copy.write(file.read(end - begin))
            begin = end
        copy.truncate(size)
    shutil.copystat(source, target)


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _write(store: Path, edit: dict[str, Any]) -> None:
    data = bytes.fromhex(edit["data"]) * edit.get("repeat", 1)
    _overwrite(store / edit["file"], edit["offset"], data)


def _fill(store: Path, edit: dict[str, Any]) -> None:
    _overwrite(store / edit["file"], edit["offset"], bytes([edit["byte"]]) * edit["size"])


def _move(store: Path, edit: dict[str, Any]) -> None:
    data = (store / edit["file"]).read_bytes()[edit["offset"] :][: edit["size"]]
    _overwrite(store / edit["to"], edit["to_offset"], data)


def _truncate(store: Path, edit: dict[str, Any]) -> None:
    os.truncate(store / edit["file"], edit["size"])


def _create(store: Path, edit: dict[str, Any]) -> None:
    path = store / edit["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes.fromhex(edit.get("data", "")).ljust(edit.get("size", 0), b"\0"))


def _delete(store: Path, edit: dict[str, Any]) -> None:
    path = store / edit["path"]
    shutil.rmtree(path) if path.is_dir() else path.unlink()


_EDITS: dict[str, Callable[[Path, dict[str, Any]], object]] = {
    "write": _write,
    "fill": _fill,
    "move": _move,
    "truncate": _truncate,
    "create": _create,
    "delete": _delete,
    "mkdir": lambda store, edit: (store / edit["path"]).mkdir(parents=True),
    "rename": lambda store, edit: (store / edit["path"]).rename(store / edit["to"]),
}
