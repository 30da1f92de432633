"""Compressing files of a store, as people do who put old ones aside."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import zstandard


def gz(data: bytes) -> bytes:
    """As `gzip` does."""
    return gzip.compress(data, 6, mtime=0)


def zst(data: bytes) -> bytes:
    """As `zstd` does for a file."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def gz_members(data: bytes) -> bytes:
    """Several members, one of them empty, and padding, as `cat a.gz b.gz` and tapes make them."""
    third = len(data) // 3
    parts = (data[:third], b"", data[third : 2 * third], data[2 * third :])
    return b"".join(map(gz, parts)) + bytes(100)


def zst_frames(data: bytes) -> bytes:
    """Several frames without a size, and one that holds no data, as `pzstd` makes them."""
    plain = zstandard.ZstdCompressor(write_content_size=False)
    half = len(data) // 2
    skippable = b"\x50\x2a\x4d\x18" + b"\4\0\0\0" + b"skip"
    return plain.compress(data[:half]) + skippable + plain.compress(data[half:])


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": (".gz", gz),
    "zstd": (".zst", zst),
    "gzip members": (".gz", gz_members),
    "zstd frames": (".zst", zst_frames),
}
"""Name of a way to compress: suffix and function."""


def pack(path: Path, how: str = "gzip") -> Path:
    """Put a compressed file in the place of a plain one, as `gzip FILE`, with its times; returns its path."""
    suffix, packed = PACKERS[how]
    target = path.with_name(path.name + suffix)
    target.write_bytes(packed(path.read_bytes()))
    shutil.copystat(path, target)
    path.unlink()
    return target


def pack_below(folders: Iterable[Path], how: str) -> list[Path]:
    """Compress every file below some folders whose name is a number."""
    found = [path for folder in folders for path in sorted(folder.rglob("*"))]
    return [pack(path, how) for path in found if path.is_file() and path.name.isdecimal()]
