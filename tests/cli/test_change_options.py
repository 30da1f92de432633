"""What a command that writes asks at a terminal: the plan first, then the question."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mqstore.cli import progress
from mqstore.cli.options import Common
from mqstore.store.disk.layout import Layout

from .. import stores
from .at_a_terminal import Terminal
from .damaged_case import of_case
from .datadriven import run_here

pytestmark = pytest.mark.long


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, list[str]]:
    """A store with a damaged record, and its options."""
    return of_case("body_crc_middle", tmp_path)


def _all_of(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("recover", ["--apply", "--yes"]),
        ("repair", ["--all", "--apply", "--yes"]),
        ("undo", ["--yes"]),
        ("put", ["T", "body"]),
        ("offsets", ["--reset", "*@*=earliest", "--apply", "--yes"]),
    ],
)
def test_an_answer_that_has_no_place_is_refused_before_anything_is_changed(
    command: str, more: list[str], damaged: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Wrong usage, or a file that cannot be written: who tries again must not do it twice."""
    root, options = damaged
    if command in ("undo", "put", "offsets"):
        assert run_here(["recover", str(root), *options, "--apply", "--yes"]).code == 1
        options = []
    before = _all_of(root)
    line = [command, str(root), *more, *options]
    for wrong, code in ((["--fields", "nope"], 2), (["--output", str(tmp_path / "none" / "out")], 5)):
        result = run_here([*line, *wrong])
        assert (result.code, result.stdout) == (code, ""), result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert _all_of(root) == before


@pytest.mark.parametrize("command", [["recover"], ["repair", "--all"]])
def test_a_field_that_this_answer_has_not(command: list[str], damaged: tuple[Path, list[str]]) -> None:
    """Where nothing was applied `applied` stays away: the command does not end with wrong usage."""
    root, options = damaged
    line = [command[0], str(root), *command[1:], *options, "--apply", "--yes", "--format", "ndjson"]
    fields = ["--fields", "type,applied"]
    first, second = run_here([*line, *fields]), run_here([*line, *fields])
    assert [*json.loads(first.stdout)] == ["type", "applied"]
    assert (second.code, [*json.loads(second.stdout)]) == (0, ["type"])


@pytest.mark.few(1)
@pytest.mark.parametrize("answer", ["n", "", "\x04"])
def test_no_is_an_answer(damaged: tuple[Path, list[str]], answer: str) -> None:
    """Nothing changed, and the exit code is that of the plan, which stood before the question."""
    root, options = damaged
    before = _all_of(root)
    with Terminal("recover", str(root), *options, "--apply") as terminal:
        terminal.wait_for("Carry them out?")
        terminal.type(answer + ("" if answer == "\x04" else "\n"))
        assert terminal.end() == 1
        shown = "\n".join(terminal.screen)
    plan = next(line for line in terminal.screen if line.startswith("The plan:"))
    assert shown.index(plan) < shown.index("Carry them out?") < shown.index("nothing changed")
    assert f"`mqstore recover {root} --apply --broker-version 5.4.0 --set mapped" in "".join(terminal.screen)
    assert "commitlog" in shown and "Next:" not in shown and "without --apply" not in shown
    assert "interrupted" not in shown and "Abort" not in shown
    assert _all_of(root) == before


@pytest.mark.few(1)
@pytest.mark.parametrize("command", [["recover"], ["repair", "--all"]])
@pytest.mark.parametrize("colour", [True, False])
def test_the_verdict_above_the_question_has_colour(
    damaged: tuple[Path, list[str]], command: list[str], colour: bool
) -> None:
    """As it has where nothing is asked: the words are the same without it."""
    root, options = damaged
    words = [*command, str(root), *options, "--apply", *([] if colour else ["--no-color"])]
    with Terminal(*words, "--no-progress") as terminal:
        terminal.wait_for("Carry them out?")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert ("\x1b[31mDo not start a broker" in terminal.shown) == colour
    assert any(line.startswith("Do not start a broker") for line in terminal.screen)


@pytest.mark.few(1)
@pytest.mark.parametrize("command", [["recover"], ["repair", "--all"]])
def test_yes_is_one(damaged: tuple[Path, list[str]], command: list[str]) -> None:
    """And JSON stays one object: what is asked and shown before it goes to stderr."""
    root, options = damaged
    reading, writing = os.pipe()
    words = [*command, str(root), *options, "--apply", "--format", "json"]
    with os.fdopen(reading) as data, Terminal(*words, stdout=writing) as terminal:
        os.close(writing)
        terminal.wait_for("Carry them out?")
        terminal.type("y\n")
        terminal.end()
        assert data.read().startswith("{")
    assert "The plan:" in terminal.shown
    assert list((root / ".mqstore").iterdir())


def test_undo_says_what_it_would_take_back(damaged: tuple[Path, list[str]]) -> None:
    """The files of the session; no is an answer, too."""
    root, options = damaged
    run_here(["recover", str(root), *options, "--apply", "--yes", "--quiet"])
    before = _all_of(root)
    with Terminal("undo", str(root), *options[:-2]) as terminal:
        terminal.wait_for("?")
        terminal.type("n\n")
        assert terminal.end() == 1
    shown = "\n".join(terminal.screen)
    assert shown.index("commitlog/") < shown.index("Take back recover") < shown.index("nothing ch")
    assert _all_of(root) == before


def test_purge_says_what_it_would_delete(damaged: tuple[Path, list[str]]) -> None:
    root, options = damaged
    run_here(["recover", str(root), *options, "--apply", "--yes", "--quiet"])
    (session,) = (root / ".mqstore").iterdir()
    before = _all_of(root)
    with Terminal("undo", str(root), session.name, "--purge", *options[:-2]) as terminal:
        terminal.wait_for("?")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert "nothing changed" in terminal.shown
    assert _all_of(root) == before


def test_ctrl_c_at_the_question_is_an_interrupt(damaged: tuple[Path, list[str]]) -> None:
    root, options = damaged
    before = _all_of(root)
    with Terminal("recover", str(root), *options, "--apply") as terminal:
        terminal.wait_for("Carry them out?")
        assert terminal.interrupt() == 130
    assert _all_of(root) == before


def test_a_question_that_nobody_would_see_is_not_asked(damaged: tuple[Path, list[str]]) -> None:
    """Of a stderr that goes to a file."""
    root, options = damaged
    reading, writing = os.pipe()
    with os.fdopen(reading) as said:
        with Terminal("recover", str(root), *options, "--apply", stderr=writing) as terminal:
            os.close(writing)
            assert terminal.end() == 2
        assert "--yes" in said.read()


def test_a_log_is_read_from_its_first_file_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where earlier files have expired the bar begins empty, too."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    first = root / "commitlog" / f"{0:020}"
    start = first.stat().st_size
    first.rename(first.with_name(f"{start:020}"))
    sizes: list[int] = []
    monkeypatch.setattr(progress.Progress, "advance", lambda self, size: sizes.append(size))
    with Common().reading("reading the log", Layout.open(root).commit_log_files()) as tell:
        for position in (100, 300, 200, 400):
            tell(start + position)
    assert sizes == [100, 200, 0, 100]
