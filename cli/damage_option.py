"""`--on-damage`, an option of commands that write messages."""

from __future__ import annotations

from typing import Annotated

from ..store.put.on_damage import OnDamage
from .declared import Option

__all__ = ["OnDamage", "OnDamageOption"]

OnDamageOption = Annotated[
    OnDamage,
    Option(
        "--on-damage",
        help="A body that fails its checksum: fail; skip the message; mark: copy it, the copy fails, too.",
    ),
]
