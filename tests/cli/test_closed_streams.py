"""A shell may start a command with stdin, stdout or stderr closed: `<&-`, `>&-`, `2>&-`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .. import stores
from .at_a_terminal import SOURCE

pytestmark = pytest.mark.long

_EACH = """
import io, json, os, sys
from mqstore.cli import app
# imported once, not by each child
from mqstore.store.inspect import description
from mqstore.store.damage import scenario
from mqstore.store.recover import recovery
from mqstore.store.repair import repair
from mqstore.store.verify import run
from mqstore.store.put import writer as put
number, commands = int(sys.argv[1]), json.loads(sys.argv[2])
for command in commands:
    if not os.fork():
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
        sys.argv[1:] = command
        app.main()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    with open("codes", "a") as codes:
        codes.write(f"{code}\\n")
"""
COMMANDS = (
    *("inspect S", "dump S -n 1", "get S --topic orders -n 1", "verify S --quick", "recover S"),
    *("repair S --index", "undo S --list", "salvage S/commitlog --dry-run", "explain I-001"),
    *("damage --list", "damage S --to C --scenario killed", "put S orders hello", "xyzzy", "--help"),
)
READING = ("put S orders", "put S --from -", "get S --addresses -", "put S --from - --from-format csv")
ASKING = ("recover S --apply", "repair S --all --apply", "undo S")


def run(closed: int, commands: tuple[str, ...], folder: Path) -> tuple[list[int], str, str]:
    """The exit codes of all, and what they said."""
    folder.mkdir(exist_ok=True)
    (stores.unpack("4.9.7-clean", folder)).rename(folder / "S")
    words = json.dumps([command.split() for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", _EACH, str(closed), words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    codes = (folder / "codes").read_text().split()
    for said in (done.stdout, done.stderr):
        assert "internal error" not in said and "Traceback" not in said
    return [int(code) for code in codes], done.stdout, done.stderr


@pytest.mark.slow
def test_closed_stdin(tmp_path: Path) -> None:
    """Who needs none does not notice; who reads it says so; who asks names --yes."""
    codes, _, _ = run(0, COMMANDS, tmp_path / "a")
    assert codes == [*[0] * 12, 2, 0]
    codes, _, errors = run(0, READING, tmp_path / "b")
    assert codes == [5] * 4 and errors.count("stdin is closed") == 4
    codes, _, errors = run(0, ASKING, tmp_path / "c")
    assert codes == [2] * 3 and errors.count("--yes") == 3


def test_closed_stdout(tmp_path: Path) -> None:
    """Data that cannot be written is an error; no file of the store takes its place."""
    codes, _, errors = run(1, COMMANDS, tmp_path / "a")
    assert codes == [*[5] * 6, 0, *[5] * 5, 2, 0]  # there are no sessions to list
    assert errors.count("stdout is closed") == 11


@pytest.mark.slow
def test_closed_stderr(tmp_path: Path) -> None:
    """Nobody hears; the data and the code are the same, and no error is among the data."""
    codes, data, _ = run(2, (*COMMANDS, "dump nothing -v"), tmp_path / "a")
    assert codes == [*[0] * 12, 2, 0, 5]
    assert "mqstore:" not in data.replace("usage: mqstore", "")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_children_do_not_get_the_store_for_a_stream(closed: int, tmp_path: Path) -> None:
    """What stands in for a closed stream is /dev/null, as the number that it has."""
    program = (
        "import os, sys; from mqstore.cli import app; app.run = lambda: 0\n"
        "try: app.main()\n"
        "except SystemExit: print(os.readlink(f'/proc/self/fd/{sys.argv[1]}'), file=open('to', 'w'))\n"
    )
    redirect = ("<&-", ">&-", "2>&-")[closed]
    line = f'exec "$0" -c "$1" {closed} {redirect}'
    subprocess.run(
        ["bash", "-c", line, sys.executable, program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
        timeout=60,
    )
    assert (tmp_path / "to").read_text() == "/dev/null\n"
    shutil.rmtree(tmp_path)
