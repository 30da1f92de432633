"""A schema as plain data, the steps that read a record, for readers that cannot wait for construct.

`formats.quick` reads by these steps; `man/generate.py` writes those of the schemas it needs to
`formats/quick_tables.py`.
"""

from __future__ import annotations

import re
from typing import Any

import construct as c

from .layout import Blob, Branch, Expression, FixedBytes, Node, Number, UnsupportedSchema, minimum_bytes, nodes_of

Step = tuple[Any, ...]
_LETTERS = {
    "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
}  # fmt: skip
_FIELD = re.compile(r"this\['(\w+)'\]")
_CONDITION = re.compile(r"\(this\['(\w+)'\] (&|==) (\d+)\)")


def steps_of(schema: c.Construct[Any, Any]) -> tuple[Step, ...]:
    """The steps that read a record of `schema`, in byte order.

    `("fields", struct format, names)`: fields of constant size. `("bytes", name, field)`: as many bytes as the value of
    the field. `("if", field, "&" | "==", number, steps, steps)`: the first steps if the condition holds, else the
    others. Raises UnsupportedSchema for a schema that cannot be expressed so.
    """
    return _steps(nodes_of(schema))


def _steps(nodes: tuple[Node, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    run: list[tuple[str, str]] = []
    for node in nodes:
        constant = _constant(node)
        if constant is not None:
            run.append(constant)
            continue
        steps += _fields(run)
        run = []
        if isinstance(node, Branch):
            field, operator, number = _condition(node)
            steps.append(("if", field, operator, number, _steps(node.yes), _steps(node.no)))
        elif isinstance(node, Blob) and node.prefix is None:
            steps.append(("bytes", node.path, node.scope + _named(node.length)))
        else:
            raise UnsupportedSchema(f"no plain step for {node}")
    return (*steps, *_fields(run))


def _constant(node: Node) -> tuple[str, str] | None:
    """Struct format and name of a field of constant size, None for others."""
    if isinstance(node, Number) and node.count is None and node.code.startswith((">", "|")):
        letter = _LETTERS.get(node.code[1:])
        return None if letter is None else (letter, node.path)
    return (f"{node.size}{'s' if node.path else 'x'}", node.path) if isinstance(node, FixedBytes) else None


def _fields(run: list[tuple[str, str]]) -> list[Step]:
    if not run:
        return []
    names = tuple(name for _, name in run if name)
    return [("fields", ">" + "".join(code for code, _ in run), names)]


def _named(length: Expression) -> str:
    match = _FIELD.fullmatch(repr(length))
    if match is None:
        raise UnsupportedSchema(f"not the value of a field: {length!r}")
    return match[1]


def _condition(branch: Branch) -> tuple[str, str, int]:
    match = _CONDITION.fullmatch(repr(branch.condition))
    if match is None:
        raise UnsupportedSchema(f"not a plain condition: {branch.condition!r}")
    return branch.scope + match[1], match[2], int(match[3])


def tables() -> str:
    """The content of `formats/quick_tables.py`."""
    from .. import consume_queue, message, message_id, primitives

    constants = {
        "UNIT_BYTES": consume_queue.UNIT_BYTES,
        "PRE_FILL": tuple(consume_queue.PRE_FILL.values()),
        "EXT_ADDRESS_MAX": consume_queue.EXT_ADDRESS_MAX,
        "MAGICS": (message.MAGIC_V1, message.MAGIC_V2),
        "SMALLEST": minimum_bytes(message.MESSAGE),
        "IPV4_BYTES": primitives.IPV4_BYTES,
        "IPV6_BYTES": primitives.IPV6_BYTES,
        "OFFSET_BYTES": c.Int64sb.sizeof(),
    }
    schemas = {
        "UNIT": consume_queue.UNIT,
        "MESSAGE": message.MESSAGE,
        "MESSAGE_ID_V4": message_id.MESSAGE_ID_V4,
        "MESSAGE_ID_V6": message_id.MESSAGE_ID_V6,
    }
    lines = ['"""Written by man/generate.py from the schemas; read by `quick`. Not to be edited."""']
    lines += ["", "# fmt: off", "# ruff: noqa"]
    lines += [f"{name} = {value!r}" for name, value in constants.items()]
    for name, schema in schemas.items():
        lines += [f"{name} = (", *(f"    {step!r}," for step in steps_of(schema)), ")"]
    return "\n".join(lines) + "\n"
