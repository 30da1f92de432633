"""Searches in a store, against a filter over all of its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqstore.store.search.store import FoundMessage

NAME = "5.3.3-clean"
Record = dict[str, Any]


class Notes(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def positions(found: Iterator[FoundMessage]) -> list[int]:
    return [one.message.position for one in found]


def wanted(known: list[Record], condition: Callable[[Record], bool]) -> list[int]:
    return [record["physical_offset"] for record in known if condition(record)]


def has_key(record: Record, key: str) -> bool:
    properties = record["properties"]
    return key in properties.get("KEYS", "").split(" ") or key == properties.get("UNIQ_KEY")


def with_key(key: str) -> Callable[[Record], bool]:
    return lambda record: has_key(record, key)


def in_topic(topic: str) -> Callable[[Record], bool]:
    return lambda record: bool(record["topic"] == topic)
