"""Where a command that writes may write: in the store, and where its configuration says.

A store can come from anybody. A link in it that leads elsewhere, or a journal that names another
place, must not turn the repair of a store into a change of something else. The store's own
directories may be links to other disks where the user says so (`follow_links`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .compressed import refuse_compressed
from .file_queue import start_of
from .files import Files
from .layout import JOURNAL, Layout


def confine(files: Files, layout: Layout, *, follow_links: bool = False) -> None:
    """Let `files` change nothing but this store.

    Beside a log directory on another disk lies a session's folder on that disk. Raises Refused
    where a part of the store lies elsewhere, Unsupported where files of it are compressed: nothing has
    been written then.
    """
    refuse_compressed(layout)
    root = _plain(layout.root)
    named = [d for d in layout.commit_log_directories if not _plain(d).is_relative_to(root)]
    own = [*layout.commit_log_directories, *_directories(layout)] if follow_links else []
    roots = [root]
    for directory in (*named, *own):
        roots += [directory, directory.resolve().parent / JOURNAL]
    if layout.journal_place is not None:
        roots.append(layout.journal_place)
    files.confine(roots)
    for part in (*layout.commit_log_directories, *_directories(layout), *_files(layout)):
        files.check_inside(part)


def check_log_end(files: Files, layout: Layout, log_end: int) -> None:
    """The files that are written to next: the last ones of log and index. Raises Refused."""
    with layout.commit_log_files() as log:
        for file in log.files:
            if file.end >= log_end:
                files.check_inside(Path(file.path))
    if layout.index.is_dir():
        names = [path for path in layout.index.iterdir() if start_of(path.name) is not None]
        for path in sorted(names)[-1:]:
            files.check_inside(path)


def _plain(path: Path) -> Path:
    """The path without `..`: a link in it keeps its own name."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _directories(layout: Layout) -> Iterator[Path]:
    yield layout.consume_queue
    yield layout.batch_consume_queue
    yield layout.consume_queue_ext
    yield layout.index
    yield layout.timer_log
    yield layout.config


def _files(layout: Layout) -> Iterator[Path]:
    yield from (layout.abort, layout.lock, layout.checkpoint, layout.timer_wheel, layout.journal)
    for name in ("topics.json", "topics.json.bak", "topics.json.tmp"):
        yield layout.config / name
