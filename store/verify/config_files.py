"""The files of `config/` as such: whether they can be read, and what lies beside (I-140 … I-155)."""

from __future__ import annotations

import os
from typing import Any

from ...formats.kinds import KINDS, Syntax
from ..errors import Unsupported
from ..settings.read import FILES, TEMPORARY, ConfigFile, stand_in
from .catalogue import Severity
from .config_tables import DATABASES, FAMILIES, FAMILIES_5_4, config_tables
from .context import Scene
from .register import before

_METRICS = frozenset({"timermetrics", "transactionMetrics"})
_VERSION = "dataVersion"
_VERSIONS_APART = 100
"""So many changes between two times that a file is written are not unusual."""
_ONLY_USED_SINCE = "5.4"
_VERSIONED = ("topics", "subscriptionGroups")
_ASIDE = "mv {path} {aside}"
_RENAMED = "timermetrics" + TEMPORARY


def _checked(name: str) -> bool:
    """Statistics are told by I-134; a file without .bak is no table that a start needs."""
    kind = KINDS[FILES[name]]
    return name not in _METRICS and kind.syntax is Syntax.JSON


@before("I-140")
def a_file_can_be_read(scene: Scene) -> None:
    """The file or its .bak parses."""
    tables = config_tables(scene)
    for name, main in tables.main.items():
        backup = tables.backup[name]
        for file in (main, backup):
            if file is not None and file.path.is_dir():
                path, text = (
                    os.fspath(file.path),
                    "not a file but a directory, in the way of a broker that writes it",
                )
                scene.findings.add("I-140", path, text, severity=Severity.ERROR, repair=_ASIDE)
        if not _checked(name) or (main is None and backup is None):
            continue
        if main is not None and main.larger and main.problem is not None:
            scene.unread.append(f"config/{name}: {main.problem.reason}")
            continue
        if any(file is not None and file.problem is None for file in (main, backup)):
            continue
        file = main or backup
        assert file is not None and file.problem is not None
        if file.path.is_dir():
            continue
        instead = stand_in(main, tables.directory / name, FILES[name])
        text = f"cannot be read at byte {file.problem.position}: {file.problem.reason}; {instead}"
        scene.findings.add("I-140", os.fspath(file.path), text, offset=file.problem.position)


@before("I-141")
def file_and_backup_agree(scene: Scene) -> None:
    """A broker reads the file, not the .bak, and both are of about the same time."""
    tables = config_tables(scene)
    for name, main in tables.main.items():
        backup = tables.backup[name]
        if not _checked(name) or main is None or main.larger or (main.problem and backup is None):
            continue
        path = os.fspath(main.path)
        if main.problem is not None:
            if backup is not None and backup.problem is None:
                text = f"cannot be read ({main.problem.reason}); a broker reads its .bak"
                scene.findings.add("I-141", path, text, severity=Severity.WARNING)
        elif text := _odd_version(main, backup):
            scene.findings.add("I-141", path, text)


def _odd_version(main: ConfigFile, backup: ConfigFile | None) -> str:
    own = _counter(main.value)
    other = _counter(backup.value) if backup is not None and backup.problem is None else None
    if own is None:
        return "no dataVersion, its .bak has one" if other is not None else ""
    if own < 0:
        return f"dataVersion {own} is negative"
    if other is not None and not 0 <= own - other <= _VERSIONS_APART:
        return f"dataVersion {own}, that of its .bak {other}"
    return ""


def _counter(value: dict[Any, Any]) -> int | None:
    version = value.get(_VERSION)
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if isinstance(counter, int) and not isinstance(counter, bool) else None


@before("I-147")
def nothing_is_left_of_a_write(scene: Scene) -> None:
    """No file that a broker had begun to write."""
    directory = scene.store.layout.config
    names = sorted(os.listdir(directory)) if directory.is_dir() else []  # noqa: PTH208
    for name in names:
        if name.endswith(TEMPORARY):
            usual = scene.crashed or name == _RENAMED
            text = "left of a write that a kill cut short" if usual else "left of a write"
            level = Severity.INFO if usual else None
            scene.findings.add("I-147", os.fspath(directory / name), text, severity=level)


@before("I-155")
def databases_can_be_opened(scene: Scene) -> None:
    """Each RocksDB of the configuration opens and has its column families."""
    tables = config_tables(scene)
    for name in DATABASES:
        path = os.fspath(tables.directory / name)
        problem, families = tables.problems.get(name), tables.families.get(name)
        if isinstance(problem, Unsupported):
            scene.unread.append(f"config/{name}: {problem.hint or problem.message}")
        elif problem is not None:
            scene.findings.add("I-155", path, f"cannot be opened: {problem.message}")
        elif families is not None and (missing := _families(scene, name) - families):
            text = f"has no column family {', '.join(sorted(missing))}; a start makes it"
            scene.findings.add("I-155", path, text, severity=Severity.INFO)
        elif problem is None and families is None and _is_left(scene, name):
            text = "is no RocksDB any more, and the other databases of config/ are"
            scene.findings.add("I-155", path, text)


def _families(scene: Scene, name: str) -> frozenset[str]:
    """The column families that a broker of the store's generation makes."""
    if scene.profile.version < _ONLY_USED_SINCE:
        return FAMILIES
    return FAMILIES_5_4 if name in _VERSIONED else FAMILIES_5_4 - {"kvDataVersion"}


def _is_left(scene: Scene, name: str) -> bool:
    """A directory of that name stands beside databases, without being one, or is gone."""
    tables = config_tables(scene)
    others = set(tables.families) | set(tables.problems)
    return bool(others) and name not in others
