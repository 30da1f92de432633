"""The frame around every command: errors, exit codes, pipes, what is imported."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest

from mqstore.cli import app, options
from mqstore.cli.declared import Argument, Exit
from mqstore.cli.exit_codes import ExitCode
from mqstore.store import errors
from mqstore.store.disk.files import Files, sessions
from mqstore.store.disk.layout import Layout

from .. import stores
from .datadriven import Result, run_here

SOURCE = Path(__file__).parents[2] / "src"
HEAVY = ("numpy", "construct", "rich", "pyspark", "pandas", "pyarrow", "isal", "lz4", "zstandard", "lark")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Add a command `fail` that raises what it is told to."""
    raised: list[BaseException] = []
    module = ModuleType("fail")

    @options.shared()
    def fail(number: Annotated[int, Argument()] = 0, *, common: options.Common) -> None:
        """Fail."""
        raise raised[number]

    module.fail = fail  # type: ignore[attr-defined]
    monkeypatch.setattr(app, "COMMANDS", {"fail": "Fail."})
    monkeypatch.setattr(app, "import_module", lambda name, package: module)

    def run(error: BaseException, *arguments: str) -> Result:
        raised[:] = [error]
        return run_here(["fail", *arguments])

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Missing("no such file", path="/s"), 5),
        (errors.NotAStore("not a store"), 5),
        (errors.Unreadable("cannot read"), 5),
        (errors.Unsupported("unsupported"), 5),
        (errors.Refused("refused"), 5),
        (errors.LimitExceeded("too much"), 5),
        (errors.NoSpace("disk full"), 5),
        (errors.StoreError("something"), 5),
        (errors.NotFound("not found"), 1),
        (errors.InvalidInput("no time"), 2),
        (errors.Unclean("abort is there"), 3),
        (errors.InUse("a broker runs"), 4),
        (OSError(errno.EIO, "Input/output error", "/s/x"), 5),
        (OSError(errno.ENOSPC, "No space left on device"), 5),
        (MemoryError(), 5),
        (RecursionError("deep"), 5),
        (KeyError("bug"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(failing: Any, error: BaseException, code: int) -> None:
    """No traceback, whatever it was."""
    result = failing(error)
    assert result.code == code
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), errors.NoSpace("disk full")])
def test_who_ends_a_change_half_way_is_told(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step that changes the store: not to start a broker, and what goes on with it."""
    store = stores.unpack("5.3.3-lmq", tmp_path)
    move = ["offsets", str(store), "--reset", "mqtt/0@lmq_group=1", "--apply", "--yes", "--set", "a=b"]
    undo = ["undo", str(store), "--yes"]

    def ended_at(change: str, name: str, words: list[str]) -> str:
        def step(files: Files, what: str, path: Path, size_bytes: int = 0) -> None:
            if (what, path.name) == (change, name):
                raise error

        error.__notes__ = []
        with monkeypatch.context() as patched:
            patched.setattr(Files, "step", step)
            told = run_here(words).stderr
        assert told.count("\n") == 1
        return told.rstrip("\n").partition("; ")[2]

    for change, name in (("create", "journal.json"), ("rename", "sealed.new")):
        assert ended_at(change, name, move) == ""
    told = ended_at("rename", "lmqConsumerOffset.json", move)
    (session,) = (each.name for each in sessions(Layout.open(store).journal))
    cut = f"session {session} was interrupted, the store is half changed: start no broker; run: mqstore"
    assert told == f"{cut} recover {store} --apply --set a=b"
    assert run_here(move).code == 0
    assert ended_at("rename", "undoing.new", undo) == ""
    assert ended_at("rename", "000000.moved", undo) == f"the undo of {cut} undo {store}"
    assert run_here(undo).code == 0


def test_verbose_adds_the_traceback(failing: Any) -> None:
    """And the line stays the last one."""
    result = failing(errors.Missing("no such file", path="/s"), "--verbose")
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "mqstore: no such file: /s"


def test_foreign_text_in_an_error_is_escaped(failing: Any) -> None:
    """A file name can hold anything."""
    result = failing(OSError(errno.EIO, "Input/output error", "/s/\x1b]0;x\x07\n\udc80"), "-v")
    assert result.stderr.isascii()
    assert "\x1b" not in result.stderr
    assert "\\x1b]0;x\\x07\\n\\udc80" in result.stderr.splitlines()[-1]


def test_an_exit_of_the_command_is_the_exit_code(failing: Any) -> None:
    """Without a line."""
    assert failing(Exit(ExitCode.UNCLEAN)) == Result("", "", 3)


def test_a_closed_pipe_is_a_quiet_success(failing: Any) -> None:
    """Nobody reads any more: that is no error."""
    assert failing(BrokenPipeError(errno.EPIPE, "Broken pipe")) == Result("", "", 0)


@pytest.mark.parametrize(
    ("shell", "code"),
    [
        ("mqstore --help | true; echo ${PIPESTATUS[0]}", "0"),
        ("mqstore --help > /dev/full; echo $?", "5"),
        ("mqstore --version >&-; echo $?", "0"),
        ("mqstore get nosuch --topic x 2> /dev/full; echo $?", "5"),
        ("mqstore get nosuch --topic x -v 2> /dev/full; echo $?", "5"),
        ("mqstore put nosuch bad/topic hi 2> /dev/full; echo $?", "2"),
        ("mqstore get nosuch --topic x 2>&-; echo $?", "5"),
    ],
)
def test_a_stream_that_takes_nothing(shell: str, code: str) -> None:
    """Closed by its reader, full, or never there. What stderr cannot take changes no exit code."""
    program = f'mqstore() {{ "{sys.executable}" -m mqstore "$@"; }}; {shell}'
    done = subprocess.run(
        ["bash", "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == code + "\n"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_ctrl_c_ends_with_130() -> None:
    """Without a traceback."""
    program = (
        "import os, signal, sys, mqstore.cli.app as app\n"
        "app.program = lambda: sys\n"
        "sys.main = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT) or signal.pause()\n"
        "app.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mqstore: interrupted\n")


_UNTIL_READ = """
import os, sys
from mqstore.cli.app import run
read = os.preadv
def preadv(descriptor, *arguments):
    if "/commitlog/" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.write(1, " ".join(sys.modules).encode())
        os._exit(0)
    return read(descriptor, *arguments)
os.preadv = preadv
run(sys.argv[1:])
"""
_TYPED = ("typer", "click", "rich", "jsonschema", "lark", "tomllib", "lz4", "zstandard")


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("verify", ("numpy", "construct", "mqstore.store.verify.run", "dataclasses", *_TYPED)),
        ("recover", ("mqstore.store.plan", "mqstore.store.recover", "mqstore.store.repair", *_TYPED)),
    ],
)
def test_the_log_is_read_before_what_comes_later_is_imported(
    command: str, unwanted: tuple[str, ...], tmp_path: Path
) -> None:
    """The time to the first byte is the imports', too (`tests/bench`, `start`)."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _UNTIL_READ, command, root],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = done.stdout.split()
    assert "mqstore.cli.app" in loaded
    assert [name for name in loaded if f"{name}.".startswith(tuple(f"{u}." for u in unwanted))] == []


def test_help_imports_nothing_heavy() -> None:
    """The time to the first character is the imports'."""
    lines = ["--help", "--version", *(f"{command} --help" for command in app.COMMANDS)]
    program = (
        "import sys; from mqstore.cli.app import run\n"
        "for line in sys.argv[1:]:\n"
        "    run(line.split()); loaded = {name.partition('.')[0] for name in sys.modules}\n"
        f"    print(*(f'{{line}}: {{name}}' for name in loaded & {set(HEAVY)}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *lines],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr.split() == []


LISTED = {*app.COMMANDS, "app", "options", "exit_codes", "output", "terminal", "progress"}
"""Modules that every command line imports, or that `--help` does."""


def test_no_module_of_the_command_line_imports_heavily_at_its_top() -> None:
    """Only inside functions, or for the type checker; what `--help` imports nothing of the store."""
    for path in (SOURCE / "mqstore" / "cli").glob("*.py"):
        if path.name == "browse.py":  # classes of textual, imported once somebody browses
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names.append(node.module or "")
            assert {name.partition(".")[0] for name in names}.isdisjoint(HEAVY), path.name
            below = isinstance(node, ast.ImportFrom) and node.level > 1
            assert not below or path.stem not in LISTED, f"{path.name} imports {ast.unparse(node)} at its top"


def test_a_command_is_imported_only_when_it_is_called() -> None:
    """`mqstore get` does not pay for the others."""
    listed = app.program()
    names = listed.list_commands(None)
    assert listed.commands == {}
    for name in names:
        assert listed.get_command(None, name) is not None
        assert name in listed.commands


@pytest.mark.parametrize("text", ["0", "-1", "1X", "", "k", "1.5M"])
def test_rates_that_are_none(failing: Any, text: str) -> None:
    """Wrong usage names the option."""
    result = failing(KeyError(), f"--rate={text}")
    assert result.code == 2
    assert "--rate" in result.stderr


def test_shared_options_keep_the_own_ones(failing: Any) -> None:
    """Of a command that has both."""
    shown = run_here(["fail", "--help"]).stdout
    assert "--broker-config FILE" in shown
    assert "[number]" in shown.lower()
