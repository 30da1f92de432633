"""mqstore: read, check, repair and write the message store of an Apache RocketMQ broker, offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore.store.store import Store

__all__ = ["Store"]


def __getattr__(name: str) -> Any:
    """Import `Store` when it is asked for: the command line starts without it."""
    if name == "Store":
        from mqstore.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
