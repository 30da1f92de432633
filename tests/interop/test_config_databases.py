"""What the real managers load of damaged RocksDBs of the configuration, against `config_databases`."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.disk.layout import Layout
from mqstore.store.queues.rocksdb_copy import database_loss
from mqstore.store.settings.parse import parse
from mqstore.store.start.config_load import LoadAction, config_rules, load_databases

from .. import stores
from ..store.queues.test_rocksdb_copy import NEW, flip
from ..store.start.test_config_load import MERGED, beside
from .brokers import missing
from .managers import Managers

pytestmark = pytest.mark.interop

VERSIONS = ("5.3.3", "5.5.0", "5.5.1")
#: RocksDB → the file for which it stands, and the table of that.
TABLES = {
    "topics": ("topics.json", "topicConfigTable"),
    "subscriptionGroups": ("subscriptionGroup.json", "subscriptionGroupTable"),
}
CHANCE = random.Random(1)
Way = Callable[[Path], object]
WAYS: dict[str, Way] = {
    "missing": lambda path: path.unlink(),
    "garbage": lambda path: path.write_bytes(CHANCE.randbytes(200 + path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}
FILES = ("*.sst", "*.log", "CURRENT", "OPTIONS-*", "IDENTITY")


def _nothing(path: Path) -> None:
    assert path.is_dir()


def _emptied(path: Path) -> None:
    for entry in path.iterdir():
        entry.unlink()


def _a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"x")


def _each(pattern: str, way: Way) -> Way:
    def damage(path: Path) -> None:
        for file in sorted(path.glob(pattern)):
            way(file)

    return damage


WHOLE: dict[str, Way] = {
    "whole": _nothing,
    "an empty directory": _emptied,
    "no directory": shutil.rmtree,
    "a file": _a_file,
}


def damages() -> Iterator[tuple[str, Way]]:
    """Name and way of each kind of damage to the directory of a database."""
    yield from WHOLE.items()
    for pattern, what in product(FILES, WAYS):
        yield f"{pattern} {what}", _each(pattern, WAYS[what])
    for what in ("missing", "garbage", "empty"):
        yield f"MANIFEST {what}", _each("MANIFEST-*", WAYS[what])


def _emptied_by_a_start(path: Path) -> None:
    (path / "MANIFEST-000001").write_bytes(NEW)
    (path / "CURRENT").write_text("MANIFEST-000001\n")


@pytest.mark.parametrize(
    "damage",
    [
        _nothing,
        _emptied_by_a_start,
        _each("000010.log", WAYS["missing"]),
        _each("000010.log", lambda path: flip(path, path.stat().st_size // 3)),
        _each("MANIFEST-*", WAYS["cut"]),
    ],
)
def test_what_is_lost_is_told(damage: Way, tmp_path: Path) -> None:
    """The real manager loads what is left without a word; with the MANIFEST that is named for CURRENT all of it."""
    if why := missing("5.5.0"):
        pytest.skip(why)
    config = stores.unpack("5.5.0-rocksdb-killed", tmp_path) / "config"
    (config / "topics/000004.log").unlink()  # has once more what the tables have
    copy = tmp_path / "copy"
    with Managers("5.5.0") as managers:
        shutil.copytree(config, tmp_path / "whole/config")
        whole = _real(managers, tmp_path / "whole", "topics")
        damage(config / "topics")
        loss = database_loss(config / "topics")
        shutil.copytree(config, copy / "config")
        left = _real(managers, copy, "topics")
        assert whole is not None and left is not None and (left < whole) == (loss is not None)
        if loss is not None and loss.manifest:
            (config / "topics/CURRENT").write_text(f"{loss.manifest}\n")
            assert _real(managers, config.parent, "topics") == whole


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_databases(version: str, tmp_path: Path) -> None:
    if why := missing(version):
        pytest.skip(why)
    root, odd = stores.unpack(f"{version}-clean", tmp_path), list[str]()
    rules = config_rules(profile_of(version))
    with Managers(version) as managers:
        managers.load(root, [f"{name}/" for name in TABLES], persist=True)
        for path in (root / "config").iterdir():
            if path.is_file():  # a start merges these into the databases
                path.unlink()
        own = {name: set(_real(managers, tmp_path / "none", name) or ()) for name in TABLES}
        for name, (what, damage) in ((n, d) for n in TABLES for d in damages()):
            copy = tmp_path / f"{name} {what.replace('*', '')}"
            shutil.copytree(root / "config", copy / "config")
            damage(copy / "config" / name)
            file, table = TABLES[name]
            found = load_databases(Layout.of(copy), rules).get(file)
            real = _real(managers, copy, name)
            if found is None or found.start is LoadAction.REFUSES:
                told = None if found else set[str]()
            else:
                told = set(found.main.value[table]) - own[name]
            if told != (None if real is None else real - own[name]):
                odd.append(f"{name} {what}: {found and (found.start, found.reason)}, really {real}")
    assert not odd, "\n".join(odd)


def _real(managers: Managers, root: Path, name: str) -> set[str] | None:
    """The entries that a manager has, None where it refuses."""
    (root / "config").mkdir(parents=True, exist_ok=True)
    answer = managers.load(root, [f"{name}/"])[f"{name}/"]
    if not answer.get("loaded"):
        return None
    return set((parse(answer["table"].encode()).value or {})[TABLES[name][1]])


@pytest.mark.parametrize("name", MERGED)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_beside_a_database(version: str, name: str, tmp_path: Path) -> None:
    """What `load_table` says of each text, and of a .bak, in front of each RocksDB; all versions do the same."""
    if why := missing(version):
        pytest.skip(why)
    odd = list[str]()
    directory, table, _ = MERGED[name]
    with Managers(version) as managers:

        def real(root: Path) -> set[str] | None:
            answer = managers.load(root, [f"{directory}/"])[f"{directory}/"]
            return set((parse(answer["table"].encode()).value or {})[table]) if answer.get("loaded") else None

        (tmp_path / "none/config").mkdir(parents=True)
        own = real(tmp_path / "none") or set()
        for layout, text, wanted in beside(tmp_path, name):
            copy = tmp_path / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(layout.config, copy / "config")
            found = real(copy)
            if (None if found is None else found - own) != (None if wanted is None else wanted - own):
                odd.append(f"{text}: {wanted}, really {found}")
    assert not odd, "\n".join(odd)
