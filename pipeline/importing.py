"""`pipeline import`: files of rows become a store, whole or not at all. No Spark: a log has one writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..store.arrow.append_rows import NewStore, make_store
from ..store.arrow.sorted_rows import sorted_batches
from ..store.write.files import Files
from .publishing import publish_job
from .stage import Stage


def import_store(
    files: Sequence[Path], target: Path, how: NewStore, note: Callable[[int], None]
) -> dict[str, Any]:
    """Make a store of the messages in files at `target`, a new or empty directory: the manifest.

    Their order is that of `sorted_batches`, which is told `note`, too. Raises as that, `make_store`,
    `publish_job`.
    """
    same = {"files": [str(path.absolute()) for path in files], "how": asdict(how)}

    def job(stage: Stage) -> None:
        made = make_store(stage.tree, how, sorted_batches(files, note))
        stage.seal({"job": same, **made.counts()})

    return publish_job(target, job, lambda found: found.get("job") == same, Files())
