"""What `dump` and `inspect` print of each kind of file: a module per kind, with the name of the kind.

A module has `chunks` and `summary` (see `chunks.FileKindModule`), and is imported when its kind is asked for. Some
kinds share a module (`_SAME_AS`); all whose content `formats` describes as tables share `config_json`. A new kind needs
a module, a line in `formats/kinds.py`, and code in `store/inspect/recognise.py` that recognises it.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from .chunks import FileKindModule

_SAME_AS = {
    "abort": "checkpoint",
    "dledger": "commit-log",
    "lock": "checkpoint",
    "tiered-commit-log": "commit-log",
    "tiered-consume-queue": "consume-queue",
    "timer-check": "checkpoint",
}
"""Kinds that are printed as another kind."""


def file_kind(kind: str) -> FileKindModule:
    from ...formats.kinds import KINDS

    tables = kind in KINDS and KINDS[kind].tables
    name = "config_json" if tables else _SAME_AS.get(kind, kind).replace("-", "_")
    return cast(FileKindModule, import_module(f".{name}", __package__))
