"""Writing `rocketmq-log`: messages become a store, as a broker would append them.

A log has one writer. So a task keeps its rows aside, as an Arrow file where the target is made. When all tasks have
succeeded, `commit` appends the rows in the order of the partitions, and publishes the store at once. The target is a
new or empty directory; order rows as they are to be stored (`orderBy`).

If a task or the commit fails, the target is as it was. Of two sessions that write to one directory the one that began
last continues; the other fails. So the next write removes what a killed session has left, or finishes what was killed
while it published.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ...store.arrow.append_rows import NEEDED, NewStore, make_store, rows_of
from ...store.counted import counted
from ...store.disk.files import Files
from ...store.disk.layout import is_uri
from ...store.errors import InvalidInput, NotAStore, Refused, from_os_error
from ...store.library import settle_timers
from ...store.output import stage
from ...store.put.message_columns import left_out, new_times
from ...store.salvage.original import left_at

_ROWS = "rows"
_TAKEN = "a later write to this directory has begun"


@dataclass
class Kept(WriterCommitMessage):
    """The rows that one task has kept. partition: its number, which gives the order. rows: number of rows."""

    partition: int
    name: str
    rows: int


class LogSourceWriter(DataSourceArrowWriter):
    """Options: `path`, those of `NewStore.of`."""

    files: ClassVar[Files] = Files()
    """Makes all changes to the disk."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str], overwrite: bool) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self._target = _new_directory(given.pop("path", ""))
        self._how = NewStore.of(given)
        self._how.check(self._target)
        if missing := [name for name in NEEDED if name not in names]:
            raise InvalidInput(f"no column {missing[0]!r}", hint=f"needed: {', '.join(NEEDED)}")
        if overwrite:
            raise InvalidInput("existing output is not overwritten", hint='write .mode("append")')
        with stage.one_job(self._target, self.files) as place:
            if stage.finish_left(self._target, place, self.files):
                raise Refused(stage.FINISHED, path=self._target, hint="read it, or remove it and write again")
            stage.require_empty(place)
            stage.remove_rows(place, self.files)
            self._rows = stage.new_rows(place, self.files)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Kept:
        """Keep the rows of one task aside."""
        context = TaskContext.get()
        assert context is not None
        name = f"{context.taskAttemptId()}.arrow"
        count = 0
        try:
            with (self._rows / name).open("xb") as file:
                writer = None
                for rows in iterator:
                    writer = writer or pa.ipc.new_stream(file, rows.schema)
                    writer.write_batch(rows)
                    count += rows.num_rows
                if writer is not None:
                    writer.close()
        except FileNotFoundError as error:
            raise Refused(_TAKEN, path=self._target) from error
        except OSError as error:
            raise from_os_error(error, self._rows / name, "cannot write") from error
        return Kept(context.partitionId(), name, count)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the store of the rows of all tasks, which have succeeded, and publish it."""
        if not self._rows.exists():
            raise Refused(_TAKEN, path=self._target)
        kept = [message for message in messages if isinstance(message, Kept) and message.rows]
        kept.sort(key=lambda message: message.partition)

        def job(place: stage.Stage) -> None:
            folder = place.folder / _ROWS  # goes where the stage goes
            place.files.rename(self._rows, folder)
            rows = (rows for one in kept for rows, _ in rows_of(folder / one.name, "arrow"))
            made = make_store(place.tree, self._how, rows, self._finish)
            if made.refused:
                more = made.refused - 1
                said = made.named_refused[0] + (f" (and {counted(more, 'message', form=',')} more)" if more else "")
                raise InvalidInput(said, hint=f"leave the {'messages' if more else 'message'} out")
            place.seal(made.for_manifest())

        manifest = stage.publish_job(self._target, job, lambda _: False, self.files, self._rows)
        if damaged := manifest["skipped"] + manifest["marked"]:
            said = counted(damaged, "body failed its checksum", "bodies failed their checksums")
            warnings.warn(said, stacklevel=2)
        for said in (*new_times(manifest.get("times_replaced", 0)), *left_out(0, 0, manifest.get("tombstones", 0))):
            warnings.warn(said, stacklevel=2)
        if manifest.get("left"):
            left = left_at(self._target, manifest["left"], self._how.broker_config, self._how.as_broker)
            warnings.warn(f"{self._target}: {left}", stacklevel=2)

    def _finish(self, root: Path) -> str:
        return settle_timers(root, self._how.broker_config, self._how.as_broker)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave the target as it was: a task or the commit has failed.

        A commit that was interrupted while it published is finished: half of it may be there.
        """
        with stage.one_job(self._target, self.files) as place:
            if self._rows.exists():
                stage.Stage(self._rows, self.files).remove()
            stage.finish_left(self._target, place, self.files)


def _new_directory(path: str) -> Path:
    """Return the target. Raises InvalidInput, NotAStore, Refused."""
    if not path or is_uri(path):
        raise InvalidInput("a store is written to a directory", hint='write .save("/data/new")')
    target = Path(path).absolute()
    if target.exists() and not target.is_dir():
        raise NotAStore("not a directory", path=target)
    stage.require_outside(target)
    return target
