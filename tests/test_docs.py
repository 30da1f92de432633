"""What the documents say is so: commands, links, examples, exit codes."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import COMMANDS, program, run
from mqstore.cli.exit_codes import ExitCode
from mqstore.store.search.store import StoreReader
from tests.stores import unpack

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCUMENTS = sorted(ROOT.glob("*.md"))
DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_blocks(path: Path) -> list[str]:
    return re.findall(r"^```.*?^```", text(path), re.MULTILINE | re.DOTALL)


def shown_commands() -> list[str]:
    """The lines of the README that begin with `mqstore`, without what a shell does around them."""
    lines = "\n".join(code_blocks(README)).splitlines()
    return [re.split(r" +#| \| | > ", line)[0] for line in lines if line.startswith("mqstore ")]


def every_command() -> dict[str, Any]:
    """`mqstore`, its commands and theirs, by what a shell calls them."""
    found: dict[str, Any] = {"mqstore": program()}
    pending = list(found)
    for name in pending:
        for child in getattr(found[name], "list_commands", lambda _: [])(None):
            found[f"{name} {child}"] = found[name].get_command(None, child)
            pending.append(f"{name} {child}")
    return found


def modules_with_examples() -> list[str]:
    folders = ("formats", "store", "pipeline", "cli")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [path.relative_to(ROOT).with_suffix("") for path in paths if ">>> " in text(path)]
    return [".".join(("mqstore", *path.parts)).removesuffix(".__init__") for path in found]


@pytest.fixture
def beside_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples' working directory: it holds a real broker's `store`."""
    unpack("5.3.3-clean", tmp_path).rename(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", every_command())
def test_every_command_is_documented(name: str) -> None:
    command = every_command()[name]
    assert command.help and len(command.help.splitlines()) > 1, "a line, and more below it"
    assert (ROOT / "man/man1" / f"{name.replace(' ', '-')}.1").is_file()
    assert all(option.help for option in command.params if option.param_type_name == "option")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_transcript_and_a_place_in_the_readme(name: str) -> None:
    assert list((ROOT / "tests/testdata").glob(f"{name}*"))
    assert f"| `mqstore {name} " in text(README)


def test_the_readme_names_every_exit_code() -> None:
    named = re.findall(r"^\| (\d+) \|", text(README), re.MULTILINE)
    assert [int(code) for code in named] == sorted(code.value for code in ExitCode)


def test_the_readme_has_two_commands_to_begin_with() -> None:
    """`.ci/run` runs them: the lines that start with `git clone`."""
    lines = [line for line in text(README).splitlines() if line.startswith("git clone ")]
    assert len(lines) == 2


def test_both_readmes_show_the_same_code() -> None:
    assert code_blocks(ROOT / "README.zh-CN.md") == code_blocks(README)


def test_the_commands_of_the_readme_are_understood(tmp_path: Path) -> None:
    """In their order, on the store of the tour; nothing of them is wrong usage or missing."""
    store = unpack("5.3.3-killed", tmp_path)
    everything = tmp_path / "all.ndjson"
    assert run(["dump", str(store), "--format", "ndjson", "--output", str(everything)]) == 0
    places = {"/data/store": store, "/data/copy": tmp_path / "copy", "all.ndjson": everything}
    for line in shown_commands():
        for shown, real in places.items():
            line = line.replace(shown, str(real))
        arguments = [*shlex.split(line)[1:], *(["--yes"] if "--apply" in line else [])]
        assert run(arguments) in {ExitCode.DONE, ExitCode.NO, ExitCode.UNCLEAN}, line


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_names_of_files_lead_somewhere(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text(path)) if "://" not in link]
    folders = "formats|store|pipeline|cli|man|tests|src|completions"
    names = re.findall(rf"`((?:{folders})/[\w./-]+|\.ci/\w+)`", text(path))
    placeholders = {name for name in names if "NAME" in name}
    missing = [name for name in {*links, *names} - placeholders if not (ROOT / name).exists()]
    assert not missing


