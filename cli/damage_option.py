"""`--on-damage` of commands that write messages."""

from __future__ import annotations

from typing import Annotated

import typer

from ..store.put.on_damage import OnDamage

__all__ = ["OnDamage", "OnDamageOption"]

OnDamageOption = Annotated[
    OnDamage,
    typer.Option(
        "--on-damage",
        help="Of a body that failed its checksum: fail, skip it, or mark: its copy fails, too.",
    ),
]
