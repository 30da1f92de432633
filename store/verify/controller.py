"""The files of brokers with a controller: epochs and identity (I-170, I-171; spec 06, 6.2 and 6.3).

Both are looked at wherever they are: nothing in a store says that its broker has a controller still.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..counted import counted
from ..errors import Missing
from ..settings.read import BACKUP, ConfigFile, read_config_file
from .context import VerifyContext
from .register import after, before

_IDENTITY, _EPOCHS = "broker-identity", "epoch-file"
_TEMPORARY = "-temp"
_NAMES = {"cluster_name": "brokerClusterName", "broker_name": "brokerName"}
"""Parts of an identity, and the options that have to say the same."""


@after("I-170")
def epochs_are_those_of_the_log(context: VerifyContext) -> None:
    """The epoch file that a broker takes is whole, its epochs and offsets increase, and each begins with a
    record of the log, or at its end.
    """
    path = _path(context, "storePathEpochFile", "epochFileCheckpoint")
    file, backup = _read(path, _EPOCHS), _read(path.with_name(path.name + BACKUP), _EPOCHS)
    taken, problem = file, file.problem if file is not None else None
    if file is None or (problem is not None and not problem.gives_up):
        taken = backup
    if problem is not None:
        then = "; its .bak is whole" if taken is not file and _is_whole(taken) else ""
        text = f"cannot be read: {problem.reason}{then}"
        position, mend = problem.position, _mend(path)
        context.findings.add("I-170", os.fspath(path), text, offset=position, repair=mend)
    elif file is None and taken is not None and taken.problem is not None:
        text = f"missing, and its .bak cannot be read: {taken.problem.reason}"
        context.findings.add("I-170", os.fspath(path), text, repair="")
    if taken is not None and taken.problem is None:
        mend = _mend(path) if taken is file else ""
        for text in _odd_epochs(context, taken):
            context.findings.add("I-170", os.fspath(taken.path), text, repair=mend)


def _is_whole(file: ConfigFile | None) -> bool:
    return file is not None and file.problem is None


def _odd_epochs(context: VerifyContext, file: ConfigFile) -> Iterator[str]:
    """What is wrong with epochs that a broker takes."""
    if file.note:
        yield file.note
        return
    log, end = context.store.log, context.log.end
    rows = [(r["epoch"], r["start_offset"]) for r in file.records() if "start_offset" in r]
    if context.log.complete and not context.live:
        behind = [epoch for epoch, start in rows if start > end]
        if behind:
            more = f" (and {counted(len(behind) - 1, 'epoch')} before it)" if behind[1:] else ""
            yield f"the last epoch begins at {rows[-1][1]}, the log ends at {end}{more}"
    for epoch, start in rows:
        # what expired is not there any more, and a broker forgets its epochs
        if context.store.log_files.start < start < end and not log.begins_at(start):
            yield f"epoch {epoch} begins at {start}, where no record does: a slave cannot be cut there"


@before("I-171")
def the_identity_is_this_broker(context: VerifyContext) -> None:
    """Cluster, name and a number, in the file and in one that a registration has left; the names are
    those of the configuration, where that is given.
    """
    path = _path(context, "storePathBrokerIdentity", "brokerIdentity")
    for place in (path, path.with_name(path.name + _TEMPORARY)):
        file = _read(place, _IDENTITY)
        if file is None:
            continue
        for text, position in _odd_identity(context, file):
            mend = _mend(place) if file.problem is not None else ""
            context.findings.add("I-171", os.fspath(place), text, offset=position, repair=mend)


def _odd_identity(context: VerifyContext, file: ConfigFile) -> Iterator[tuple[str, int | None]]:
    """What is wrong with an identity, and where."""
    if file.problem is not None:
        yield file.problem.reason, file.problem.position
        return
    record: dict[str, Any] = next(iter(file.records()), {})
    for name, option in _NAMES.items():
        configured = context.store.config.get(option)
        if configured is not None and record.get(name) not in (None, configured):
            text = f"{option} is {configured!r}, the {name.replace('_', ' ')} here {record[name]!r}"
            yield f"{text}: the broker does not register", None


def _mend(path: Path) -> str | None:
    """The copy comes back, as the catalogue says; "" where there is none."""
    return None if path.with_name(path.name + BACKUP).exists() else ""


def _path(context: VerifyContext, option: str, name: str) -> Path:
    """Where the broker keeps a file: as configured, else in the root of the store."""
    root = context.store.layout.root
    return root / context.store.config.get(option, name)


def _read(path: Path, kind: str) -> ConfigFile | None:
    try:
        return read_config_file(path, kind)
    except Missing:
        return None
