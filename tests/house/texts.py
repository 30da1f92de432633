"""Modules that texts name: strings, comments, docs, tables of tools."""

from __future__ import annotations

import io
import re
import tokenize

from .table import Table, path_of

_PATH = re.compile(r"(?<![\w/.-])(?:tests/)?store(?:/\w+)+\.(?:py|toml)\b")
_IMPORT = re.compile(r"\bfrom mqstore\.(store[\w.]*) import (\w+(?:, \w+)*)(?! as\b)\b")
_LONG = re.compile(r"\bmqstore\.(store(?:\.\w+)+)")
_TESTS = re.compile(r"\btests\.store(?:\.\w+)+")
_SHORT = re.compile(
    r"(?<![\w./])(store\.)?((?:recovery|write|verify|views|where|repair|damage)(?:\.\w+)+)"
)
_FILE = re.compile(r"(?<![\w/.])(?:(\w+)/)?(\w+)\.(py|toml)\b")
_FOLDERS = re.compile(r"(?<![\w/.-])store(?:/\w+)+(?![\w.]|/\w)")
_SLASHED = re.compile(r"(?<![\w./])(?:recovery|write|verify|views)/\w+\b(?![/.]\w)")
_EXACT = re.compile(r'"(store(?:\.\w+)+)"')


def in_code(text: str, table: Table, *, lazy: bool) -> str:
    """A module's text, its strings and comments with new names. lazy: as in `renamed`.

    A string that is formatted has code in it: `{recovery.plan}` is no module there.
    """
    lines = text.splitlines(keepends=True)
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type in (tokenize.STRING, tokenize.COMMENT)
    ]
    for token in reversed(found):
        (first, begin), (last, end) = token.start, token.end
        front, behind = lines[first - 1][:begin], lines[last - 1][end:]
        is_formatted = "f" in token.string.partition(token.string[-1])[0].lower()
        new = renamed(token.string, table, lazy=lazy or is_formatted)
        lines[first - 1 : last] = [front + new + behind]
    return "".join(lines)


def renamed(text: str, table: Table, *, lazy: bool = False) -> str:
    """A text with the modules it names at their new places.

    lazy: `"store.x"` alone in quotes is a module, too: a table of names that are imported late.
    """
    modules = {old.replace(".", "/"): new.replace(".", "/") for old, new in table.modules.items()}
    folders = table.folders | {old: new for old, new in modules.items() if old.count("/") > 1}
    paths = {path_of(old): path_of(new) for old, new in table.modules.items()} | table.data

    def short(match: re.Match[str]) -> str:
        new = _found(f"store.{match[2]}", table, names=False)
        return new if match[1] else new.removeprefix("store.")

    for old, new in table.mentions.items():
        text = text.replace(old, new)
    text = _PATH.sub(lambda found: paths.get(found[0], found[0]), text)
    text = _FOLDERS.sub(lambda found: folders.get(found[0], found[0]), text)
    text = _SLASHED.sub(lambda found: modules.get(f"store/{found[0]}", found[0]), text)
    text = _IMPORT.sub(lambda found: _imports(found[1], found[2].split(", "), table), text)
    text = _LONG.sub(lambda found: f"mqstore.{_found(found[1], table)}", text)
    text = _TESTS.sub(lambda found: _found(found[0], table), text)
    if lazy:
        text = _EXACT.sub(lambda found: f'"{_found(found[1], table)}"', text)
    else:
        text = _SHORT.sub(short, text)
    return _FILE.sub(lambda found: _file(found, table), text)


def _imports(base: str, names: list[str], table: Table) -> str:
    """Code in a string that imports names of a module, or modules."""
    done, rest = [], []
    for name in names:
        new = table.modules.get(f"{base}.{name}")
        if new is None:
            rest.append(name)
            continue
        package, _, own = new.rpartition(".")
        done.append(f"from mqstore.{package} import {own}{'' if own == name else f' as {name}'}")
    if rest:
        done.insert(0, f"from mqstore.{_found(base, table)} import {', '.join(rest)}")
    return "; ".join(done)


def _found(name: str, table: Table, *, names: bool = True) -> str:
    """A dotted name whose front is a module, as it is now. names: or a package that was like one."""
    parts = name.split(".")
    others = table.names if names else {}
    for end in range(len(parts), 1, -1):
        front = ".".join(parts[:end])
        if new := table.modules.get(front) or others.get(front):
            return ".".join([new, *parts[end:]])
    return name


def _file(match: re.Match[str], table: Table) -> str:
    """`prove_log.py` alone, or `write/files.py`."""
    folder, name, suffix = match[1], match[2], match[3]
    if folder is not None:
        whole = f"store.{folder}.{name}"
        moved = whole in table.modules and suffix == "py"
        return path_of(table.modules[whole]).removeprefix("store/") if moved else match[0]
    if suffix == "py":
        return f"{table.leaves.get(name, name)}.py"
    ends = (new for old, new in table.data.items() if old.endswith(f"/{match[0]}"))
    return next(ends, match[0]).rpartition("/")[2]
