"""Damage to the layout, I-001 … I-015."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from mqstore.store.disk.file_queue import file_name
from mqstore.store.search.store import StoreReader
from tests.failing_disk import fail_here

from . import on

_HOUR_S = 3600
_PAGE_BYTES = 4096
_WORDS = ("backup", "nohup.out", "00000000000000000000.bak", "x", "lost+found", ".swp", "copy of log")


def _log(store: Path) -> list[Path]:
    return sorted(p for p in (store / "commitlog").iterdir() if p.name.isdigit())


def _queues(store: Path, files: int = 1) -> list[Path]:
    """Queue directories with so many files."""
    found = (p for p in (store / "consumequeue").glob("*/*") if p.is_dir())
    return sorted(p for p in found if len(list(p.iterdir())) >= files)


def _directory(store: Path, random: Random) -> Path:
    """The log's or that of a queue."""
    return random.choice([store / "commitlog", random.choice(_queues(store))])


def _size(directory: Path) -> int:
    return max(p.stat().st_size for p in directory.iterdir())


def i_001(store: Path, random: Random) -> str:
    """A file of the right length with the wrong number for a name."""
    directory = _directory(store, random)
    size = _size(directory)
    start = random.randrange(1, 10 * size)
    start += start % size == 0
    name = str(start) if random.random() < 0.5 else file_name(start)
    (directory / name).touch()
    os.truncate(directory / name, size)
    return f"{directory.name}/{name} added"


@on("5.3.3-killed", "4.9.7-killed")
def i_002(store: Path, random: Random) -> str:
    """A file in the middle is gone, or the last one has moved on."""
    choice = random.randrange(3)
    if choice == 0:
        path = _log(store)[1]
        path.unlink()
        return f"{path.name} removed"
    directory = random.choice(_queues(store, 3)) if choice == 1 else store / "commitlog"
    files = sorted(p for p in directory.iterdir() if p.name.isdigit())
    if choice == 1:
        path = random.choice(files[1:-1])
        path.unlink()
        return f"{path.relative_to(store)} removed"
    far = int(files[-1].name) + random.randrange(1, 5) * _size(directory)
    files[-1].rename(directory / file_name(far))
    return f"{files[-1].relative_to(store)} renamed to {far}"


def i_003(store: Path, random: Random) -> str:
    """A file has another length."""
    directory = _directory(store, random) if random.random() < 0.8 else store / "index"
    path = random.choice(sorted(directory.iterdir()))
    size = path.stat().st_size
    if len(list(directory.iterdir())) == 1 or directory.name == "index":
        path = random.choice(_log(store))  # one file of its kind shows no length
        size = path.stat().st_size
    new = random.choice([random.randrange(1, size), size + random.randrange(1, size)])
    os.truncate(path, new)
    return f"{path.relative_to(store)}: {size} -> {new} bytes"


def i_004(store: Path, random: Random) -> str:
    """A file is empty."""
    directory = _directory(store, random)
    files = sorted(p for p in directory.iterdir() if p.name.isdigit())
    path = directory / file_name(int(files[-1].name) + _size(directory))
    if random.random() < 0.5 and len(files) > 1:
        path = random.choice(files)
    path.write_bytes(b"")
    return f"{path.relative_to(store)} is empty"


def i_005(store: Path, random: Random) -> str:
    """Something else lies among the files."""
    path = _directory(store, random) / f"{random.choice(_WORDS)}{random.randrange(100)}"
    if random.random() < 0.4:
        path.mkdir()
    else:
        path.write_bytes(random.randbytes(random.randrange(2000)))
    return f"{path.relative_to(store)} added"


@on("5.3.3-multipath-killed-restarted", "5.3.3-multipath-killed")
def i_006(store: Path, random: Random) -> str:
    """A file of the log is in two directories."""
    with StoreReader(store) as opened:
        directories = list(opened.layout.commit_log_directories)
        path = Path(random.choice(opened.log_files.files).path)
    other = random.choice([d for d in directories if d != path.parent])
    shutil.copy(path, other / path.name)
    return f"{path.relative_to(store)} copied to {other.name}"


def i_007(store: Path, random: Random) -> str:
    """Files of zeros behind the end."""
    last = _log(store)[-1]
    size, count = last.stat().st_size, random.randrange(2, 6)
    for number in range(1, count + 1):
        path = last.with_name(file_name(int(last.name) + number * size))
        path.touch()
        os.truncate(path, size)
    return f"{count} files of zeros added"


def i_008(store: Path, random: Random) -> str:
    """The lock file says something else."""
    content = random.randbytes(random.randrange(1, 9))
    (store / "lock").write_bytes(content)
    return f"lock says {content!r}"


def i_009(store: Path, random: Random) -> str:
    """There is an abort file."""
    content = str(random.randrange(1, 1 << 16)) if random.random() < 0.5 else ""
    (store / "abort").write_text(content)
    return f"abort with {content!r}"


@on("5.3.3-rocksdb")
def i_010(store: Path, random: Random) -> str:
    """Topics beside a RocksDB."""
    topic = f"topic{random.randrange(1000)}"
    (store / "consumequeue" / topic / str(random.randrange(4))).mkdir(parents=True)
    return f"{topic} added"


def i_011(store: Path, random: Random) -> str:
    """A queue directory has no number for a name."""
    queue = random.choice(_queues(store))
    name = f"{queue.name}{random.choice(['.bak', '_old', ' copy', 'x', '-'])}"
    if random.random() < 0.5:
        queue.rename(queue.with_name(name))
    else:
        shutil.copytree(queue, queue.with_name(name))
    return f"{queue.relative_to(store)} as {name!r}"


def i_012(store: Path, random: Random) -> str:
    """A file that the owner of the store may not write, or that is not his."""
    path = random.choice(sorted(p for p in store.rglob("*") if p.is_file()))
    if os.geteuid() == 0 and random.random() < 0.5:
        os.chown(path, 12345, 12345)
        return f"{path.relative_to(store)} given away"
    path.chmod(0o444)
    return f"{path.relative_to(store)} is read-only"


def i_013(store: Path, random: Random) -> str:
    """An older file of the log was changed last."""
    older, newer = _log(store)[:2]
    time_s = newer.stat().st_mtime + random.randrange(120, 100 * _HOUR_S)
    os.utime(older, (time_s, time_s))
    return f"{older.name} touched"


@on("5.5.0-clean", "5.5.0-v2")
def i_014(store: Path, random: Random) -> str:
    """CURRENT, or what it names, is not there."""
    database = store / "rocksdbstore"
    manifest = next(database.glob("MANIFEST-*"))
    what = random.randrange(3)
    if what == 0:
        (database / "CURRENT").unlink()
    elif what == 1:
        manifest.unlink()
    else:
        (database / "CURRENT").write_text(f"MANIFEST-{random.randrange(10**6):06}x\n")
    return ("CURRENT removed", "MANIFEST removed", "CURRENT names another file")[what]


def i_015(store: Path, random: Random) -> str:
    """The disk does not give a page of a file."""
    path = random.choice([*_log(store), *sorted((store / "index").iterdir()), store / "checkpoint"])
    page = random.randrange(max(1, len(path.read_bytes().rstrip(b"\0")) // _PAGE_BYTES)) * _PAGE_BYTES
    fail_here(path, page, _PAGE_BYTES)
    return f"page {page} of {path.name} cannot be read"
