"""Before a store is written to: is it one, is it a kind that can be, was it shut down cleanly?"""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from ..broker.profiles import NEWEST
from ..broker.write_profile import WriterProfile, writer_profile
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.checkpoint import read_checkpoint
from ..disk.layout import Layout
from ..errors import NotAStore, Refused, Unclean, Unsupported, from_os_error
from .tail import Tail

_LOCK = "lock"
_CONFIG, _TOPICS = "config", "topics.json"


def find_layout(root: str | PathLike[str], config: BrokerConfig) -> Layout:
    """The layout of a store, or of one to be: `root` is not there, empty, or has only its topics.

    Raises NotAStore for a directory that holds other things, Unreadable.
    """
    root = Path(root)
    try:
        names = set(os.listdir(root))  # noqa: PTH208
    except FileNotFoundError:
        names = set()
    except NotADirectoryError:
        raise NotAStore("not a directory", path=root, hint="a store is a directory") from None
    except OSError as error:
        raise from_os_error(error, root) from error
    if (root / _CONFIG / _TOPICS).is_file():
        names.discard(_CONFIG)
    return Layout.open(root, config) if names - {_LOCK} else Layout.of(root, config)


def check_layout(layout: Layout) -> None:
    """Raises Unsupported, Refused for a store that cannot be appended to."""
    for found, what in (
        (layout.dledger is not None, "a DLedger commit log"),
        (layout.rocksdb_queues, "consume queues in RocksDB"),
    ):
        if found:
            raise Unsupported(f"cannot append to a store with {what}", path=layout.root)
    with layout.commit_log_files() as log:
        size = layout.sizes.commit_log.value
        for file in log.files:
            if file.size == 0 and len(log.files) == 1:
                continue  # made, but never written: it gets its size when it is
            if file.size != size or file.start % size:
                raise Refused(
                    f"a commit log file of {counted(file.size, 'byte')} at {file.start},"
                    f" others have {size}",
                    path=file.path,
                    hint="no broker loads such a log; see mqstore inspect",
                )


def check_clean(layout: Layout) -> None:
    """Raises Unclean where `abort` tells of a crash, or a recovery was cut off.

    With the lock held nobody else is there who could be the reason.
    """
    what, command = "", "recover"
    if os.path.lexists(layout.abort):
        what = "not shut down cleanly: abort is there"
    if layout.journal.is_dir():
        from ..session.journal import State, unfinished

        journal = unfinished(layout.root, layout.journal)
        if journal is not None:
            undoing = journal.state is State.UNDO_CUT_OFF
            what = f"{'taking back a recovery' if undoing else 'a recovery'} was cut off"
            command = "undo" if undoing else "recover"
    if what:
        from ..next_commands import proposed  # numpy, which a write can do without

        raise Unclean(what, path=layout.root, hint=f"run: {proposed(layout, command)}")


def generation(layout: Layout, tail: Tail, wanted: str | None) -> WriterProfile:
    """How to write: as the generation wanted, else as the store's own, else as the newest.

    Raises InvalidInput for what is no version.
    """
    if wanted is not None:
        return writer_profile(wanted)
    checkpoint = read_checkpoint(layout.checkpoint)
    if tail.last is None and checkpoint is None:
        return writer_profile(NEWEST)
    if checkpoint and checkpoint.logics_physical_offset and layout.rocksdb_store.exists():
        # what only the newest generation leaves; asking for more would cost the import of numpy
        return writer_profile(NEWEST)
    from ..broker.generation import generation_of

    return writer_profile(generation_of(layout).version)
