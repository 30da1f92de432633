"""What the module of a kind says of a file, called as `dump` and `inspect` call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mqstore.cli.file_kinds import file_kind
from mqstore.cli.options import Common
from mqstore.store.inspect.recognise import recognise


def records(
    path: Path, kind: str | None = None, *, at: int | None = None, raw: bool = False, sizes: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """All records of its chunks. kind: what the file is, where its place does not tell it. sizes: for `--set`."""
    what = recognise(path, kind)
    chunks = file_kind(what.kind).chunks(what, at, raw, Common(set=[*sizes]))
    return [record for chunk in chunks for record in chunk.records()]


def summary(path: Path, kind: str | None = None, *, sizes: Sequence[str] = ()) -> dict[str, Any]:
    """What `inspect` tells of it."""
    what = recognise(path, kind)
    return file_kind(what.kind).summary(what, Common(set=[*sizes]))
