"""Manual pages in roff: one a command, and mqstore-store(5) for the formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from command_tree import Command, Parameter

from mqstore.cli.exit_codes import MEANINGS
from mqstore.formats.derive import table
from mqstore.formats.kinds import KINDS, FileKind

MANUAL = "mqstore manual"


def roff(text: str) -> str:
    """Text for a line of roff: nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text.startswith(".") else text


def marked_up(text: str) -> str:
    """As `roff`, with the backquoted parts in bold."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(f"\\fB{roff(part)}\\fR" if i % 2 else roff(part) for i, part in enumerate(parts))


def man1(command: Command, commands: list[Command]) -> str:
    """The page of a command."""
    name = command.name.replace(" ", "-")
    lines = [
        '.\\" Written by man/generate.py; change the docstrings instead.',
        f'.TH {roff(name.upper())} 1 "" "mqstore" "{MANUAL}"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(command.summary)}",
        ".SH SYNOPSIS",
        *_synopsis(command),
        ".SH DESCRIPTION",
        *_paragraphs(command.paragraphs),
        *_sub_commands(command, commands),
        *_arguments(command),
        *_options("OPTIONS", [option for option in command.options if not option.shared]),
        *_options("COMMON OPTIONS", [option for option in command.options if option.shared]),
        *_exit_status(),
        *_examples(command),
        ".SH SEE ALSO",
        ",\n".join(_see_also(command, commands)),
    ]
    return "\n".join(lines) + "\n"


def _synopsis(command: Command) -> Iterator[str]:
    words = " ".join(
        f"\\fI{roff(a.metavar)}\\fR" if a.required else f"[\\fI{roff(a.metavar)}\\fR]" for a in command.arguments
    )
    tail = "\\fICOMMAND\\fR \\&..." if command.is_group else words
    yield f"\\fB{roff(command.name)}\\fR [\\fIOPTIONS\\fR] {tail}".rstrip()


def _paragraphs(paragraphs: Iterable[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield marked_up(paragraph)


def _sub_commands(command: Command, commands: list[Command]) -> Iterator[str]:
    below = [c for c in commands if c.name == f"{command.name} {c.word}"]
    if below:
        yield ".SH COMMANDS"
    for each in below:
        yield from (".TP", f"\\fB{roff(each.word)}\\fR", f"{marked_up(each.summary)}.")


def _arguments(command: Command) -> Iterator[str]:
    if command.arguments:
        yield ".SH ARGUMENTS"
    for argument in command.arguments:
        yield from (".TP", f"\\fI{roff(argument.metavar)}\\fR", marked_up(argument.help))


def _options(title: str, options: list[Parameter]) -> Iterator[str]:
    if options:
        yield f".SH {title}"
    for option in options:
        names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option.names)
        value = f" \\fI{roff(option.metavar)}\\fR" if option.takes_value else ""
        yield from (".TP", names + value, marked_up(option.help) + _notes(option))


def _notes(option: Parameter) -> str:
    notes = []
    if option.default and option.takes_value:
        notes.append(f"Default: {roff(option.default)}.")
    if option.repeatable:
        notes.append("Can be given several times.")
    return "".join(f" {note}" for note in notes)


def _exit_status() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, meaning in MEANINGS.items():
        yield from (".TP", f"\\fB{code.value}\\fR", roff(meaning))


def _examples(command: Command) -> Iterator[str]:
    if command.examples:
        yield from (".SH EXAMPLES", ".EX", *map(roff, command.examples), ".EE")


def _see_also(command: Command, commands: list[Command]) -> Iterator[str]:
    for other in commands:
        if other.name != command.name:
            yield f"\\fB{roff(other.name.replace(' ', '-'))}\\fR(1)"
    yield "\\fBmqstore\\-store\\fR(5)"


def man5() -> str:
    """The page about the formats."""
    lines = [
        '.\\" Written by man/generate.py; change the docstrings in formats/ instead.',
        f'.TH MQSTORE\\-STORE 5 "" "mqstore" "{MANUAL}"',
        ".SH NAME",
        "mqstore\\-store \\- files of an Apache RocketMQ broker\\(aqs message store",
        ".SH DESCRIPTION",
        marked_up(
            "All integers are big-endian two's complement: i1, i2, i4, i8 have 1, 2, 4, 8 bytes and a "
            "sign, u4 has no sign. Times are milliseconds since 1970-01-01 UTC unless stated otherwise. "
            "For fields of bytes the number of bytes is given; … stands for a number that another field "
            "gives. Each field has the offset of its first byte, its type and its name; |body| stands for "
            "the length of body, `12?` for bytes that exist only under a condition. The names of kinds "
            "are those of `mqstore dump --as`, the names of fields those of its JSON."
        ),
    ]
    for kind in KINDS.values():
        lines += _kind(kind)
    lines += [".SH SEE ALSO", "\\fBmqstore\\-dump\\fR(1),", "\\fBmqstore\\-inspect\\fR(1)"]
    return "\n".join(lines) + "\n"


def _kind(kind: FileKind) -> Iterator[str]:
    title, *paragraphs = kind.description.split("\n\n")
    yield f".SH {roff(kind.name.upper())}"
    yield from _paragraphs(" ".join(p.split()) for p in (title, *paragraphs))
    for name, schema in kind.layouts:
        yield f".SS {roff(name)}"
        for row in table(schema):
            yield from (".TP", f"{roff(row.offset)}  \\fI{roff(row.type)}\\fR  \\fB{roff(row.name)}\\fR")
            yield roff(row.doc) or "\\&"
    for json_table in kind.tables:
        yield f".SS {roff(json_table.member or json_table.record_type)}"
        yield roff(f"Records of type {json_table.record_type}: {json_table.doc}.")
        for field in json_table.columns:
            yield from (".TP", f"\\fI{roff(field.type)}\\fR  \\fB{roff(field.column)}\\fR")
            yield roff(field.doc)
