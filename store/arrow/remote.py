"""Commit logs wherever they lie: in a store's directories, or in object storage by ranges.

Object storage is what `pyarrow.fs` reads: `s3://bucket/store`, `gs://…`, `file://…`. Compressed
files are not read there; `fetched.py` copies the other parts of a store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import fs

from ..disk.broker_conf import BrokerConfig
from ..disk.byte_reader import Unread
from ..disk.compressed import Plain
from ..disk.file_queue import Foreign, MappedFile, MappedFileQueue, size_of, start_of
from ..disk.layout import COMMIT_LOG, Layout, is_uri
from ..errors import Missing, StoreError, Unreadable, Unsupported
from ..log.commit_log import CommitLog

_BLOCK_BYTES = 1 << 20
"""What is fetched where a few bytes are wanted: around damage they are, many times."""
_BLOCKS = 8


def open_log(root: str, config: BrokerConfig) -> CommitLog:
    """The commit log of a store. Raises Missing, where a directory of it is not there, too, NotAStore,
    Unreadable."""
    if not is_uri(root):
        layout = Layout.open(root, config)
        for directory in layout.commit_log_directories:
            if not directory.is_dir():  # nobody would see that its messages are not there
                raise Missing(f"no {directory.name} here", path=directory.parent)
        return CommitLog.open(layout)
    return CommitLog(RemoteFiles.at(root))


def log_sizes(
    roots: Iterable[str], config: BrokerConfig
) -> tuple[dict[str, int], dict[str, StoreError]]:
    """Bytes of the log of each store, and why of the others none can be read."""
    sizes: dict[str, int] = {}
    unread: dict[str, StoreError] = {}
    for root in roots:
        try:
            log = open_log(root, config)
            with log.queue:
                sizes[root] = sum(file.size for file in log.files)
        except StoreError as error:
            unread[root] = error
    return sizes, unread


class RemoteFiles(MappedFileQueue):
    """The files of a log in object storage, read by ranges."""

    def __init__(
        self, place: fs.FileSystem, files: list[MappedFile], foreign: list[Foreign]
    ) -> None:
        super().__init__((), files, size_of(files), foreign)
        self._place = place
        self._opened: dict[str, Any] = {}
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    @classmethod
    def at(cls, root: str) -> RemoteFiles:
        """The log of the store at a URI. Raises Missing, Unreadable."""
        try:
            place, path = fs.FileSystem.from_uri(root)
            found = place.get_file_info(fs.FileSelector(f"{path.rstrip('/')}/{COMMIT_LOG}"))
        except FileNotFoundError:
            raise Missing(f"no {COMMIT_LOG} here", path=root) from None
        except (OSError, pa.ArrowException) as error:
            raise Unreadable(f"cannot list ({error})", path=root) from error
        files, foreign = _sorted_out(found)
        return cls(place, files, foreign)

    def read_file(self, file: MappedFile, offset: int, size: int) -> bytes:
        """Up to `size` bytes of one file from its byte `offset` on."""
        end = min(file.size, offset + size)
        if offset >= end:
            return b""
        if offset // _BLOCK_BYTES != (end - 1) // _BLOCK_BYTES:
            return self._fetch(file, offset, end - offset)
        start = offset - offset % _BLOCK_BYTES
        block = self._blocks.get((file.path, start))
        if block is None:
            while len(self._blocks) >= _BLOCKS:
                self._blocks.popitem(last=False)
            block = self._fetch(file, start, min(_BLOCK_BYTES, file.size - start))
            self._blocks[file.path, start] = block
        return block[offset - start : end - start]

    def _fetch(self, file: MappedFile, offset: int, size: int) -> bytes:
        """One range by one request."""
        try:
            if file.path not in self._opened:
                self._opened[file.path] = self._place.open_input_file(file.path)
            data: bytes = self._opened[file.path].read_at(size, offset)
        except OSError as error:
            raise Unreadable(f"cannot read ({error})", path=file.path) from error
        return data

    def fill(self, file: MappedFile, offset: int, buffer: memoryview) -> tuple[int, list[Unread]]:
        """Fill `buffer` from byte `offset` of one file on; the bytes there were."""
        data = self.read_file(file, offset, len(buffer))
        buffer[: len(data)] = data
        return len(data), []

    def content(self, file: MappedFile) -> Plain:
        """All of the file."""
        return Plain(file.size, "")

    def next_data(self, file: MappedFile, offset: int) -> int | None:
        """Object storage has no holes."""
        return offset if offset < file.size else None

    def data_end(self, file: MappedFile, offset: int) -> int:
        return file.size

    def forget(self, file: MappedFile, offset: int, size: int) -> None:
        """There is no page cache."""

    def descriptor(self, file: MappedFile) -> int:
        """Raises Unsupported: there is none."""
        raise Unsupported("object storage is read by ranges only", path=file.path)

    def close(self) -> None:
        """Close the files; a later read opens them again."""
        while self._opened:
            self._opened.popitem()[1].close()


def _sorted_out(found: Iterable[fs.FileInfo]) -> tuple[list[MappedFile], list[Foreign]]:
    files, foreign = [], []
    for info in found:
        start = start_of(info.base_name)
        if info.type is not fs.FileType.File:
            foreign.append(Foreign(info.path, "not a file"))
        elif start is None:
            foreign.append(Foreign(info.path, "its name is not a number"))
        else:
            files.append(MappedFile(info.path, start, info.size, False))
    return sorted(files, key=lambda file: file.start), foreign
