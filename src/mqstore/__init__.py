"""mqstore: read, check, repair and write the message store of an Apache RocketMQ broker, offline.

>>> import mqstore
>>> with mqstore.Store(path) as store:
...     mqstore.verify(store).status.value
'clean'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore.store.broker.filter import Where
    from mqstore.store.disk.broker_conf import BrokerConfig
    from mqstore.store.errors import StoreError
    from mqstore.store.library import Store, apply, recovery, undo
    from mqstore.store.log.batch import Batch, Extent
    from mqstore.store.log.message import Message
    from mqstore.store.put.new_message import NewMessage
    from mqstore.store.put.writer import StoreWriter, WriterOptions
    from mqstore.store.search.log_search import DamageWarning
    from mqstore.store.verify.run import verify
    from mqstore.store.verify.verdict import Verdict

_MODULES = {
    "Batch": "store.log.batch",
    "BrokerConfig": "store.disk.broker_conf",
    "DamageWarning": "store.search.log_search",
    "Extent": "store.log.batch",
    "Message": "store.log.message",
    "NewMessage": "store.put.new_message",
    "Store": "store.library",
    "StoreError": "store.errors",
    "StoreWriter": "store.put.writer",
    "Verdict": "store.verify.verdict",
    "Where": "store.broker.filter",
    "WriterOptions": "store.put.writer",
    "apply": "store.library",
    "recovery": "store.library",
    "undo": "store.library",
    "verify": "store.verify.run",
}
"""Where each name of the package lives; `mqstore.store.errors` has all errors."""

__all__ = [
    "Batch",
    "BrokerConfig",
    "DamageWarning",
    "Extent",
    "Message",
    "NewMessage",
    "Store",
    "StoreError",
    "StoreWriter",
    "Verdict",
    "Where",
    "WriterOptions",
    "apply",
    "recovery",
    "undo",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: the command line starts without it."""
    if name == "__version__":
        from importlib.metadata import version

        return version("mqstore")
    if name in _MODULES:
        return getattr(import_module(f"mqstore.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names of the package, loaded or not."""
    return sorted([*__all__, "__version__"])
