"""`move`: everything that `moves.toml` asks for, in the work tree of a checkout without changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .imports import Place, rewritten
from .table import ROOT, Table, dotted, path_of
from .texts import in_code, renamed

_CODE = ("cli", "formats", "store", "pipeline", "src", "man", "tests")
_TEXTS = ("*.md", ".ci/*", "pyproject.toml", "tests/**/*.sh")
_HERE = "tests/house"
_LATE = "src/mqstore/__init__.py"


def move() -> None:
    """Rewrite all files, move them, put the rooms in place. Raises LookupError for a table that does not fit."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("commit or put aside your changes first")
    table = Table.read()
    roots = (ROOT / "store", ROOT / "tests" / "store")
    known = {dotted(path, ROOT) for root in roots for path in root.rglob("*.py")}
    files = sorted(path for folder in _CODE for path in (ROOT / folder).rglob("*.py"))
    for path in files:
        name = str(path.relative_to(ROOT))
        if path.is_symlink() or name.startswith(_HERE) or "src/mqstore/" in name != _LATE in name:
            continue
        _rewrite(path, table, known)
    for pattern in _TEXTS:
        for path in ROOT.glob(pattern) if "*" in pattern else [ROOT / pattern]:
            if path.is_file():
                _replace(path, renamed(path.read_text("utf-8"), table))
    for path in (ROOT / "docs").rglob("*.md"):
        _replace(path, renamed(path.read_text("utf-8"), table))
    _move_files(table)
    for words in (["check", "-q", "--fix", "--select", "I", "."], ["format", "-q", "."]):
        subprocess.run(["ruff", *words], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "tests.house", "contracts"], cwd=ROOT, check=True)


def _rewrite(path: Path, table: Table, known: set[str]) -> None:
    """Imports, strings and comments of a module."""
    text = path.read_text("utf-8")
    old = dotted(path, ROOT).removeprefix("src.")
    place = Place(old, table.moved(old), path.name == "__init__.py")
    if path.relative_to(ROOT).parts[0] in ("src", "man"):
        place = Place("", "", is_package=True)  # they name the package
    new = rewritten(text, place, table, known)
    _replace(path, in_code(new, table, lazy=str(path.relative_to(ROOT)) == _LATE))


def _replace(path: Path, text: str) -> None:
    if text != path.read_text("utf-8"):
        path.write_text(text, "utf-8")


def _move_files(table: Table) -> None:
    """`git mv`, by a name of its own first: a module may go where another one was."""
    pairs = {path_of(old): path_of(new) for old, new in table.modules.items()} | table.data
    pairs = {old: new for old, new in pairs.items() if old != new}
    roots = (ROOT / "store", ROOT / "tests" / "store")
    before = [str(p.parent.relative_to(ROOT)) for r in roots for p in r.rglob("__init__.py")]
    for old in pairs:
        _git("mv", old, f"{old}.moving")
    for old, new in pairs.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        _git("mv", f"{old}.moving", new)
    for folder in {(ROOT / new).parent for new in pairs.values()}:
        if not (folder / "__init__.py").exists():
            (folder / "__init__.py").touch()
            _git("add", str(folder / "__init__.py"))
    for room, doc in table.rooms.items():
        folder = ROOT / "store" / room
        (folder / "__init__.py").write_text(f'"""{doc}"""\n', "utf-8")
        _git("add", str(folder / "__init__.py"))
    for name in sorted(before, reverse=True):
        left = [p for p in (ROOT / name).rglob("*.py") if p.name != "__init__.py"]
        if not left and (ROOT / name / "__init__.py").exists():
            _git("rm", "-qf", f"{name}/__init__.py")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout
