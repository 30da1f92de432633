"""What a query has not read: told, up to a limit, and the exit code of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.cli.declared import Exit
from mqstore.cli.exit_codes import ExitCode
from mqstore.cli.unread import report_lacking, report_unreadable, unread_text
from mqstore.pipeline.tasks import answer_of, told
from mqstore.store.arrow import log_rows
from mqstore.store.arrow.log_rows import Damage
from mqstore.store.errors import InUse, Missing, StoreError, Unreadable

from ..stores import unpack

GONE: dict[str, StoreError] = {"/a": InUse("in use", path="/a"), "/b": Missing("no such directory", path="/b")}


@pytest.mark.parametrize(("others", "partial"), [(False, True), (True, False), (False, False)])
def test_a_store_that_cannot_be_read_ends_it(others: bool, partial: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """With the worst code of all; --partial is proposed where there are others."""
    with pytest.raises(Exit) as ended:
        report_unreadable(GONE, others=others, partial=partial)
    assert ended.value.exit_code == ExitCode.FAILED
    *told, last = [line for line in capsys.readouterr().err.splitlines() if line]
    assert ("--partial continues" in last) == others
    assert [line for line in (*told, last) if "/a" in line or "/b" in line] == [
        "mqstore: in use: /a",
        "mqstore: no such directory: /b",
    ]


@pytest.mark.parametrize("words", [["stats"], ["export", "--to", "out"]])
def test_an_empty_log_is_told(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its messages may be on a disk that is not mounted: the answer alone would look as if there had never been any."""
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        (root / "commitlog").mkdir(parents=True)
    assert run([*(str(tmp_path / word) if word == "out" else word for word in words), *map(str, roots)]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "empty" in line] == [
        f"mqstore: the log is empty: {root}" for root in roots
    ]


def test_with_partial_it_is_a_record_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    records = report_unreadable(GONE, others=True, partial=True)
    assert [unread_text(record) for record in records] == ["not read: /a (in use)", "not read: /b (no such directory)"]
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert report_unreadable({}, others=True, partial=False) == []


def test_of_much_damage_twenty_ranges_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    damage = [Damage("/s", 100 * number, 1, "why\nmqstore: all is well") for number in range(30)]
    assert report_lacking(damage, 2) == ExitCode.NO
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("mqstore: 2 bodies fail the checksum")
    assert lines[1].startswith("mqstore: not in the answer: /s at 0, 1 byte (why\\n")
    assert lines[-1] == "mqstore: and 11 ranges more that cannot be read"


def test_a_whole_store_that_is_lacking_has_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_lacking([Damage("/s", None, None, "gone")]) == ExitCode.NO
    assert capsys.readouterr().err == "mqstore: not in the answer: /s (gone)\n"
    assert report_lacking([]) == ExitCode.DONE


def test_the_path_of_a_store_makes_no_line_of_its_own() -> None:
    assert unread_text({"store": "/a\nmqstore: all is well", "reason": "r"}).isprintable()


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A sound store, and one whose log fails behind its first records, as an object that may not be read does."""
    sound, bad = (unpack("5.3.3-v2", tmp_path / name) for name in "ab")
    scan = log_rows._scan_all

    def failing_scan(log: Any, *given: Any) -> Iterator[Any]:
        items = scan(log, *given)
        yield next(items)
        if log.files[0].path.startswith(str(bad)):
            raise Unreadable("cannot read (access denied)", path=log.files[0].path)
        yield from items

    monkeypatch.setattr(log_rows, "_scan_all", failing_scan)
    return sound, bad


@pytest.mark.parametrize(
    "words",
    [
        ["stats", "--by", "store"],
        ["stats", "--by", "store", "--jobs", "2"],
        ["export", "--to", "out", "--columns", "store"],
        ["sql", "SELECT store, count(*) FROM messages GROUP BY store"],
    ],
    ids=" ".join,
)
def test_a_store_that_fails_while_it_is_read_is_left_out(
    words: list[str], failing: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --partial, and no row of it is in the answer; without it nothing is."""
    sound, bad = failing
    monkeypatch.chdir(sound.parents[1])
    command = [*words, str(bad), str(sound)]
    assert run(command) == 5
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("mqstore: cannot read (access denied)") and not Path("out").exists()
    assert run([*command, "--partial"]) == 1
    out, err = capsys.readouterr()
    assert out.count(str(bad)) == 1 and f"not read: {bad} (cannot read (access denied))" in out
    assert str(sound) in out or [path.suffix for path in Path("out").iterdir()] == [".parquet"]
    assert err.count("cannot read") == 1
    assert run([*words, str(bad), "--partial"]) == 5


def test_the_pair_of_a_store_that_fails_is_not_compared(
    failing: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sound, bad = failing
    fleet = f"{sound.parents[1]}/?/{sound.name}"
    words = ["diff", fleet, fleet, "--only", "messages", "--format", "ndjson"]
    assert run(words) == 5
    assert capsys.readouterr().out == ""
    assert run([*words, "--partial"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["store"] for line in out.splitlines()] == [f"a/{sound.name}", str(bad)]
    assert err.count("cannot read") == 1
    assert run(["diff", str(bad), str(bad), "--only", "messages", "--partial"]) == 5


def test_a_task_of_spark_says_which_store_fails() -> None:
    def work(_: Any) -> None:
        error = Unreadable("cannot read")
        error.store = "/b"
        raise error

    error = told(answer_of(work, {}))
    assert isinstance(error, Unreadable) and error.store == "/b"
