"""Read plain command lines from the declarations of a command, without typer.

A line that is not plain, or wrong, gives None: typer then reads it and says what is wrong. A test compares the values
with typer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

from .declared import REQUIRED, Argument, Parameter

_SETTINGS = {"metavar", "help", "min", "parser", "show_default"}
_FROM_TEXT: dict[Any, Callable[[str], Any]] = {str: str, int: int, float: float}


def is_uri(text: str) -> bool:
    """Whether a text is a URI, which as a path would become a folder like `s3:`."""
    return "://" in text and re.match(r"[a-z][a-z0-9+.-]+://", text, re.IGNORECASE) is not None


class _NotPlain(Exception):
    """The line has to be read by typer."""


def values_of(parameters: Iterable[Parameter], words: Sequence[str]) -> dict[str, Any] | None:
    """The values of a command's parameters, by name; None for a line that is not plain."""
    parameters = list(parameters)
    try:
        found = _read(parameters, iter(words))
        for parameter in parameters:
            if parameter.name not in found:
                found[parameter.name] = _default(parameter)
    except _NotPlain:
        return None
    return found


def _default(parameter: Parameter) -> Any:
    default = parameter.default
    if default is REQUIRED:
        raise _NotPlain
    as_typed = isinstance(default, str) and "parser" in parameter.annotation.__metadata__[0].settings
    return _value(parameter, default) if as_typed else default


def _read(parameters: Sequence[Parameter], words: Iterator[str]) -> dict[str, Any]:
    options: dict[str, tuple[Parameter, bool]] = {}
    arguments = []
    for parameter in parameters:
        declaration = parameter.annotation.__metadata__[0]
        if isinstance(declaration, Argument):
            arguments.append(parameter)
        for names in declaration.names:
            on, _, off = names.partition("/")
            options[on] = parameter, True
            if off:
                options[off] = parameter, False
    found: dict[str, Any] = {}
    texts = []
    for word in words:
        if word == "-" or not word.startswith("-"):
            texts.append(word)
            continue
        name, equals, text = word.partition("=")
        if name not in options or (equals and not name.startswith("--")):
            raise _NotPlain
        parameter, switched_on = options[name]
        declared = parameter.annotation.__origin__
        if declared is bool:
            if equals:
                raise _NotPlain
            found[parameter.name] = switched_on
            continue
        value = _value(parameter, text if equals else next(words, None))
        if _is_list(declared):
            found.setdefault(parameter.name, []).append(value)
        else:
            found[parameter.name] = value
    return found | _arguments(arguments, texts)


def _arguments(arguments: Sequence[Parameter], texts: Sequence[str]) -> dict[str, Any]:
    """Assign texts to arguments in order; the last one may take several. Raises _NotPlain for too many texts."""
    found: dict[str, Any] = {}
    if arguments and _is_list(arguments[-1].annotation.__origin__):
        *arguments, many = arguments
        first = len(arguments)
        if len(texts) > first:
            found[many.name] = [_value(many, text) for text in texts[first:]]
        texts = texts[:first]
    if len(texts) > len(arguments):
        raise _NotPlain
    for parameter, text in zip(arguments, texts, strict=False):
        found[parameter.name] = _value(parameter, text)
    return found


def _is_list(declared: Any) -> bool:
    return list in (get_origin(declared), *map(get_origin, get_args(declared)))


def _value(parameter: Parameter, text: str | None) -> Any:
    """The value for a text. Raises _NotPlain if it is not valid, or if there is no text."""
    kind, settings = parameter.annotation.__origin__, parameter.annotation.__metadata__[0].settings
    if text is None or not settings.keys() <= _SETTINGS:
        raise _NotPlain
    while get_args(kind):
        kind = next(each for each in get_args(kind) if each is not type(None))
    try:
        value = settings.get("parser", _FROM_TEXT.get(kind, kind))(text)
    except Exception as error:
        raise _NotPlain from error
    if (kind is Path and (text in ("", "-") or is_uri(text))) or ("min" in settings and value < settings["min"]):
        raise _NotPlain
    if not (kind in _FROM_TEXT or kind is Path or issubclass(kind, Enum)):
        raise _NotPlain
    return value
