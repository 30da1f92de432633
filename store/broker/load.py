"""Which files a broker's load takes (spec README, "Rules common to every MF-queue").

A load takes every file whose length is the configured one, by name; what it does with anything
else differs between versions and is data in `profiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..counted import counted
from ..disk.snapshot import Entry
from .profiles import LoadRules, OnOddFile

_NOT_MATCHED = "length not matched message store config value"


@dataclass
class LoadedFile:
    """A file that the broker has loaded: its start in the stream and its write position."""

    start: int
    wrote: int
    entry: Entry | None


@dataclass(frozen=True)
class Refusal:
    """A load that fails: the label of the case, the reason, the file."""

    case: str
    reason: str
    path: str


@dataclass(frozen=True)
class Loaded:
    """The outcome of loading one directory (or one log of several)."""

    files: list[LoadedFile]
    hidden: list[Entry]
    deleted: list[Entry]
    refusal: Refusal | None = None


def load_files(entries: Sequence[Entry], file_bytes: int, rules: LoadRules) -> Loaded:
    """Load the `entries` of a directory, sorted by name. Pure; nothing is deleted here."""
    files: list[LoadedFile] = []
    deleted: list[Entry] = []
    for i, entry in enumerate(entries):
        fault = _fault_of(entry, file_bytes, rules, last=i == len(entries) - 1)
        if fault is not None:
            action, refusal = fault
            if action is OnOddFile.HIDE:
                return Loaded(files, list(entries[i:]), deleted)
            if action is OnOddFile.REFUSE:
                return Loaded(files, [], [], refusal)
            if action is OnOddFile.DELETE:
                deleted.append(entry)
            continue
        start = _java_long(entry.name)
        if start is None:
            reason = f'NumberFormatException: For input string: "{entry.name}"'
            refusal = Refusal("foreign-name", reason, entry.path)
            return Loaded(files, [], [], refusal)
        files.append(LoadedFile(start, file_bytes, entry))
    return Loaded(files, [], deleted)


def _fault_of(
    entry: Entry, file_bytes: int, rules: LoadRules, last: bool
) -> tuple[OnOddFile, Refusal] | None:
    """What is done with an entry that is no whole file, None for one that is."""
    if entry.directory:
        if rules.directory is OnOddFile.HIDE and entry.size == file_bytes:
            return None
        reason = f"{_NOT_MATCHED}: a directory among the files"
        return rules.directory, Refusal("directory", reason, entry.path)
    if not entry.size and last:
        reason = f"{_NOT_MATCHED}: the last file is empty"
        return rules.empty_last, Refusal("empty-last-file", reason, entry.path)
    if entry.size != file_bytes:
        reason = f"{_NOT_MATCHED}: {counted(entry.size, 'byte')}, not {file_bytes}"
        return rules.wrong_length, Refusal("wrong-length", reason, entry.path)
    return None


def _java_long(name: str) -> int | None:
    """`Long.parseLong` of a file name."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isascii() or not digits.isdigit():
        return None
    value = int(name)
    return value if -(1 << 63) <= value < 1 << 63 else None


def truncate(files: list[LoadedFile], end: int, file_bytes: int) -> list[LoadedFile]:
    """`truncateDirtyFiles(end)`: give up what starts behind `end`; returns the files removed.

    The file that holds `end` keeps its bytes and gets its write position there; one that begins
    exactly at `end` stays, with nothing written.
    """
    removed = [f for f in files if f.start > end]
    files[:] = [f for f in files if f.start <= end]
    for file in files:
        if file.start + file_bytes > end:
            file.wrote = end % file_bytes
    return removed
