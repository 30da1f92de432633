"""A job whose output becomes a directory: all at once or not at all, one job at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..disk.files import Files
from ..disk.layout import JOURNAL
from ..errors import NotAStore, Refused
from .stage import (
    REPLACES,
    Stage,
    may_be_left_in,
    one_job,
    put_back,
    remove_beside,
    remove_rows,
    require_outside,
)


@dataclass(frozen=True)
class Into:
    """How the output of jobs comes into their target, the same for all that meet there.

    publish: makes of a sealed stage what others see; repeating it does no harm. adds: something may
    be in the target, and what another job was cut off in is finished before. hint: where it may not.
    """

    publish: Callable[[Stage], None] = Stage.publish
    adds: bool = False
    hint: str = "--to takes a new directory"


_NEW = Into()


def publish_job(
    target: Path,
    job: Callable[[Stage], None],
    is_same: Callable[[Mapping[str, Any]], bool],
    files: Files | None = None,
    rows: Path | None = None,
    into: Into = _NEW,
) -> dict[str, Any]:
    """Run a job that fills and seals a stage; what it wrote becomes `target`: its manifest.

    target: a new or empty directory. is_same: whether a manifest is that of this job; one that was
    cut off while it published is finished instead. If the job fails, the target is as it was. rows:
    of `new_rows`, what the job is to be made of; those of others are removed.
    Raises Refused, InUse, NotAStore, NoSpace, Unreadable, and whatever the job raises.
    """
    files = files or Files()
    target = target.absolute()  # Spark's processes may have another current directory
    put_back(target, files)
    with one_job(target, files, existed=_require_directory(target, into)):
        remove_rows(target, files, rows)
        manifest = _take_over(is_same, target, files, into)
        if manifest is None:
            stage = Stage.begin(target, files)
            try:
                job(stage)
                manifest = stage.manifest()
                into.publish(stage)
            except BaseException:
                if not stage.sealed:
                    stage.remove()
                raise
            _remove_published(stage)
        return manifest


def publish_made(
    target: Path, job: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]
) -> dict[str, Any]:
    """`publish_job` for what is made in a folder at once: the manifest, `job` and what `make` tells."""

    def fill(stage: Stage) -> None:
        stage.seal({"job": job, **make(stage.tree)})

    return publish_job(target, fill, lambda found: found.get("job") == job)


def finish_left(target: Path, files: Files) -> bool:
    """Finish what was cut off while it published, remove other leftovers: whether one was finished.

    The caller has `one_job`.
    """
    finished = False
    for stage in Stage.left_in(target, files):
        if stage.sealed:
            stage.publish()
            finished = True
        stage.remove()
    return finished


def _require_directory(target: Path, into: Into) -> bool:
    """Whether the target exists. Raises NotAStore, Refused for one that no job was cut off in."""
    if target.exists() and not target.is_dir():
        raise NotAStore("not a directory", path=target, hint=into.hint)
    require_outside(target)
    if target.exists() and not into.adds and not may_be_left_in(target):
        require_empty(target, into.hint)
    return target.exists()


def _take_over(
    is_same: Callable[[Mapping[str, Any]], bool],
    target: Path,
    files: Files,
    into: Into,
) -> dict[str, Any] | None:
    """Finish a sealed job, remove what others left: its manifest if it is the same. Raises Refused."""
    finished = None
    for stage in Stage.left_in(target, files):
        if not stage.sealed:
            stage.remove()
            continue
        manifest = stage.manifest()
        if is_same(manifest):
            finished = manifest
        elif not into.adds or REPLACES not in manifest:
            raise Refused(
                "another job was cut off here while it published",
                path=stage.folder,
                hint="run that one again, or remove the folder",
            )
        into.publish(stage)
        _remove_published(stage)
    remove_beside(target, files)
    if finished is None and not into.adds:
        require_empty(target, into.hint)
    return finished


def _remove_published(stage: Stage) -> None:
    """Remove what is left of a stage; one that has replaced its target is gone with that."""
    if stage.folder.exists():
        stage.remove()


def require_empty(target: Path, hint: str = _NEW.hint) -> None:
    """Raise Refused for a target with more in it than what jobs have left."""
    held = sorted(path.name for path in target.iterdir() if path.name != JOURNAL)
    if held:
        raise Refused(f"the target is not empty ({held[0]} is in it)", path=target, hint=hint)
