"""How a stage of files becomes part of a data set that others read, or replaces it.

What is added appears file by file; the next job finishes what was cut off. What replaces a data set
changes places with it, so that whoever looks finds the old one or the new one:

    PARENT/.NAME.mqstore-new     the new one, until both have changed places; then the old one
    PARENT/.NAME.mqstore-old     the old one, on a file system where they cannot do that at once
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..disk.files import Files
from ..disk.layout import JOURNAL
from .stage import DRAFT, Stage, remove_all

REPLACES = "replaces"
"""In a manifest: whether what the target holds is to go."""


def publish(stage: Stage) -> None:
    """Publish a sealed stage of files whose names end in `.draft`. Repeating it does no harm."""
    if stage.manifest().get(REPLACES):
        _replace(stage)
    else:
        _add(stage)


def _add(stage: Stage) -> None:
    """Rename each file into the target; what tells of the others is the last one."""
    folders = {stage.target}
    for path in sorted(_drafts(stage.tree), key=lambda path: (path.name.startswith("_"), path)):
        final = stage.target / path.relative_to(stage.tree).with_name(_published(path))
        if final.parent not in folders:
            folders.add(final.parent)
            if not final.parent.exists():
                stage.files.make_directory(final.parent)
        stage.files.rename(path, final)
    for folder in sorted(folders):
        stage.files.sync_directory(folder)


def _replace(stage: Stage) -> None:
    """Let the tree become the target. The stage lies in the old one, and goes with it."""
    files, target = stage.files, stage.target
    new, old = _beside(target)
    if stage.tree.exists():
        if new.exists():
            remove_all(new, files)
        files.rename(stage.tree, new)
    for path in sorted(_drafts(new)):
        files.rename(path, path.with_name(_published(path)))
    for folder in {new, *(path.parent for path in new.rglob("*"))}:
        files.sync_directory(folder)
    if not files.exchange(new, target):
        files.rename(target, old)
        files.rename(new, target)
    files.sync_directory(target.parent)
    remove_beside(target, files)


def put_back(target: Path, files: Files) -> None:
    """Give a data set its name again that was cut off while it was replaced in two steps."""
    _, old = _beside(target)
    if not target.exists() and old.exists():
        files.rename(old, target)


def remove_beside(target: Path, files: Files) -> None:
    """Remove what was replaced. The caller knows that `target` is what it is to be."""
    for folder in _beside(target):
        if folder.exists():
            remove_all(folder, files)


def _beside(target: Path) -> tuple[Path, Path]:
    hidden = f".{target.name}{JOURNAL}"
    return target.with_name(f"{hidden}-new"), target.with_name(f"{hidden}-old")


def _drafts(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob(f"*{DRAFT}") if not path.is_dir())


def _published(path: Path) -> str:
    return path.name.removesuffix(DRAFT)
