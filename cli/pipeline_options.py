"""Options and output that commands of `pipeline` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..store.counted import bytes_text, counted
from .declared import Argument, Option, Options, bad_parameter, option, path_text
from .options import Common

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.watch import Done, Tell
    from ..store.arrow.stores import ReadOptions

_QUICKER_BYTES = 8 << 30
"""Size of a log from which Spark may be quicker; not for a cluster or for many stores. See docs/spark.md."""
_STORES = "Store directories, patterns, @FILE with one per line"
Stores = Annotated[list[str], Argument(metavar="STORE...", parser=path_text, help=f"{_STORES}, s3://BUCKET/STORE.")]


def _local(text: str) -> str:
    if "://" in text:
        raise bad_parameter(f"{text}: this command does not read object storage")
    return path_text(text)


LocalStores = Annotated[list[str], Argument(metavar="STORE...", parser=_local, help=f"{_STORES}.")]
To = Annotated[Path, Option("--to", metavar="DIR", help="A new or empty directory for the result.")]


class Spark(Options):
    master: str | None = option(
        "--master",
        metavar="URL",
        help="Spark master: spark://…, yarn, k8s://…, local[N]. Default: inside this process, on --jobs cores. "
        "--rate limits each Spark task; without --master it takes one core.",
    )
    conf: list[str] | None = option("--conf", metavar="KEY=VALUE", help="A Spark setting; overrides that of mqstore.")
    executor_memory: str | None = option("--executor-memory", metavar="SIZE", help="Memory of each executor: 2g, 8g, …")
    packages: str | None = option("--packages", metavar="A,B", help="Maven packages that Spark loads.")

    @property
    def meant(self) -> bool:
        """Whether `--master` asks for Spark. Raises BadParameter for another option of Spark without it."""
        if self.master is None and (names := self.said()):
            raise bad_parameter("an option of Spark; it needs --master", param_hint=names[0])
        return self.master is not None

    def place(self, common: Common) -> tuple[str, dict[str, str]]:
        """The Spark master, and Spark's settings by name.

        Raises BadParameter, SparkUnavailable if Spark is not installed.
        """
        from ..pipeline.spark import require_packages

        settings = self._settings()
        require_packages()
        cores = common.jobs or "*" if common.rate is None else 1  # several tasks would exceed the rate
        return self.master or f"local[{cores}]", settings

    def _settings(self) -> dict[str, str]:
        """The settings of all options; the last one of a key wins. Raises BadParameter."""
        named = {"spark.executor.memory": self.executor_memory, "spark.jars.packages": self.packages}
        settings = {key: value for key, value in named.items() if value is not None}
        for text in self.conf or ():
            key, equals, value = text.partition("=")
            if not equals or not key:
                raise bad_parameter(f"not KEY=VALUE: {text}", param_hint="--conf")
            settings[key] = value
        return settings


def warn_if_quicker_here(command: str, roots: Sequence[str], spark: Spark, common: Common) -> None:
    """Warn if Spark would run on this machine for one store with a small log."""
    from ..store.arrow.stores import log_sizes
    from ..store.disk.layout import is_uri

    if spark.master is not None or len(roots) != 1 or is_uri(roots[0]):
        return
    sizes, _ = log_sizes(roots, common.config())
    size = sum(sizes.values())
    if size < _QUICKER_BYTES:
        common.warn(f"mqstore {command} is quicker for one log of {bytes_text(size)}, and needs no JVM")


@contextmanager
def showing(
    what: str, total_bytes: int, stages: int | None, common: Common, *, in_bytes: bool = False
) -> Iterator[Tell]:
    """Show a progress bar for a job that reads `total_bytes`; yields the function that the job reports to.

    stages: number of Spark stages, None if not known; then the bar shows no progress, unless the job reports bytes
    (in_bytes). The bar ends with the block: print results after it.
    """
    with common.progress(what, total_bytes if stages or in_bytes else 0) as bar:
        bar.note("starting Spark")
        reached = bar.positions(0)

        def tell(done: Done) -> None:
            now = int(min(done.stages / stages, 1) * total_bytes) if stages else 0
            now = now if done.bytes is None else min(done.bytes, total_bytes)
            bar.note(words_of(done, stages))
            reached(now)

        yield tell


@contextmanager
def session_showing(
    what: str,
    total_bytes: int,
    stages: int | None,
    place: tuple[str, Mapping[str, str]],
    common: Common,
    *,
    in_python: bool = True,
) -> Iterator[SparkSession]:
    """Open a Spark session and show its jobs as `showing` does.

    place: of `Spark.place`. in_python: of `spark_session`. Raises SparkUnavailable.
    """
    from ..pipeline.spark import spark_session
    from ..pipeline.watch import watched

    with (
        showing(what, total_bytes, stages, common) as tell,
        spark_session(*place, in_python=in_python) as session,
        watched(session, tell),
    ):
        yield session


def words_of(done: Done, stages: int | None) -> str:
    """Stage, tasks and records per second of a running job. stages: None if not known.

    >>> from mqstore.pipeline.watch import Done
    >>> words_of(Done(1.25, 4, 16, 123456.7), 4)
    'stage 2 of 4, 4 of 16 tasks, 123,457 records/s'
    >>> words_of(Done(1.25), None)
    'stage 2'
    """
    now = int(done.stages) + 1
    words = [f"stage {now}" if stages is None else f"stage {min(now, stages)} of {stages}"]
    if done.of_tasks:
        words.append(f"{done.tasks} of {counted(done.of_tasks, 'task')}")
    if done.records_per_s >= 1:
        words.append(f"{done.records_per_s:,.0f} records/s")
    return ", ".join(words)


def damage_text(row: Mapping[str, Any]) -> str:
    """A part of a log that could not be read, in words.

    row: `store`, `position` and `size` (None for the whole log), `reason`.
    """
    at = "" if row["position"] is None else f" at {row['position']}, {counted(row['size'], 'byte')}"
    return f"{row['store']}{at} ({row['reason']})"


def refused_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """What to say of the messages that a new store lacks, since a broker would stop at them. row: of a manifest."""
    if count := row.get("refused", 0):
        yield counted(count, "message is left out:", "messages are left out:", form=",")
        yield from row["named_refused"]
        if more := count - len(row["named_refused"]):
            yield f"and {counted(more, 'message', form=',')} more"


def ask_of(roots: Sequence[str], since: str | None, until: str | None, common: Common) -> ReadOptions:
    """What is read of stores in this process. Raises InvalidInput."""
    from ..store.arrow.stores import FAIL_UNREADABLE, ReadOptions
    from ..store.search.selection import parse_range

    times, config = parse_range(since, until), dict(common.config())
    return ReadOptions(tuple(roots), times=times, on_damage=FAIL_UNREADABLE, config=config)


def source_options(common: Common, since: str | None = None, until: str | None = None) -> dict[str, str]:
    """Options of the Spark data sources for `--set`, `--broker-config`, `--rate`, `--since` and `--until`.

    Raises InvalidInput.
    """
    import json

    from ..store.search.selection import parse_range

    config, times = dict(common.config()), parse_range(since, until)
    options = {"broker_config": json.dumps(config)} if config else {}
    if common.rate is not None:
        options["rate"] = str(common.rate)
    if times.bounded:
        options |= {"since": str(times.since_ms), "until": str(times.until_ms)}
    return options
