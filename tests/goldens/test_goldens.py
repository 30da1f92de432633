"""The tool that makes goldens, and the few of them that are kept in the project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.cli.app import run

from .cases import Case, build, cases
from .make import Wanted
from .normal import content_of, files_of, rows_of, text_of
from .output import MISSING, Goldens, Key, Reason, Writer, compare, difference, reasons
from .report import report

ROOT = Path(__file__).parents[2]
KEY = Key("5.3.3-clean", "whole", "", "keep", "recover")


@pytest.mark.slow
def test_the_kept_rows_are_those_of_the_code_as_it_is() -> None:
    """In a process of its own: its clock stands still."""
    words = [sys.executable, "-m", "tests.goldens", "check"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "random"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_runs_of_other_names_and_sessions_are_one_text() -> None:
    said = '{"path":"/tmp/%s/store","session":"2026112%dT031500.12345%dZ","seconds":0.%d}'
    first = text_of(said % ("a", 1, 6, 25), {"/tmp/a": "WORK"})
    assert first == text_of(said % ("bcd", 2, 7, 1), {"/tmp/bcd": "WORK"})
    assert '"WORK/store"' in first and "SESSION" in first
    assert text_of("no JSON\n", {}) == "no JSON\n"


def test_holes_and_zeros_are_the_same_bytes(tmp_path: Path) -> None:
    data = b"x" + bytes(200_000) + b"y"
    (tmp_path / "whole").write_bytes(data)
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"x")
        file.seek(200_001)
        file.write(b"y")
    assert content_of(tmp_path / "whole") == content_of(tmp_path / "sparse")
    (tmp_path / "longer").write_bytes(data + b"\0")
    assert content_of(tmp_path / "longer") != content_of(tmp_path / "whole")
    (tmp_path / ".mqstore").mkdir()
    (tmp_path / ".mqstore" / "session").touch()
    assert [line.split()[0] for line in files_of(tmp_path).splitlines()] == [*("longer", "sparse", "whole")]


def test_many_lines_have_a_digest_for_each_thousand() -> None:
    lines = [str(number) for number in range(2500)]
    before = rows_of("\n".join(lines))
    lines[1500] = "another"
    after = rows_of("\n".join(lines))
    assert before.splitlines()[0] == "2500 lines"
    differing = [a != b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)]
    assert differing == [False, False, True, False]


def test_what_differs_is_told_but_for_what_does_on_purpose() -> None:
    old = {KEY: "1", KEY._replace(policy="broker"): "2", KEY._replace(command="gone"): "3"}
    new = {KEY: "1", KEY._replace(policy="broker"): "4"}
    found = compare(old, new, [])
    assert found.same == 1
    assert found.differing[KEY._replace(command="gone")] == ("3", MISSING)
    known = [Reason(r".* \| broker \| recover", "a bug")]
    assert list(compare(old, new, known).differing) == [KEY._replace(command="gone")]
    assert known[0].met == 1
    assert difference("a\nb", "a\nc", 5)[1:] == [" a", "-b", "+c"]
    assert reasons() == [] or all(reason.reason for reason in reasons())


def test_rows_come_back_out_of_their_files(tmp_path: Path) -> None:
    for number, text in enumerate(("one\n", "one\n", "two\n")):
        with Writer(tmp_path / f"{number > 1}", f"{number}-of-2") as writer:
            writer.add(KEY._replace(command=f"{number % 2}"), text)
    kept = Goldens(tmp_path / "False")
    assert [key.command for key in kept.rows] == ["0", "1"]
    assert list(kept.texts(set(kept.rows.values())).values()) == ["one\n"]
    assert report(tmp_path / "False", tmp_path / "False", 5) == 0
    assert report(tmp_path / "False", tmp_path / "True", 5) == 1


def test_parts_and_slices_have_each_case_once() -> None:
    whole = [str(case) for case in Wanted().cases()]
    assert len(set(whole)) == len(whole)
    parts = [str(case) for part in ("1/2", "2/2") for case in Wanted(part=part).cases()]
    assert sorted(parts) == sorted(whole)
    small = {str(case) for case in Wanted(share=0.01).cases()}
    assert small < {str(case) for case in Wanted(share=0.05).cases()}
    assert set(whole) < {str(case) for case in Wanted(every_version=True).cases()}


def test_a_case_is_the_same_store_each_time(tmp_path: Path) -> None:
    case = next(case for case in cases(1) if case.damage == "random 2")
    first, second = (_files_of(case, tmp_path / name) for name in ("one", "other"))
    assert first == second
    lacks = Case("5.5.0-clean", "scenario compaction-cut", "", full=True)
    assert build(lacks, tmp_path / "one", 1) is None


def _files_of(case: Case, work: Path) -> str:
    built = build(case, work, 1)
    assert built is not None
    words = [word for option in built.options for word in ("--set", option)]
    assert run(["inspect", str(built.root), "--format", "json", *words]) in (0, 1, 3)
    return files_of(built.root)
