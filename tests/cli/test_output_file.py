"""Files that `--output` names: whole or not at all, and never one of a store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.declared import Format
from mqstore.cli.options import Common
from mqstore.cli.output_file import check_place
from mqstore.store.errors import InvalidInput

from .. import stores
from ..stores import unpack
from .datadriven import run_here


@pytest.mark.parametrize(
    "name", ["commitlog/00000000000000000000", "checkpoint", "config/topics.json", "lock", "linked"]
)
def test_a_file_of_a_store_is_never_replaced(tmp_path: Path, name: str) -> None:
    """Nor that of a log which lies elsewhere, behind a link."""
    root = unpack("5.1.4-clean", tmp_path)
    path = root / name
    if name == "linked":
        (root / "commitlog").rename(tmp_path / "elsewhere")
        (root / "commitlog").symlink_to(tmp_path / "elsewhere")
        path = tmp_path / "elsewhere" / "00000000000000000000"
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="a file of a store"), Common(output=path).open_output() as out:
        out.records([{"number": 1}], text=lambda row: str(row["number"]), columns=("number",))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["commitlog/x", "abort", "config/new.json", "consumequeue/orders/0/x", ".mqstore/x"])
def test_nothing_new_comes_between_the_files_of_a_store(tmp_path: Path, name: str) -> None:
    """A broker does not start beside a strange name in its log, and takes a store with `abort` for killed."""
    root = unpack("5.1.4-clean", tmp_path)
    before = sorted(root.rglob("*"))
    result = run_here(["inspect", str(root), "--output", str(root / name)])
    assert (result.code, result.stdout) == (2, "")
    assert f"the broker uses this path for its own files: {root / name}" in result.stderr
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize("command", ["report S --to -", "inspect S -o -"])
def test_no_file_is_called_a_dash(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other tools call stdout: nothing is looked at, and no such file is made."""
    monkeypatch.chdir(tmp_path)
    unpack("5.1.4-clean", tmp_path).rename("S")
    result = run_here(command.split())
    assert (result.code, result.stdout) == (2, "")
    assert "- is not accepted as a path" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


def test_other_files_are_replaced_wherever_they_lie(tmp_path: Path) -> None:
    path = unpack("5.1.4-clean", tmp_path) / "notes.txt"
    path.write_text("old")
    with Common(output=path).open_output() as out:
        out.records([{"number": 1}], text=lambda row: str(row["number"]), columns=("number",))
    assert path.read_text() != "old"


def _records(error: BaseException) -> Iterator[Mapping[str, Any]]:
    yield {"a": 1}
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk"), BrokenPipeError()])
@pytest.mark.parametrize("before", [None, "kept"])
def test_no_half_file(error: BaseException, before: str | None, tmp_path: Path) -> None:
    """What was there stays; where nothing was nothing is, nor anything beside it."""
    path = tmp_path / "out"
    if before is not None:
        path.write_text(before)
    common = Common(format=Format.NDJSON, output=path)
    with pytest.raises(type(error)), common.open_output() as out:
        out.records(_records(error), text=str, columns=("a",))
    assert [each.name for each in tmp_path.iterdir()] == ([] if before is None else ["out"])
    assert before is None or path.read_text() == before


@pytest.mark.parametrize("form", ["text", "ndjson"])
@pytest.mark.parametrize(
    ("command", "code", "options"),
    [("dump", 0, ["--topic", "none"]), ("get", 1, ["--key", "none"]), ("offsets", 1, ["--group", "none"])],
)
def test_an_answer_without_a_record_takes_the_place_of_an_earlier_one(
    command: str, code: int, options: list[str], form: str, tmp_path: Path
) -> None:
    """Whoever reads the file would take the old records for those asked for now."""
    root = unpack("5.1.4-clean", tmp_path)
    path = tmp_path / "out"
    path.write_text("old")
    said = run_here([command, str(root), *options, "--format", form, "--output", str(path)])
    assert (said.code, said.stdout, path.read_text()) == (code, "", "")


def test_what_counts_as_it_comes_stays(tmp_path: Path) -> None:
    """Answers of put, new messages of get --follow."""
    path = tmp_path / "out"
    common = Common(format=Format.NDJSON, output=path)
    with pytest.raises(KeyboardInterrupt), common.open_output(growing=True) as out:
        out.records(_records(KeyboardInterrupt()), text=str, columns=("a",))
    assert json.loads(path.read_text()) == {"a": 1}


def test_a_file_keeps_its_mode_and_a_link_its_target(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with Common(format=Format.NDJSON, output=link).open_output() as out:
        out.records([{"a": 1}], text=str, columns=("a",))
    assert link.is_symlink() and "1" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_place_is_looked_at_before_it_is_written_to(tmp_path: Path) -> None:
    """All is as it was; of a folder, and a file of a folder that is not there, the error is that of writing."""
    path = tmp_path / "out"
    check_place(path)
    assert not [*tmp_path.iterdir()]
    path.write_text("kept")
    check_place(path)
    check_place(Path("/dev/full"))
    assert [each.name for each in tmp_path.iterdir()] == ["out"] and path.read_text() == "kept"
    for wrong, error in ((tmp_path, IsADirectoryError), (tmp_path / "none" / "out", FileNotFoundError)):
        with pytest.raises(error, match=str(wrong)):
            check_place(wrong)


def test_a_device_is_written_to() -> None:
    assert run_here(["explain", "I-001", "--output", "/dev/null"]).code == 0
    assert run_here(["explain", "I-001", "--output", "/dev/full"]).code == 5


def test_what_cannot_be_written_is_named_as_it_was_typed(tmp_path: Path) -> None:
    """No file beside it that nobody has asked for, and stdout by its name."""
    answer = run_here(["explain", "I-001", "--output", str(tmp_path / "none" / "out")])
    assert answer.stderr == f"mqstore: no such file or directory: {tmp_path}/none/out\n"
    full = "mqstore: cannot read or write (No space left on device): "
    assert run_here(["explain", "I-001", "--output", "/dev/full"]).stderr == f"{full}/dev/full\n"
    with Path("/dev/full").open("wb") as stdout:
        answers = subprocess.run(
            [sys.executable, "-m", "mqstore", "explain", "I-001"], stdout=stdout, stderr=subprocess.PIPE, check=False
        )
    assert (answers.returncode, answers.stderr.decode()) == (5, f"{full}stdout\n")


def test_what_was_done_before_the_answer_is_told(tmp_path: Path) -> None:
    """A script that takes 5 for "not done" would put the message again, say."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    new, lines = str(tmp_path / "new"), tmp_path / "in.ndjson"
    lines.write_text("".join(f'{{"topic": "T", "body": "{n}"}}\n' for n in range(3)))
    for words, told in (
        (["put", new, "T", "x"], "the message is stored"),
        (["put", new, "--from", str(lines)], "3 messages are stored"),
        (["damage", new, "--to", str(tmp_path / "copy"), "--scenario", "killed"], "the new store is complete: .*/copy"),
        (["recover", str(root), "--apply", "--yes"], "the store was recovered, in session .*Z"),
        (["undo", str(root), "--yes"], "the change was taken back"),
        (["dump", new], None),
    ):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mqstore", *words], stdout=full, stderr=subprocess.PIPE, check=False
            )
        said = done.stderr.decode()
        line = rf"mqstore: cannot read or write \(No space left on device\): stdout{'; ' + told if told else ''}\n"
        assert (done.returncode, bool(re.fullmatch(line, said))) == (5, True), said
