"""Exports into a data set that is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mqstore.cli.app import run
from mqstore.pipeline.export import export, here
from mqstore.store.arrow.data_set import Mode
from mqstore.store.arrow.export_files import ExportHow
from mqstore.store.disk.files import Files

HERE = here(lambda size: None)
SIZES = ["--set", "mappedFileSizeCommitLog=4096", "--set", "mappedFileSizeConsumeQueue=2000"]
OPTIONS = {"fields": "topic,body,position,store"}


def put(root: Path, *bodies: str, topic: str = "orders") -> Path:
    """Append a message for each body."""
    for body in bodies:
        assert run(["put", str(root), topic, body, "-q", "--output", os.devnull, *SIZES]) == 0
    return root


def exported(
    roots: Path | list[Path], target: Path, mode: Mode = Mode.NEW, files: Files | None = None, **options: Any
) -> dict[str, Any]:
    """Export in this process: the manifest."""
    stores = [str(root) for root in (roots if isinstance(roots, list) else [roots])]
    how = options.pop("how", ExportHow())
    return export(stores, {**OPTIONS, **options}, how, target, HERE, files, mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bodies(target: Path) -> list[str]:
    """What a reader finds, in the order of the log."""
    found = pq.read_table(target).sort_by([("store", "ascending"), ("position", "ascending")])
    return [body.decode() for body in found.column("body").to_pylist()]


def prepared(folder: Path) -> tuple[Path, Path]:
    """A store of a, b, c, d of which the data set has the first two."""
    root = put(folder / "store", "a", "b")
    exported(root, folder / "old", how=ExportHow(by_day=True))
    return put(root, "c", "d"), folder / "old"