def test_the_examples_of_the_readme(beside_a_store: Path) -> None:
    results = doctest.testfile(str(README), module_relative=False, optionflags=DOCTEST)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_recipes_of_the_library(beside_a_store: Path) -> None:
    page = ROOT / "docs/library.md"
    results = doctest.testfile(str(page), module_relative=False, optionflags=DOCTEST)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_docstrings(name: str, beside_a_store: Path) -> None:
    """An example may use `path`, a store's root directory, and `store`, that store opened."""
    path = beside_a_store / "store"
    with StoreReader(path) as store:
        known = {"path": path, "store": store}
        module = importlib.import_module(name)
        results = doctest.testmod(module, extraglobs=known, optionflags=DOCTEST)
    assert results.failed == 0


def test_the_lines_for_cron_and_systemd_are_understood(tmp_path: Path) -> None:
    """Each of the guide, on a store that somebody else's files are beside."""
    store = unpack("5.3.3-clean", tmp_path)
    lines = text(ROOT / "docs/guides/verify-in-cron.md").splitlines()
    found = [re.search(r"(?:ExecStart=|^[\d *,-]+ )(mqstore .*?)(?= >|$)", line) for line in lines]
    commands = [match[1] for match in found if match]
    assert len(commands) == 4
    for command in commands:
        words = [
            str(store) if word == "/data/store" else re.sub(r"^/var/.*/", f"{tmp_path}/", word)
            for word in shlex.split(command)
        ]
        assert run(words[1:]) == ExitCode.DONE, command


SPECIFICATION = ROOT / "docs/spec"
_NAMED = re.compile(r"\(spec[ /][^)]*\)|\bspec (?:README|\d)[^;.)\"]*(?:\.\d+)?")
_PLACE = re.compile(r"\b(?:\d\.\d+(?:\.\d+)?|B\d+|I-\d{3})\b")


def places_of_the_specification() -> set[str]:
    """Sections, broker bugs and invariants that have a heading or a row of their own."""
    found = set[str]()
    for path in SPECIFICATION.glob("*.md"):
        found |= set(re.findall(r"^#+ (\d\.\d+(?:\.\d+)?) ", text(path), re.MULTILINE))
        found |= set(re.findall(r"^\| (B\d+) \|", text(path), re.MULTILINE))
    invariants = text(ROOT / "docs/invariants.md")
    return found | set(re.findall(r"^#+ (I-\d{3})\b", invariants, re.MULTILINE))


def test_what_docstrings_name_of_the_specification_is_there() -> None:
    known, wrong, count = places_of_the_specification(), list[str](), 0
    files = {path.name for path in SPECIFICATION.iterdir()}
    for folder in ("formats", "store", "pipeline", "cli"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for named in _NAMED.findall(text(path)):
                places = _PLACE.findall(named)
                names = re.findall(r"spec/(\d\d-[a-z-]+\.md|README\.md)", named)
                count += len(places) + len(names)
                wrong += [f"{path}: {place}" for place in places if place not in known]
                wrong += [f"{path}: {name}" for name in names if name not in files]
    assert not wrong and count > 200


def test_links_of_the_specification_lead_somewhere() -> None:
    for path in SPECIFICATION.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)", text(path)):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


@pytest.mark.parametrize("words", ["the contract", "repair answers", "shared/", "stop 9", "(design"])
def test_code_speaks_of_nothing_that_a_reader_does_not_have(words: str) -> None:
    """What the project was made from lies elsewhere; what of it a reader needs is in docs/."""
    paths = [p for f in ("formats", "store", "pipeline", "cli") for p in (ROOT / f).rglob("*.py")]
    assert [str(path) for path in paths if words in text(path).lower()] == []


@pytest.mark.parametrize("words", ["is told", "are told", "anew", "takes on", "taken on"])
def test_help_has_no_words_of_our_own(words: str) -> None:
    """The manual is made of the help of the commands."""
    pages = sorted((ROOT / "man/man1").glob("*.1"))
    assert pages
    assert [page.name for page in pages if re.search(rf"\b{words}\b", text(page))] == []
