"""What `dump` and `inspect` say of each kind of file: one module per kind, named as the kind.

A module has `chunks` and `summary` (see `chunks.FileKindModule`). It is imported when its kind is asked
for; files whose content `formats` describes as tables share `config_json`. A new kind is a new
module, a line in `formats/kinds.py`, and what recognises it in `store/inspect/recognise.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .chunks import FileKindModule


def file_kind(kind: str) -> FileKindModule:
    """The module of a kind."""
    from ...formats.kinds import KINDS

    tables = kind in KINDS and KINDS[kind].tables
    name = "config_json" if tables else kind.replace("-", "_")
    return cast("FileKindModule", import_module(f".{name}", __package__))
