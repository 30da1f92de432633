"""Transcripts: text files with commands and what they print, run and compared, or rewritten.

A transcript lies in tests/testdata as `<command>_<case>`. Lines at the margin are commentary. Indented
ones are a command (`  $ `, continued by `  > `) and what it prints: stdout as it is, stderr behind `2> `,
an exit code other than 0 as `[5]`. Each transcript has an empty folder of its own; local time is eight
hours east of UTC.

The folder is shown as `/world`. `$ store NAME` unpacks a store of tests/stores, `$ case KIND [VERSION]` is one of
tests/recovery_cases (`BASE/KIND` of tests/rocks_cases), `$ disk NAME` is an ext4 file system with the deleted log of
5.3.3-clean, `$ bad FILE OFFSET LENGTH` makes a range of a file one that this process cannot read, `$ small-disk DIR`
makes a file system of its own there where this user may mount one, and `$ fill DIR` leaves not one byte of it. `$
mqstore …` runs in this process, before a pipe and into a file (` > FILE`), too, and to its end; a line with other shell
syntax, as `| (head -n 1)`, and every other command, runs in bash, where `mqstore` is this checkout's.

`pytest tests/cli --rewrite` writes what the commands print now: the diff of a transcript is the review
of a change of output.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mqstore.cli.app import run

from .. import recovery_cases, rocks_cases, stores
from ..failing_disk import fail_here
from ..full_disk import fill, small_disk

DISK = Path(__file__).parents[1] / "store" / "salvage" / "deleted.img.gz"
COMMAND = "  $ "
MORE = "  > "
OUTPUT = "  "
ENVIRONMENT = {"TZ": "<+08>-8", "LC_ALL": "C.UTF-8", "COLUMNS": "100", "TERM": "dumb"}
_QUOTED = re.compile(r"'[^']*'")
_INTO_A_FILE = re.compile(r"(mqstore [^|<>&;*$`()]+) > ([\w./-]+)")
_SHELL_SYNTAX = re.compile(r"[|<>&;*$`()]")


class Result(NamedTuple):
    """What a command printed and its exit code."""

    stdout: str
    stderr: str
    code: int

    def lines(self) -> list[str]:
        """As a transcript shows it, without the indentation."""
        shown = self.stdout.removesuffix("\n").split("\n") if self.stdout else []
        shown += [f"2> {line}" for line in self.stderr.splitlines()]
        return [*shown, f"[{self.code}]"] if self.code else shown


class World:
    """The folder and environment of one transcript."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disks = contextlib.ExitStack()
        self.folder = folder / "world"
        self.folder.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        program = programs / "mqstore"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mqstore "$@"\n')
        program.chmod(0o755)
        source = Path(__file__).parents[2] / "src"
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", str(source))
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.folder)
        time.tzset()

    def run(self, command: str) -> Result:
        """Run one command of a transcript."""
        words = shlex.split(command)
        if words[0] == "store":
            return self._unpack(*words[1:])
        if words[0] == "case":
            return self._damage(*words[1:])
        if words[0] == "disk":
            (self.folder / words[1]).write_bytes(gzip.decompress(DISK.read_bytes()))
            return Result("", "", 0)
        if words[0] == "bad":
            fail_here(self.folder / words[1], int(words[2]), int(words[3]))
            return Result("", "", 0)
        if words[0] == "small-disk":
            (
                self.disks.enter_context(small_disk(self.folder / words[1]))
                if os.geteuid() == 0
                else (self.folder / words[1]).mkdir()
            )
            return Result("", "", 0)
        if words[0] == "fill":
            if os.geteuid() == 0:
                fill(self.folder / words[1])
            return Result("", "", 0)
        if kept := _INTO_A_FILE.fullmatch(command):
            done = run_here(shlex.split(kept[1])[1:])
            (self.folder / kept[2]).write_bytes(done.stdout.encode())
            return self._shown(done._replace(stdout=""))
        first, pipe, filters = command.partition(" | ")
        if words[0] != "mqstore" or _SHELL_SYNTAX.search(_QUOTED.sub("", first)) or re.search("mqstore|[(]", filters):
            return self._shown(self._bash(command, Result("", "", 0)))
        done = run_here(shlex.split(first)[1:])
        return self._shown(self._bash(filters, done) if pipe else done)

    def _bash(self, command: str, before: Result) -> Result:
        """Run a command line that reads what was printed before; the last failure counts."""
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=self.folder,
            input=before.stdout.encode(),
            capture_output=True,
            check=False,
            timeout=120,
        )
        stderr = before.stderr + done.stderr.decode()
        return Result(done.stdout.decode(), stderr, done.returncode or before.code)

    def _shown(self, result: Result) -> Result:
        """The folder of the transcript is called /world."""
        stdout, stderr = (text.replace(str(self.folder), "/world") for text in result[:2])
        return Result(stdout, stderr, result.code)

    def _unpack(self, name: str, target: str = "store") -> Result:
        place = self.folder / target
        stores.unpack(name, place.parent).rename(place)
        return Result("", "", 0)

    def _damage(self, kind: str, version: str = "", exit: str = "") -> Result:
        if "/" in kind:  # of tests/rocks_cases
            case = rocks_cases.case_of(kind)
            rocks_cases.damaged(case, self.folder.parent)[0].rename(self.folder / "store")
            return Result("", "", 0)
        case = recovery_cases.case_of(kind, version, exit)
        recovery_cases.damaged(case, self.folder.parent).rename(self.folder / "store")
        return Result("", "", 0)


def run_here(arguments: list[str]) -> Result:
    """Run a command line of mqstore in this process."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        code = run(arguments)
    return Result(_written(stdout), _written(stderr), code)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


class Step(NamedTuple):
    """A command, the lines of the transcript before its output, and the output expected."""

    command: str
    source: list[str]
    expected: list[str]


def parse(text: str) -> Iterator[Step]:
    """The steps of a transcript, in order; commentary belongs to the command behind it."""
    source: list[str] = []
    expected: list[str] = []
    command = ""
    for line in text.splitlines():
        is_output = line.startswith(OUTPUT) and not line.startswith((COMMAND, MORE))
        if command and is_output:
            expected.append(line.removeprefix(OUTPUT))
            continue
        if command and line.startswith(MORE):
            command += "\n" + line.removeprefix(MORE)
        elif command:
            yield Step(command, source, expected)
            source, expected, command = [], [], ""
        if line.startswith(COMMAND):
            command = line.removeprefix(COMMAND)
        source.append(line)
    if command or source:
        yield Step(command, source, expected)


def run_transcript(path: Path, world: World, rewrite: bool) -> None:
    """Run a transcript and compare, or write what the commands print now."""
    with world.disks:
        _run_transcript(path, world, rewrite)


def _run_transcript(path: Path, world: World, rewrite: bool) -> None:
    lines: list[str] = []
    wrong: list[str] = []
    for step in parse(path.read_text("utf-8")):
        lines += step.source
        if not step.command:
            continue
        printed = world.run(step.command).lines()
        lines += [OUTPUT + line for line in printed]
        if printed != step.expected and not rewrite:
            wrong.append(_difference(step, printed))
    if rewrite:
        path.write_text("\n".join(lines) + "\n", "utf-8")
    assert not wrong, "\n\n".join(wrong)


def _difference(step: Step, printed: list[str]) -> str:
    import difflib

    return "\n".join((f"$ {step.command}", *difflib.unified_diff(step.expected, printed, "expected", "printed")))
