"""Options that the commands of `pipeline` share: stores, master, settings of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Common

if TYPE_CHECKING:
    from ..pipeline.watch import Tell

Stores = Annotated[
    list[str],
    typer.Argument(
        metavar="STORE...",
        help="Store directories, patterns, @FILE with one a line, s3://BUCKET/STORE.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="spark://…, yarn, k8s://…, local[N]. Default: inside this process, on --jobs cores.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; wins over ours."),
]
ExecutorMemory = Annotated[
    str | None,
    typer.Option("--executor-memory", metavar="SIZE", help="Memory of each executor: 2g, 8g, …"),
]
Packages = Annotated[
    str | None,
    typer.Option("--packages", metavar="A,B", help="Maven packages that Spark loads."),
]


def master_of(master: str | None, common: Common) -> str:
    """The master that is meant. Raises BadParameter for what a job cannot do."""
    if common.rate is not None:
        raise typer.BadParameter("a Spark job has no limit of reading", param_hint="--rate")
    return master or f"local[{common.jobs or '*'}]"


def settings_of(
    conf: Sequence[str] | None, executor_memory: str | None = None, packages: str | None = None
) -> dict[str, str]:
    """Spark's settings from `KEY=VALUE`, the last of a key wins. Raises BadParameter."""
    named = {"spark.executor.memory": executor_memory, "spark.jars.packages": packages}
    settings = {key: value for key, value in named.items() if value is not None}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"not KEY=VALUE: {text}", param_hint="--conf")
        settings[key] = value
    return settings


@contextmanager
def showing(what: str, total_bytes: int, stages: int, common: Common) -> Iterator[Tell]:
    """A progress bar for a job that works `total_bytes` off in so many stages of Spark."""
    done = 0
    with common.progress(what, total_bytes) as bar:

        def tell(stages_done: float) -> None:
            nonlocal done
            now = int(min(stages_done / stages, 1) * total_bytes)
            bar.advance(max(0, now - done))
            done = max(done, now)

        yield tell


def source_options(common: Common) -> dict[str, str]:
    """What `--set` and `--broker-config` mean to the sources."""
    import json

    config = dict(common.config())
    return {"broker_config": json.dumps(config)} if config else {}
