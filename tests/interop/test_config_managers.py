"""What the real managers load of damaged configuration, against `config_load`."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mqstore.formats.kinds import KINDS
from mqstore.store.broker.profiles import profile_of
from mqstore.store.settings.parse import parse
from mqstore.store.settings.read import FILES
from mqstore.store.start.config import entries_of
from mqstore.store.start.config_load import LMQ_OFFSETS, RULES, LoadAction, LoadedConfig, Text, load_config

from .. import stores
from ..slices import SEED, share
from .brokers import missing
from .config_damage import BACKUP_WEIGHTS, WEIGHTS, damaged
from .managers import Managers
from .oracle import VERSIONS

pytestmark = pytest.mark.interop

#: Stores whose files have entries.
STORES = {
    "4.3.1": ("4.3.1-clean",),
    "4.9.7": ("4.9.7-clean", "4.9.7-cqext", "4.9.7-lmq"),
    "5.1.4": ("5.1.4-clean", "5.1.4-timer-clean", "5.1.4-v2"),
    "5.3.3": ("5.3.3-clean", "5.3.3-cqext", "5.3.3-lmq", "5.3.3-pop", "5.3.3-timer-clean"),
    "5.4.0": ("5.3.3-clean", "5.3.3-lmq", "5.3.3-pop", "5.3.3-timer-clean"),
    "5.5.0": ("5.5.0-clean", "5.5.0-pop", "5.5.0-timer-clean"),
    "5.5.1": ("5.5.0-clean", "5.5.0-pop", "5.5.0-timer-clean"),
}
#: Their managers drop entries at the load that are too old, or of another bloom filter.
DROPS = ("consumerFilter.json", "consumerOrderInfo.json")
FAST = 60
MANY = 3000


@pytest.fixture(scope="module")
def managers() -> Iterator[Callable[[str], Managers]]:
    """Those of a version; one JVM lives at a time."""
    found: dict[str, Managers] = {}

    def of(version: str) -> Managers:
        if why := missing(version):
            pytest.skip(why)
        if version not in found:
            for other in found.values():
                other.close()
            found.clear()
            found[version] = Managers(version)
        return found[version]

    yield of
    for one in found.values():
        one.close()


@cache
def _texts(version: str) -> dict[str, list[bytes]]:
    """Real texts of each file that the version knows."""
    found: dict[str, list[bytes]] = {}
    known = {*RULES[profile_of(version).version].known, LMQ_OFFSETS}
    with tempfile.TemporaryDirectory() as work:
        for name in STORES[version]:
            for path in sorted((stores.unpack(name, Path(work)) / "config").iterdir()):
                if path.name in known:
                    found.setdefault(path.name, []).append(path.read_bytes())
    return found


class Case(NamedTuple):
    """One file and its .bak."""

    name: str
    what: str
    main: bytes | None
    backup: bytes | None


def make(version: str, number: int) -> Case:
    """A case by its number."""
    chance = random.Random(f"{SEED} config {version} {number}")
    texts = _texts(version)
    name = chance.choice(sorted(texts))
    data = chance.choice(texts[name])
    kind, main = damaged(chance, data, WEIGHTS)
    other, backup = damaged(chance, data, BACKUP_WEIGHTS)
    return Case(name, f"{number}: {name} {kind}, .bak {other}", main, backup)


def differences(case: Case, judge: Managers, root: Path) -> Iterator[str]:
    """Where prediction and managers disagree."""
    directory = root / "config"
    directory.mkdir(exist_ok=True)
    for name, data in ((case.name, case.main), (f"{case.name}.bak", case.backup)):
        (directory / name).unlink(missing_ok=True)
        if data is not None:
            (directory / name).write_bytes(data)
    found = load_config(directory, case.name, RULES[profile_of(judge.version).version])
    real = judge.load(root, [case.name])[case.name]
    (directory / case.name).unlink(missing_ok=True)
    (directory / f"{case.name}.bak").unlink(missing_ok=True)
    starts = real.get("loaded", False)
    if _counts_as_broken(case, found, judge):
        return
    if starts is not (found.start is not LoadAction.REFUSES):
        yield f"{case.what}: {found.start} ({found.reason}), and really {real}"[:400]
    elif starts and case.name not in DROPS and "table" in real:
        yield from _other_entries(case, found, real, judge)


def _counts_as_broken(case: Case, found: LoadedConfig, judge: Managers) -> bool:
    """fastjson takes by chance what no `Grammar` has, another sign for a brace. To predict such a text as
    broken is never an all-clear; to predict a broken one as taken would be.
    """
    flipped = "a flipped bit" in case.what and not judge.version.startswith(("5.4", "5.5"))
    return flipped and found.start is not LoadAction.LOADS


def _other_entries(case: Case, found: LoadedConfig, real: dict[str, Any], judge: Managers) -> Iterator[str]:
    taken = entries_of(case.name, found.taken) if found.taken else {}
    table = parse(real["table"].encode()).value or {}
    own = _keys(judge, case.name)
    loaded = entries_of(case.name, Text(True, table))
    if set(loaded) - own != set(taken) - own:
        odd = sorted(set(taken) - own ^ set(loaded) - own, key=repr)
        yield f"{case.what}: {found.start}, differs in {odd[:3]}"
    elif differ := [key for key in taken if key in loaded and taken[key] != loaded[key]]:
        yield f"{case.what}: {found.start}, other values of {differ[:3]}"


@cache
def _keys(judge: Managers, name: str) -> set[Any]:
    """Entries that a manager has without any file."""
    real = judge.load("/nonexistent", [name])[name]
    return set(entries_of(name, Text(True, parse(real["table"].encode()).value or {})))


@pytest.mark.parametrize("version", VERSIONS)
def test_random_damage(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    judge = managers(version)
    odd = [o for n in range(FAST) for o in differences(make(version, n), judge, tmp_path)]
    assert not odd, "\n".join(odd)


GIB = 1 << 30
SIZES = (1 << 40, 3 * GIB, 300 * GIB + 6000, 5 * GIB)
#: Texts of the fixed combinations, instead of a real one.
TEXTS: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "blanks": b" \n",
    "NULs": bytes(512),
    "garbage": b"\x8f\x02 no configuration \xff",
    "null": b"null",
    "a list": b"[]",
    "a text": b'""',
    "a number": b"5",
    "an empty table": b"{}",
    "another member": b'{"other":{"x":1}}',
    "another member with a number": b'{"other":{0:1}}',
}
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda data: data,
    "cut": lambda data: data[: len(data) // 2],
    "garbage in the middle": lambda data: data[: len(data) // 2] + b"\xff\x8f" * 9,
    "NULs behind": lambda data: data + bytes(512),
    "twice": lambda data: data * 2,
    "another blank": lambda data: data.replace(b":", b":\x0b", 1),
    "no comma": lambda data: data.replace(b",", b" ", 1),
    "a counter of null": lambda data: re.sub(rb'"counter":\s*\d+', b'"counter":null', data),
}
BACKUPS = ("missing", "empty", "garbage", "whole", "cut", "null")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_in_the_place_of_a_file(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    """It is read as a broken file; what a broker writes then is not there at its next start."""
    judge, rules = managers(version), RULES[profile_of(version).version]
    name, config = "topics.json", tmp_path / "config"
    path, backup = config / name, config / f"{name}.bak"
    for text in (None, b"garbage", _texts(version)[name][0]):
        path.mkdir(parents=True)
        (path / "x").touch()
        if text is not None:
            backup.write_bytes(text)
        found = load_config(config, name, rules)
        real = judge.load(tmp_path, [name], persist=text != b"garbage")[name]
        assert real["loaded"] is (found.start is not LoadAction.REFUSES), (text, found, real)
        assert path.is_dir() or text is None, "a broker has written its table beside a .bak"
        shutil.rmtree(config)


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_beyond_what_a_field_holds(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    """A manager refuses the file, where it knows the field; 4.3 takes some of them, as other numbers."""
    judge, odd = managers(version), list[str]()
    for name, texts in _texts(version).items():
        for one in (field for table in KINDS[FILES[name]].tables for field in table.fields if field.type == "integer"):
            if version == "5.4.0" and one.name in ("counter", "count"):
                continue  # it refuses what is beyond an int, too
            if not (found := re.search(rb'("%s":\s*)-?\d+' % one.name.encode(), texts[0])):
                continue
            end = 1 << one.bits - 1
            for number in (end - 1, -end, end, -end - 1, f'"{end}"'):
                main = texts[0].replace(found[0], found[1] + str(number).encode(), 1)
                for backup in (main, None):
                    odd += differences(Case(name, f"{name} {one.name} {number}", main, backup), judge, tmp_path)
    assert not odd, f"{len(odd)}\n" + "\n".join(odd)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_sparse_files_of_any_size(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    """A broker reads them whole, and takes their length for an int."""
    judge, rules = managers(version), RULES[profile_of(version).version]
    root = stores.unpack(STORES[version][0], tmp_path)
    names = [name for name in ("topics.json", "timermetrics") if name in rules.known]
    there = [(root / "config" / n).read_bytes() for n in names if (root / "config" / n).exists()]
    for (name, content), size in product(zip(names, there, strict=False), SIZES):
        path, backup = root / "config" / name, root / "config" / f"{name}.bak"
        for text in (content, b"no JSON", None):
            path.write_bytes(content)  # 5.4 removes one that it cannot read
            backup.unlink(missing_ok=True)
            if text is not None:
                backup.write_bytes(text)
            os.truncate(path, size)
            told, found = judge.load(root, [name])[name], load_config(path.parent, name, rules)
            place = (name, size, text, told)
            assert bool(told.get("loaded")) == (found.start is not LoadAction.REFUSES), place
            assert (told.get("exception") == "OutOfMemoryError") == bool(found.dies), place


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_fixed_combinations(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    """Each text of each file, beside each .bak."""
    judge, odd = managers(version), list[str]()
    for name, texts in _texts(version).items():
        every = TEXTS | {what: change(texts[0]) for what, change in CHANGES.items()}
        for what, other in product(every, BACKUPS):
            case = Case(name, f"{name} {what}, .bak {other}", every[what], every[other])
            odd += differences(case, judge, tmp_path)
    assert not odd, f"{len(odd)}\n" + "\n".join(odd)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_much_random_damage(version: str, managers: Callable[[str], Managers], tmp_path: Path) -> None:
    judge = managers(version)
    numbers = range(FAST, FAST + share(MANY))
    odd = [o for n in numbers for o in differences(make(version, n), judge, tmp_path)]
    assert not odd, f"seed {SEED}: {len(odd)}\n" + "\n".join(odd[:40])
