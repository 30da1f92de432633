"""Writers of stores: tasks keep their rows aside, and one process writes them in order.

A log and what belongs to it has one writer, which knows where the last record ended. So a task
spools its rows as Arrow in a stage of the target; when all have succeeded, `commit` reads them in the
order of the partitions, writes the files through `store/write`, and publishes them all at once. The
target is a new or empty directory; order rows as they are to be written (`orderBy`, or
`repartition` and `sortWithinPartitions`).

If a task or the commit fails, the target is as it was. What a killed session has left, the next write
to the same target removes; where that session was killed while it published, it finishes that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ...store.arrow.ask import parse_object
from ...store.config import BrokerConfig
from ...store.errors import InvalidInput, NotAStore, Refused, from_os_error
from ...store.layout import JOURNAL, is_uri
from ...store.write.files import Files
from ..stage import Stage, may_be_left_in, one_job, remove_empty, require_outside
from .owner import require_gone, this_session

_SPOOL = "rows.arrow"
_MADE = "made_target"


@dataclass
class Spooled(WriterCommitMessage):
    """What one task has kept aside. partition: its place in the order of all."""

    partition: int
    attempt: str


class SpoolWriter(DataSourceArrowWriter):
    """Base of the writers. needed: columns that must be there. Raises InvalidInput, Refused."""

    needed: tuple[str, ...] = ()
    files: ClassVar[Files] = Files()
    """What changes the disk."""

    def __init__(
        self, options: Mapping[str, str], names: Sequence[str], overwrite: bool, more: set[str]
    ) -> None:
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - {"path", "broker_config"} - more):
            raise InvalidInput(f"no option {unknown[0]!r} here")
        if missing := [name for name in self.needed if name not in names]:
            raise InvalidInput(
                f"no column {missing[0]!r}", hint=f"needed: {', '.join(self.needed)}"
            )
        if overwrite:
            raise InvalidInput("what is there is not overwritten", hint='write .mode("append")')
        self.options = given
        self.config = BrokerConfig(parse_object(given, "broker_config"))
        self._stage = _begin(_new_directory(given.get("path", "")), self.files).folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Spooled:
        """Keep the rows of one task aside."""
        context = TaskContext.get()
        assert context is not None
        attempt = str(context.taskAttemptId())
        folder = Stage(self._stage, self.files).attempt(attempt)
        self.files.make_directory(folder)
        try:
            with (folder / _SPOOL).open("wb") as file:
                writer = None
                for rows in iterator:
                    writer = writer or pa.ipc.new_stream(file, rows.schema)
                    writer.write_batch(rows)
                if writer is not None:
                    writer.close()
        except OSError as error:
            raise from_os_error(error, folder, "cannot write") from error
        return Spooled(context.partitionId(), attempt)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Every task has succeeded: write the files and publish them."""
        stage = Stage(self._stage, self.files)
        spooled = [message for message in messages if isinstance(message, Spooled)]
        spooled.sort(key=lambda message: message.partition)
        try:
            self.replay(stage, (rows for one in spooled for rows in _read(stage, one)))
            stage.seal({"written": len(spooled)})
            stage.publish()
        except BaseException:
            if not stage.sealed:
                _give_up(stage)
            raise
        _give_up(stage)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task or the commit has failed: the target is as it was.

        A commit that was cut off while it published is finished: half of it may be there.
        """
        stage = Stage(self._stage, self.files)
        if stage.sealed:
            stage.publish()
        _give_up(stage)

    @abstractmethod
    def replay(self, stage: Stage, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows, in order, as files below `stage.tree`."""


def _new_directory(path: str) -> Path:
    """The target. Raises InvalidInput, NotAStore, Refused."""
    if not path or is_uri(path):
        raise InvalidInput("a store is written to a directory", hint='write .save("/data/new")')
    target = Path(path).absolute()
    if target.exists() and not target.is_dir():
        raise NotAStore("not a directory", path=target)
    require_outside(target)
    return target


def _begin(target: Path, files: Files) -> Stage:
    """A new stage in the target, rid of what killed sessions have left in it; no job comes between.

    Raises InUse, Refused for a target that is not empty.
    """
    if not may_be_left_in(target, files):
        remove_empty(target / JOURNAL, files)
        _require_empty(target)
    left = Stage.left_in(target, files)
    made = not target.exists() or any(_made_target(stage) for stage in left)
    with one_job(target, files, existed=not made):
        if _take_over(target, files):
            raise Refused(
                "a write that was cut off here is finished now",
                path=target,
                hint="read it, or remove it to write anew",
            )
        _require_empty(target)
        return Stage.begin(target, files, this_session() | {_MADE: made})


def _require_empty(target: Path) -> None:
    held = sorted(entry.name for entry in target.iterdir()) if target.exists() else []
    held = [name for name in held if name != JOURNAL]
    if held:
        raise Refused(f"the target is not empty ({held[0]} is in it)", path=target)


def _take_over(target: Path, files: Files) -> bool:
    """Finish or remove what killed sessions have left: whether there was one to finish.

    A stage without an owner is that of a job which had the lock, or is half removed.
    """
    finished = False
    for stage in Stage.left_in(target, files):
        require_gone(stage)
        if stage.sealed:
            stage.publish()
            finished = True
        _give_up(stage)
    return finished


def _read(stage: Stage, spooled: Spooled) -> Iterator[pa.RecordBatch]:
    path = stage.attempt(spooled.attempt) / _SPOOL
    if path.stat().st_size:
        with path.open("rb") as file, pa.ipc.open_stream(file) as rows:
            yield from rows


def _give_up(stage: Stage) -> None:
    """Remove the stage, and the target where it was made for it and is empty."""
    if not stage.folder.exists():
        return
    made = _made_target(stage)
    stage.remove()
    for folder in (stage.target / JOURNAL, *([stage.target] if made else [])):
        remove_empty(folder, stage.files)


def _made_target(stage: Stage) -> bool:
    """Whether the target was made for a stage."""
    return bool((stage.owner() or {}).get(_MADE, False))
