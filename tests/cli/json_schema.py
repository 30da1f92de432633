"""The part of JSON Schema that our schemas use; any other keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from mqstore.cli.record_types import schema_of

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


def errors(schema: Mapping[str, Any], value: Any, where: str = "$") -> Iterator[str]:
    """What is wrong with a value, each with its place."""
    for keyword, argument in schema.items():
        if keyword in _SILENT:
            continue
        check = _CHECKS[keyword]
        yield from check(argument, value, where, schema)


def _type(names: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    wanted = [names] if isinstance(names, str) else names
    if not any(_TYPES[name](value) for name in wanted):
        yield f"{where}: {value!r} is not of type {names}"


def _const(constant: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if value != constant:
        yield f"{where}: {value!r} is not {constant!r}"


def _enum(choices: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if value not in choices:
        yield f"{where}: {value!r} is none of {choices}"


def _pattern(pattern: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if isinstance(value, str) and not re.search(pattern, value):
        yield f"{where}: {value!r} does not match {pattern}"


def _minimum(least: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if isinstance(value, int) and value < least:
        yield f"{where}: {value} is less than {least}"


def _required(names: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{where}: {name} is missing" for name in names if name not in value)


def _properties(properties: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in properties.items():
            if name in value:
                yield from errors(inner, value[name], f"{where}.{name}")


def _additional(allowed: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name in value.keys() - schema.get("properties", {}).keys():
        if allowed is False:
            yield f"{where}: {name} is not known"
        else:
            yield from errors(allowed, value[name], f"{where}.{name}")


def _items(inner: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from errors(inner, item, f"{where}[{number}]")


def _one_of(schemas: Any, value: Any, where: str, schema: Any) -> Iterator[str]:
    fitting = sum(not any(errors(inner, value)) for inner in schemas)
    if fitting != 1:
        yield f"{where}: {fitting} of the alternatives fit, not one"


_SILENT = {"$schema", "title", "description", "contentEncoding"}
_CHECKS: Mapping[str, Callable[[Any, Any, str, Any], Iterator[str]]] = {
    "type": _type,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "minimum": _minimum,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "oneOf": _one_of,
}

_schema = cache(schema_of)


def wrong(record: dict[str, Any]) -> list[str]:
    """What is wrong with a record by the schema of its type."""
    return list(errors(_schema(record["type"]), record))
