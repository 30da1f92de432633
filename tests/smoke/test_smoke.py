"""The installed command, from outside: it is there, and each command does its main thing.

Nothing of mqstore is imported, so that these tests say the same about an installed wheel. Run for that with
`pytest --noconftest -c /dev/null tests/smoke` in an environment that holds the wheel and pytest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KILLED = HERE.parent / "stores" / "5.3.3-killed.tar.gz"
PROGRAM = Path(sys.executable).with_name("mqstore")
COMMANDS = (
    *("put", "get", "inspect", "dump", "recover", "undo", "verify", "repair", "salvage", "damage"),
    *("explain", "pipeline"),
)


def run(*arguments: str | Path, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run `mqstore` and insist on its exit code."""
    done = subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == code, (done.args, done.returncode, done.stdout, done.stderr)
    return done


def records(text: str) -> list[dict[str, object]]:
    """The records of an NDJSON output."""
    return [json.loads(line) for line in text.splitlines()]


@cache
def every_command() -> str:
    """What `mqstore --help` shows."""
    return run("--help").stdout


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A copy of the store that a real broker left behind after kill -9."""
    with tarfile.open(KILLED) as archive:
        if hasattr(tarfile, "data_filter"):  # 3.11 has it since 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    return tmp_path / "5.3.3-killed"


def test_version() -> None:
    assert run("--version").stdout.startswith("mqstore ")


@pytest.mark.few(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    assert command in every_command()
    assert f"mqstore {command}" in run(command, "--help").stdout


def test_python_can_run_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "mqstore", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == run("--version").stdout


@pytest.mark.slow  # the README's first command runs it as well
def test_the_tour_of_the_readme() -> None:
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", HERE / "tour.sh"], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "storm17" in done.stdout


def test_dump_reads_every_message(killed: Path) -> None:
    found = records(run("dump", killed, "--format", "ndjson").stdout)
    assert sum(record["type"] == "message" for record in found) == 611


def test_recover_says_and_does_what_a_broker_would(killed: Path) -> None:
    plan = json.loads(run("recover", killed, "--format", "json", code=3).stdout)
    assert plan["exit"] == "crashed"
    assert plan["prediction"]["log_end"] == 396044
    assert plan["prediction"]["lost"] == []
    run("recover", killed, "--policy", "broker", "--apply", "--yes")
    assert json.loads(run("inspect", killed, "--format", "json").stdout)["exit"] == "clean"


def test_what_put_stores_get_finds(tmp_path: Path) -> None:
    store = tmp_path / "store"
    sizes = ["--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"]
    index = ["--set", "maxHashSlotNum=100", "--set", "maxIndexNum=400"]
    put: list[str | Path] = ["put", store, "orders", "a body", "--keys", "k1", "--format", "ndjson"]
    (stored,) = records(run(*put, *sizes, *index).stdout)
    assert stored["type"] == "stored"
    for address in (["--key", "k1", "--topic", "orders"], ["--at", str(stored["physical_offset"])]):
        (message,) = records(run("get", store, *address, "--format", "ndjson", *sizes).stdout)
        assert message["body"] == "a body"


def test_an_error_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    done = run("inspect", tmp_path / "nothing", code=5)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "nothing") in done.stderr


def test_a_closed_pipe_is_no_error(killed: Path) -> None:
    command = f"set -o pipefail; '{PROGRAM}' dump '{killed}' --format ndjson | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert len(records(done.stdout)) == 1
    assert done.stderr == ""


def test_the_man_page_is_installed() -> None:
    assert (Path(sys.prefix) / "share/man/man1/mqstore.1").is_file()
