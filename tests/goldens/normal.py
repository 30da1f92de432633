"""What commands print and leave on the disk, without what is another in each run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

SESSIONS = ".mqstore"
_SESSION = re.compile(r"\d{8}T\d{6}\.\d{6}Z(x*)")
_BARRIER = re.compile(r"(mqstore-recover-)\d+-[0-9a-f]+")
_SECONDS = re.compile(r'("seconds": ?)[\d.e-]+')
_HEX_BYTES = 10
_CHUNK_BYTES = 1 << 16
_ROWS = 1000


def digest(data: bytes | str) -> str:
    """A short fingerprint."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()[: 2 * _HEX_BYTES]


def text_of(printed: str, names: dict[str, str]) -> str:
    """What was printed, folders and sessions by names of their own, JSON a field a line.

    names: path → what stands for it, the longest path first.
    """
    for path, name in names.items():
        printed = printed.replace(path, name)
    printed = _BARRIER.sub(r"\1PID-RANDOM", _SESSION.sub(r"SESSION\1", printed))
    printed = _SECONDS.sub(r"\g<1>0", printed)
    try:
        return json.dumps(json.loads(printed), indent=0, ensure_ascii=False)
    except ValueError:
        return printed


def rows_of(printed: str) -> str:
    """Many lines: a digest for each thousand, so that one sees about where two differ."""
    lines = printed.splitlines()
    blocks = (lines[at : at + _ROWS] for at in range(0, len(lines), _ROWS))
    return "\n".join([f"{len(lines)} lines", *(digest("\n".join(block)) for block in blocks)])


def files_of(root: Path, work: str = "") -> str:
    """A line for each file and directory below `root` but sessions: name, size, digest.

    work: of lists of records (`*.ndjson`) the digest is that without this folder, and there is no size.
    """
    return "\n".join(sorted(_files(root, work))) if root.is_dir() else "not there"


def _files(root: Path, work: str) -> Iterator[str]:
    for folder, directories, files in os.walk(root):
        if SESSIONS in directories:
            directories.remove(SESSIONS)
        for name in (*directories, *files):
            path = Path(folder, name)
            shown = str(path.relative_to(root))
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                yield f"{shown}/"
            elif work and name.endswith(".ndjson"):
                yield f"{shown} {digest(path.read_text('utf-8').replace(work, 'WORK'))}"
            elif stat.S_ISREG(status.st_mode):
                yield f"{shown} {status.st_size} {content_of(path)}"
            else:
                yield f"{shown} is no file"


def content_of(path: Path) -> str:
    """Digest of a file's bytes. Holes are not read: zeros count for nothing, wherever they come from."""
    total, zeros, at = hashlib.sha256(), bytes(_CHUNK_BYTES), 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        total.update(b"%d" % size)
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // _CHUNK_BYTES * _CHUNK_BYTES
            except OSError:
                break  # nothing but a hole
            chunk = os.pread(file.fileno(), _CHUNK_BYTES, at)
            if chunk != zeros[: len(chunk)]:
                total.update(b"\n%d " % at + chunk)
            at += _CHUNK_BYTES
    return total.hexdigest()[: 2 * _HEX_BYTES]
