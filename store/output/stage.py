"""The output of a job becomes a directory, one job at a time: stage, manifest, rename.

    PLACE/.mqstore/rebuild-JOB/
        attempts/ID/…     what one attempt at a task writes; a task may be tried more than once
        parts/…           what the tasks of a round leave for the next one
        tree/…            the files that count, under their final names
        manifest.json     from here on the job has succeeded, only renames are left to do

A target that does not exist is made beside its place, and gets its name when it is whole. In an existing target the
stage lies inside, and entries appear name by name: a rename moves no bytes, and needs nothing but the target, which
may be a mount point. A kill before the manifest leaves the target as it was; after a kill behind the manifest the
next job there first finishes what was interrupted.

What replaces a data set changes places with it, so that a reader finds the old one or the new one.

    PARENT/.NAME.mqstore-unfinished     PLACE of a target that does not exist
    PARENT/.NAME.mqstore-new            the new data set, until both have changed places; then the old one
    PARENT/.NAME.mqstore-old            the old one, on a file system that cannot exchange names at once
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from ..disk.compressed import read_regular
from ..disk.files import LARGEST_JOURNAL_BYTES, Files, refuse_links, remove_tree, write_new
from ..disk.layout import COMMIT_LOG, CONSUME_QUEUE, JOURNAL, UNFINISHED
from ..disk.lock import HALF_MADE, StoreLock, holder, is_incomplete
from ..errors import InvalidInput, NotAStore, Refused, StoreError, Unreadable, broken_link

DRAFT = ".draft"
"""Suffix of files in a stage whose target is read meanwhile, by readers that look everywhere."""
_PREFIX = "rebuild-"
_ROWS = "rows-"
_LOCK = "rebuild.lock"
_BUSY_HINT = "wait until the other job has ended"
_MEANWHILE = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)


class Stage(NamedTuple):
    """The folder of one job below the target. `begin` makes it, `left_in` finds those left behind."""

    folder: Path
    files: Files

    @classmethod
    def begin(cls, target: Path, files: Files) -> Stage:
        """Make a new stage in `target`, a directory. Raises NoSpace, Unreadable."""
        stage = cls(target / JOURNAL / f"{_PREFIX}{uuid4().hex}", files)
        try:
            files.make_directory(stage.tree)
        except BaseException:
            if stage.folder.exists():
                stage.remove()
            raise
        return stage

    @classmethod
    def left_in(cls, target: Path, files: Files) -> list[Stage]:
        """Return the stages of jobs that were interrupted."""
        return [cls(folder, files) for folder in sorted((target / JOURNAL).glob(_PREFIX + "*"))]

    @property
    def target(self) -> Path:
        return self.folder.parents[1]

    @property
    def tree(self) -> Path:
        return self.folder / "tree"

    @property
    def _manifest(self) -> Path:
        return self.folder / "manifest.json"

    def attempt(self, identity: str) -> Path:
        """Return where the attempt of that name puts its files, as in the target."""
        return self.folder / "attempts" / identity

    @property
    def sealed(self) -> bool:
        """Whether the job of the stage has succeeded."""
        return self._manifest.exists()

    def manifest(self) -> dict[str, Any]:
        """Return what `seal` was given. Raises Unreadable."""
        try:
            found: dict[str, Any] = json.loads(read_regular(self._manifest, LARGEST_JOURNAL_BYTES))
        except ValueError as error:
            raise Unreadable("not a manifest", path=self._manifest) from error
        if not isinstance(found, dict):
            raise Unreadable("not a manifest", path=self._manifest)
        return found

    def collect(self, written: Iterable[tuple[str, str] | tuple[str, str, str]]) -> None:
        """Move files from their attempts into the tree: (attempt, path below the target).

        A third element is the path in the tree if that differs.
        """
        folders = set()
        for identity, path, *other in written:
            final = self.tree / (other[0] if other else path)
            if final.parent not in folders:
                folders.add(final.parent)
                self.files.make_directory(final.parent)
            self.files.rename(self.attempt(identity) / path, final)
        for folder in sorted(folders):
            self.files.sync_directory(folder)

    def seal(self, manifest: Mapping[str, Any]) -> None:
        """Record that the job has succeeded: the tree is complete. The manifest appears whole or not at all."""
        draft = self._manifest.with_suffix(".draft")
        write_new(self.files, draft, json.dumps(manifest, indent=1).encode())
        self.files.rename(draft, self._manifest)
        self.files.sync_directory(self.folder)

    def publish(self) -> None:
        """Rename the top entries of the tree into the target. Repeating it does no harm."""
        for path in sorted(self.tree.iterdir()) if self.tree.exists() else []:
            self.files.rename(path, self.target / path.name)
        self.files.sync_directory(self.target)

    def remove(self) -> None:
        """Remove the stage, the manifest last: until then it says that the job has succeeded."""
        remove_tree(self.folder, self.files, last=self._manifest.name)


class Unflushed(Files):
    """For attempts, whose files are moved one by one: only `Stage.collect` has to make names durable."""

    def sync_directory(self, path: Path) -> None:
        """Do nothing: `Stage.collect` syncs the directories."""


def new_rows(target: Path, files: Files) -> Path:
    """Make a folder in `target` for rows that a Spark session keeps until it has all of them."""
    folder = target / JOURNAL / f"{_ROWS}{uuid4().hex}"
    files.make_directory(folder)
    return folder


def remove_rows(target: Path, files: Files, but: Path | None = None) -> None:
    """Remove rows of sessions that were interrupted, or are to give up; keep the folder `but`."""
    for folder in sorted((target / JOURNAL).glob(_ROWS + "*")):
        if folder != but:
            Stage(folder, files).remove()


@contextmanager
def one_job(target: Path, files: Files, like: Path | None = None) -> Iterator[Path]:
    """Keep other jobs out of `target`. Yields the place where this job works: the target, or the place beside it while
    the target does not exist, or is empty while something is beside it.

    Behind the block the folder of stages and the place beside are removed if they are empty. like: as of
    `make_directory`. Raises InUse if another job works there.
    """
    place, beside = target, _unfinished(target)
    with ExitStack() as others:
        if not target.exists() or (beside.exists() and not any(target.iterdir())):
            place = beside
        elif (beside / JOURNAL / _LOCK).exists():  # the target was made while another job works beside it
            others.enter_context(StoreLock.take(beside / JOURNAL / _LOCK, files, hint=_BUSY_HINT))
        yield from _locked(place, target, files, like)


def _locked(place: Path, target: Path, files: Files, like: Path | None) -> Iterator[Path]:
    """The block of `one_job`, with the lock of its place."""
    try:
        files.make_directory(place, like=like)
        files.make_directory(place / JOURNAL)
        with StoreLock.take(place / JOURNAL / _LOCK, files, hint=_BUSY_HINT) as held:
            try:
                yield place
            finally:
                for folder in (place, target):  # the lock goes where the place goes
                    if held.is_at(folder / JOURNAL / _LOCK):
                        files.unlink(folder / JOURNAL / _LOCK)
    finally:
        for folder in (place / JOURNAL, target / JOURNAL, *(() if place == target else (place,))):
            remove_empty(folder, files)


def remove_empty(folder: Path, files: Files) -> None:
    """Remove a folder if it is empty. Another job may remove it, or begin in it, meanwhile."""
    try:
        if not any(folder.iterdir()):
            files.remove_directory(folder)
    except FileNotFoundError:
        return
    except StoreError as error:
        if getattr(error.__cause__, "errno", None) not in _MEANWHILE:
            raise


def require_outside(target: Path) -> None:
    """Raise Refused for a target inside of a store, where it would be a part of the store, and for links in the place
    of what jobs keep in the target.
    """
    refuse_links(_kept_in(target))
    for parent in Path(os.path.realpath(target)).parents:
        if any((parent / part).is_dir() for part in (COMMIT_LOG, CONSUME_QUEUE)):
            raise Refused(f"the target lies in a store, {parent}", path=target)


def unpublished(target: Path) -> Stage | None:
    """Return the stage of a job that was interrupted before all of its output was in `target`, or None."""
    with suppress(StoreError):  # nobody holds a lock that is no file
        if holder(target / JOURNAL / _LOCK) is not None:
            return None  # the job is at work
    stages = Stage.left_in(target, Files())
    return next((stage for stage in stages if stage.sealed and any(stage.tree.glob("*"))), None)


def may_be_left_in(target: Path) -> bool:
    """Whether a job was interrupted in `target`, or works there."""
    journal = target / JOURNAL
    return any(any(journal.glob(name)) for name in (_PREFIX + "*", _ROWS + "*", _LOCK))


REPLACES = "replaces"
"""Key in a manifest of files whose names end in `.draft`: whether to remove what the target holds."""


def publish(stage: Stage) -> None:
    """Publish a sealed stage as its manifest says. Repeating it does no harm."""
    replaces = stage.manifest().get(REPLACES)
    if replaces is None:
        stage.publish()
    elif replaces:
        _replace(stage)
    else:
        _add(stage)


def _add(stage: Stage) -> None:
    """Rename each file into the target; the files that describe the others come last."""
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
    """Let the tree become the target. The stage lies in the old target, and goes with it."""
    files, target = stage.files, stage.target
    new, old = _new_and_old(target)
    if stage.tree.exists():
        if new.exists():
            remove_tree(new, files)
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
    """Give its name back to a data set whose replacement in two steps was interrupted."""
    _, old = _new_and_old(target)
    if not target.exists() and old.exists():
        files.rename(old, target)


def remove_beside(target: Path, files: Files) -> None:
    """Remove what was replaced, or begun. The caller knows that `target` is as it should be."""
    for folder in (*_new_and_old(target), _unfinished(target)):
        if folder.exists():
            remove_tree(folder, files)


def _new_and_old(target: Path) -> tuple[Path, Path]:
    return _hidden(target, f"{JOURNAL}-new"), _hidden(target, f"{JOURNAL}-old")


def _unfinished(target: Path) -> Path:
    return _hidden(target, UNFINISHED)


_NAME_BYTES_MAX = 255 - len(f".{UNFINISHED}")


def _hidden(target: Path, suffix: str) -> Path:
    """Return a place beside the target. Raises Refused if it, or what jobs keep in it, is a link, InvalidInput if its
    name is too long.
    """
    if len(os.fsencode(target.name)) > _NAME_BYTES_MAX:
        hint = f"give it a name of {_NAME_BYTES_MAX} bytes or less: the job works in a directory with a longer one"
        raise InvalidInput("the name of the target is too long", path=target, hint=hint)
    place = target.with_name(f".{target.name}{suffix}")
    refuse_links([place, *_kept_in(place)])
    return place


def _kept_in(place: Path) -> Iterator[Path]:
    """Yield what jobs keep in a place, or have left there: it is locked, moved or removed without a second look."""
    journal = place / JOURNAL
    yield from (journal, journal / _LOCK)
    for name in (_ROWS + "*", _PREFIX + "*", f"{_PREFIX}*/tree"):
        yield from journal.glob(name)


def _drafts(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob(f"*{DRAFT}") if not path.is_dir())


def _published(path: Path) -> str:
    return path.name.removesuffix(DRAFT)


class Into(NamedTuple):
    """What the output of a job may come into. adds: the target may hold something. hint: for a target that may not.
    again: called for what adds, with the manifest of another job that was finished first; returns a hint if that job
    may have added the same.
    """

    adds: bool = False
    hint: str = "--to takes a new directory"
    again: Callable[[Mapping[str, Any]], str] = lambda _: ""


_NEW = Into()


def publish_job(
    target: Path,
    job: Callable[[Stage], None],
    is_same: Callable[[Mapping[str, Any]], bool],
    files: Files | None = None,
    rows: Path | None = None,
    into: Into = _NEW,
    like: Path | None = None,
) -> dict[str, Any]:
    """Run a job that fills and seals a stage, make its output `target`, and return its manifest.

    target: a new or empty directory. is_same: whether a manifest is of this job. A job that was interrupted while it
    published is finished first; if that was this job, its manifest is returned. If the job fails, the target is as it
    was. rows: of `new_rows`, the input of the job; rows of others are removed. like: a directory whose owner and mode
    a new target gets, so that the same broker can use a store in it. Raises Refused, InUse, NotAStore, NoSpace,
    Unreadable, and whatever the job raises.
    """
    files = files or Files()
    target = target.absolute()  # Spark's processes may have another current directory
    put_back(target, files)
    _require_directory(target, into)
    with one_job(target, files, like) as place:
        remove_rows(place, files, rows)
        finished = finish_left(target, place, files)
        if finished or place == target:
            _require_nothing_sealed(_unfinished(target))
            remove_beside(target, files)
            place = target
        for manifest in finished:
            if is_same(manifest):
                return manifest
        for manifest in finished:
            if hint := into.again(manifest) if into.adds else into.hint:
                raise Refused(FINISHED, path=target, hint=hint)
        if not into.adds:
            require_empty(place, into.hint)
        stage = Stage.begin(place, files)
        try:
            job(stage)
            manifest = stage.manifest()
        except BaseException:
            if not stage.sealed:
                stage.remove()
            raise
        _finish(stage, target)
        return manifest


def publish_made(
    target: Path, job: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]], like: Path | None = None
) -> dict[str, Any]:
    """`publish_job` for output that `make` writes into a folder; the manifest is `job` and what `make` returns."""

    def fill(stage: Stage) -> None:
        stage.seal({"job": job, **make(stage.tree)})

    return publish_job(target, fill, lambda found: found.get("job") == job, like=like)


FINISHED = "the job that was interrupted here is finished now, with the data that it had read then"


def finish_left(target: Path, place: Path, files: Files) -> list[dict[str, Any]]:
    """Finish stages that were interrupted while they published, and remove the others. Return the manifests of the
    finished ones.

    The caller is in `one_job`, which gave the place.
    """
    finished = []
    for stage in Stage.left_in(place, files):
        if stage.sealed:
            finished.append(stage.manifest())
            _finish(stage, target)
        else:
            stage.remove()
    return finished


def _finish(stage: Stage, target: Path) -> None:
    """Publish a sealed stage, give the target its name if it was made beside, and remove the stage."""
    publish(stage)
    place, files = stage.target, stage.files
    if place != target:
        files.rename(place, target)
        files.sync_directory(target.parent)
    moved = Stage(target / stage.folder.relative_to(place), files)
    if moved.folder.exists():  # a stage that has replaced its target is gone with the old target
        moved.remove()


def _require_nothing_sealed(beside: Path) -> None:
    """Raise Refused for complete output that lacks only its name, which something else has taken meanwhile."""
    if any(stage.sealed for stage in Stage.left_in(beside, Files())):
        hint = "move away what is in its place and run that job again, or remove the output"
        raise Refused("there is unpublished output of a job that was interrupted", path=beside, hint=hint)


def _require_directory(target: Path, into: Into) -> None:
    """Raise NotAStore, Missing for a link to nothing, or Refused for a target that is not empty and where no job was
    interrupted.
    """
    if (broken := broken_link(target)) is not None:
        raise broken
    if os.path.lexists(target) and not target.is_dir():
        raise NotAStore("not a directory", path=target, hint=into.hint)
    require_outside(target)
    if target.exists() and not into.adds and not may_be_left_in(target):
        require_empty(target, into.hint)


def require_empty(target: Path, hint: str = _NEW.hint) -> None:
    """Raise Refused for a target that holds more than what jobs have left, InUse as `is_incomplete` does."""
    if is_incomplete(target):
        raise Refused(f"the target is not empty: {HALF_MADE}", path=target, hint=f"remove it; {hint}")
    held = sorted(path.name for path in target.iterdir() if path.name != JOURNAL)
    if held:
        raise Refused(f"the target is not empty ({held[0]} is in it)", path=target, hint=hint)
