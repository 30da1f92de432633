"""The files of brokers with a controller: epochs and identity (I-170, I-171; spec 06, 6.2 and 6.3)."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import Missing
from ..settings.read import BACKUP, ConfigFile, read_config_file
from .context import Scene
from .register import after, before


@after("I-170")
def epochs_follow_one_another(scene: Scene) -> None:
    """The epoch file is whole, its epochs and offsets increase, and the last begins in the log."""
    path = _path(scene, "storePathEpochFile", "epochFileCheckpoint")
    file = _read(path, "epoch-file")
    if file is None:
        return
    if file.problem is not None:
        backup = _read(path.with_name(path.name + BACKUP), "epoch-file")
        whole = backup is not None and backup.problem is None and not file.problem.gives_up
        then = "; its .bak is whole" if whole else ""
        text = f"cannot be read: {file.problem.reason}{then}"
        position, mend = file.problem.position, _mend(path)
        scene.findings.add("I-170", os.fspath(path), text, offset=position, repair=mend)
        return
    if file.note:
        scene.findings.add("I-170", os.fspath(path), file.note, repair=_mend(path))
        return
    starts = [row["start_offset"] for row in file.records() if "start_offset" in row]
    if starts and starts[-1] > scene.log.end and scene.log.complete:
        text = f"the last epoch begins at {starts[-1]}, the log ends at {scene.log.end}"
        scene.findings.add("I-170", os.fspath(path), text, repair=_mend(path))


@before("I-171")
def the_identity_can_be_read(scene: Scene) -> None:
    """Cluster, name and a number."""
    path = _path(scene, "storePathBrokerIdentity", "brokerIdentity")
    file = _read(path, "broker-identity")
    if file is not None and file.problem is not None:
        text = f"{file.problem.reason}"
        position, mend = file.problem.position, _mend(path)
        scene.findings.add("I-171", os.fspath(path), text, offset=position, repair=mend)


def _mend(path: Path) -> str | None:
    """The copy comes back, as the catalogue says; "" where there is none."""
    return None if path.with_name(path.name + BACKUP).exists() else ""


def _path(scene: Scene, option: str, name: str) -> Path:
    """Where the broker keeps a file: as configured, else in the root of the store."""
    root = scene.store.layout.root
    return root / scene.store.config.get(option, name)


def _read(path: Path, kind: str) -> ConfigFile | None:
    try:
        return read_config_file(path, kind)
    except Missing:
        return None
