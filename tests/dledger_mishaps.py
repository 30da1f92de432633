"""Mishaps of a DLedger log: the real store `STORE`, and one to three things that went wrong with it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from mqstore.formats.dledger import HEADER_BYTES
from mqstore.formats.dledger_index import UNIT_BYTES

from .recovery_cases import sparse_copy

STORE = "5.3.3-dledger"
FILE_BYTES = 49152


class Victim:
    """A DLedger store, and chance."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.member = root / "dledger-n0"
        self.files = sorted((self.member / "data").iterdir())
        self.index = self.member / "index" / f"{0:020d}"
        self.starts = entry_starts(self.files)

    def write(self, path: Path, offset: int, data: bytes) -> None:
        if path.exists():
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(data)

    def at(self, position: int, data: bytes) -> None:
        """Write at a position of the log."""
        path = self.files[position // FILE_BYTES]
        if path.exists():
            room = path.stat().st_size - position % FILE_BYTES
            self.write(path, position % FILE_BYTES, data[: max(0, room)])


def entry_starts(files: list[Path]) -> list[int]:
    """Where the entries of a log begin."""
    found = []
    for number, path in enumerate(files):
        data, at = path.read_bytes(), 0
        while int.from_bytes(data[at : at + 4], "big") == 1:
            found.append(number * FILE_BYTES + at)
            size = int.from_bytes(data[at + 4 : at + 8], "big")
            if size < HEADER_BYTES:  # of an earlier mishap
                break
            at += size
    return found


def head(v: Victim) -> None:
    """A byte of an entry's head is another."""
    v.at(v.rng.choice(v.starts) + v.rng.randrange(HEADER_BYTES), v.rng.randbytes(1))


def body(v: Victim) -> None:
    """A byte of a record is another."""
    v.at(v.rng.choice(v.starts) + HEADER_BYTES + v.rng.randrange(150), v.rng.randbytes(1))


def page(v: Victim) -> None:
    """A page that was never written."""
    v.at(v.rng.randrange(v.starts[-1]) // 512 * 512, bytes(v.rng.choice([512, 4096])))


def torn(v: Victim) -> None:
    """The log ends in the middle of an entry."""
    begin = v.starts[-v.rng.randrange(1, 60)] + v.rng.randrange(1, 200)
    v.at(begin, bytes(FILE_BYTES))
    for path in v.files[begin // FILE_BYTES + 1 :]:
        path.unlink()


def index_gone(v: Victim) -> None:
    """The index is lost."""
    shutil.rmtree(v.member / "index", ignore_errors=True)


def index_zeros(v: Victim) -> None:
    """Units of the index are zeros."""
    first = v.rng.randrange(len(v.starts))
    v.write(v.index, first * UNIT_BYTES, bytes(UNIT_BYTES * v.rng.randrange(1, 90)))


def index_byte(v: Victim) -> None:
    """A byte of the index is another."""
    v.write(v.index, v.rng.randrange(len(v.starts) * UNIT_BYTES), v.rng.randbytes(1))


def checkpoint(v: Victim) -> None:
    """The member's checkpoint names another entry, or none."""
    path = v.member / "checkpoint"
    path.write_text(
        v.rng.choice(
            [
                "",
                "committedIndex=\n",
                "endIndex=5\n",
                *(f"committedIndex={n}\n" for n in (0, 7, len(v.starts) - 1, 10**6, -1)),
                f"committedIndex={v.rng.randrange(len(v.starts))}\n",
            ]
        )
    )


def times(v: Victim) -> None:
    """The checkpoint of the store is lost: what is dispatched after a crash begins at the first file."""
    (v.root / "checkpoint").write_bytes(bytes(4096))


def queue(v: Victim) -> None:
    """The last units of a queue are lost."""
    path = v.rng.choice(sorted((v.root / "consumequeue").rglob("0" * 17 + "*")))
    begin = v.rng.randrange(100) * 20
    v.write(path, begin, bytes(2000 - begin))


def last_file(v: Victim) -> None:
    """The last file is lost."""
    v.files[-1].unlink(missing_ok=True)


def any_file(v: Victim) -> None:
    """A file is lost, or too short."""
    path = v.rng.choice(v.files)
    if v.rng.random() < 0.5:
        path.unlink(missing_ok=True)
    elif path.exists():
        path.write_bytes(path.read_bytes()[:-100])


MISHAPS = (head, body, page, torn, index_gone, index_zeros, index_byte, checkpoint, times, queue)
RARE = (last_file, any_file)


def damaged(seed: int, base: Path, target: Path) -> list[str]:
    """A copy of the store with one to three mishaps, most often without a clean end; their names."""
    rng = random.Random(seed)
    shutil.copytree(base, target, copy_function=sparse_copy)
    if rng.random() < 0.8:
        (target / "abort").touch()
    chosen = rng.sample(MISHAPS, rng.randrange(0, 4))
    if rng.random() < 0.1:
        chosen.append(rng.choice(RARE))
    for mishap in chosen:
        mishap(Victim(target, rng))
    return [mishap.__name__ for mishap in chosen]
