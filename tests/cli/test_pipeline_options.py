"""What the commands of `pipeline` share: what is missing is one line, and bars tell how far they are."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mqstore.cli import pipeline_options
from mqstore.cli.app import run
from mqstore.cli.options import Common
from mqstore.cli.pipeline_options import Spark, showing, source_options
from mqstore.pipeline.watch import Done

from ..pipeline.test_session import without
from ..stores import unpack

pytestmark = pytest.mark.long


@pytest.mark.parametrize("command", [["import"], ["compact", "--topic", "orders"]])
def test_without_pyarrow_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the commands that need no Spark."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    without(monkeypatch, "pyarrow")
    code, line = pipeline_failing([*command, str(root), "--to", str(new)], capsys)
    assert (code, line.partition("; ")[2]) == (5, "pip install 'mqstore[arrow]'")
    assert not new.exists()


def every_command(store: Path, new: Path) -> list[list[str]]:
    """A call of each command, but for the options of Spark."""
    name, to = str(store), ["--to", str(new)]
    return [
        ["rebuild", name, *to],
        ["verify", name],
        ["stats", name],
        ["diff", name, name],
        ["export", name, *to],
        ["sql", "SELECT 1", name],
    ]


@pytest.mark.parametrize("number", range(6))
def test_what_is_missing_is_one_line(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For each command: nobody answers at --master, a setting that is none, no Spark."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    (root / "x.parquet").write_bytes(b"PAR1 PAR1")
    command = every_command(root, new)[number]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        code, line = pipeline_failing([*command, "--master", f"spark://{place}"], capsys)
        assert (code, line.partition(" (")[0]) == (5, f"no Spark answers at {place}")
    assert pipeline_failing([*command, "--conf", "x"], capsys)[0] == 2
    without(monkeypatch, "pyspark")
    wanted = (5, "Spark is not installed (pyspark missing); pip install 'mqstore[spark]'")
    assert pipeline_failing(command, capsys) == wanted
    assert not new.exists()


HIDDEN = """
import json, os, sys
hidden, commands = sys.argv[1], json.loads(sys.argv[2])
sys.modules[hidden] = None  # whoever imports it fails
from mqstore.cli.app import run
for command in commands:
    sys.stdout.flush()
    if not os.fork():
        os._exit(run(["pipeline", *command]))
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize("hidden", ["pyspark", "pyarrow", "pandas"])
def test_without_a_package_no_command_gets_far(hidden: str, tmp_path: Path) -> None:
    """It cannot be imported at all: nothing may come before the question whether it is there."""
    root, new = unpack("5.3.3-v2", tmp_path), tmp_path / "new"
    (root / "x.parquet").write_bytes(b"PAR1 PAR1")
    commands = every_command(root, new)
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, hidden, json.dumps(commands)], capture_output=True, text=True, check=False
    )
    line = f"mqstore: Spark is not installed ({hidden} missing); pip install 'mqstore[spark]'"
    assert done.stderr.splitlines() == [line] * len(commands)
    assert done.stdout.split() == ["5"] * len(commands)
    assert not new.exists()


def pipeline_failing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and the one line on stderr of a command of `pipeline`."""
    code = run(["pipeline", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("mqstore: "), err
    return code, err.removeprefix("mqstore: ").rstrip("\n")


class Stream(io.StringIO):
    """Something to write to, that is a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("stages", [4, None])
def test_a_bar_tells_of_stages_and_tasks(stages: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal at once, on nothing else."""
    for terminal in (True, False):
        err = Stream(terminal)
        with monkeypatch.context() as patched:
            patched.setenv("TERM", "xterm")
            patched.setenv("COLUMNS", "120")
            patched.setattr(sys, "stderr", err)
            with showing("rebuilding", 1 << 30, stages, Common()) as tell:
                tell(Done(1.5, 8, 16, 2e6))
        shown = "starting Spark" in err.getvalue(), "8 of 16 tasks, 2,000,000" in err.getvalue()
        assert shown == (terminal, terminal)
        assert ("stage 2 of 4" in err.getvalue()) is (terminal and stages is not None)


def test_every_command_wires_its_bar() -> None:
    """Whoever works long says how far it is."""
    folder = Path(pipeline_options.__file__).parent
    for path in (folder / "export.py", *sorted(folder.glob("pipeline_*.py"))):
        if path.name != "pipeline_options.py":
            bar = r"\b(showing|session_showing|partial\(session_showing|common\.progress|run_export)\b"
            assert re.search(bar, path.read_text(encoding="utf-8")), path.name


def test_the_rate_takes_one_core() -> None:
    """Several tasks at once would exceed the limit; those of a master that is named have it each."""
    common, fast = Common(jobs=4), Common(jobs=4, rate=1 << 20)
    assert [Spark().place(each)[0] for each in (common, fast)] == ["local[4]", "local[1]"]
    assert Spark(master="yarn").place(fast)[0] == "yarn"
    assert source_options(fast) == {"rate": "1048576"}
