"""The kinds of files and their layouts: what `--as`, `dump` and mqstore-store(5) go by.

The name of a kind is that of its module with dashes. `record_type` is the `type` of its records
in JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from construct import Construct

from . import (
    abort,
    batch_consume_queue,
    blank,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    dledger,
    index_file,
    lock,
    message,
    timer_check,
    timer_log,
    timer_wheel,
)


@dataclass(frozen=True)
class Kind:
    """One kind of file; `layouts` are its byte tables in the order they appear in the file."""

    name: str
    record_type: str
    layouts: tuple[tuple[str, Construct[Any, Any]], ...]
    #: Other modules whose description belongs to the kind.
    modules: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The docstring of the kind's module: what it is, who writes it, in which versions."""
        module = import_module(f".{self.name.replace('-', '_')}", __package__)
        return (module.__doc__ or "").strip()


_ALL = (
    Kind(
        "commit-log",
        "message",
        (("message", message.MESSAGE), ("blank", blank.BLANK)),
        ("message", "blank"),
    ),
    Kind("consume-queue", "consume_queue_unit", (("unit", consume_queue.UNIT),)),
    Kind(
        "consume-queue-ext",
        "consume_queue_ext_unit",
        (("unit", consume_queue_ext.UNIT), ("end", consume_queue_ext.END)),
    ),
    Kind("batch-consume-queue", "batch_consume_queue_unit", (("unit", batch_consume_queue.UNIT),)),
    Kind(
        "index-file",
        "index_item",
        (("header", index_file.HEADER), ("slot", index_file.SLOT), ("item", index_file.ITEM)),
    ),
    Kind("checkpoint", "checkpoint", (("checkpoint", checkpoint.FIELDS),)),
    Kind("abort", "abort", (("abort", abort.ABORT),)),
    Kind("lock", "lock", (("lock", lock.LOCK),)),
    Kind("timer-log", "timer_log_unit", (("unit", timer_log.UNIT), ("blank", timer_log.BLANK))),
    Kind("timer-wheel", "timer_wheel_slot", (("slot", timer_wheel.SLOT),)),
    Kind("timer-check", "timer_check", (("fields", timer_check.FIELDS),)),
    Kind("dledger", "message", (("entry", dledger.ENTRY), ("blank", dledger.BLANK))),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
