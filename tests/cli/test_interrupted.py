"""Ctrl-C: no half output file, and a word about how far it came."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .. import stores
from .at_a_terminal import Terminal
from .datadriven import run_here
from .putting import bodies

INTERRUPTED = re.compile(r"mqstore: interrupted, (reading|reading the log|copying|searching): .+ of ")
PRESSED = (
    "import os, signal\n"
    "from mqstore.cli import app, progress\n"
    "advance = progress.Progress.advance\n"
    "def press(self, size):\n"
    "    advance(self, size)\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"
    "progress.Progress.advance = press\n"
    "app.main()\n"
)


CUT_OFF = (
    "import os, signal, sys\n"
    "from mqstore.cli import app\n"
    "from mqstore.store.disk.files import Files\n"
    "left = [int(sys.argv.pop(1))]\n"
    "def step(self, change, path, size_bytes=0):\n"
    "    left[0] -= change == 'write'\n"
    "    if not left[0]:\n"
    "        left[0] = -1\n"
    "        os.kill(os.getpid(), signal.SIGINT)\n"
    "Files.step = step\n"
    "app.main()\n"
)


@pytest.mark.few(3)
@pytest.mark.parametrize("there", [False, True], ids=["new", "an empty directory"])
@pytest.mark.parametrize("writes", [1, 5])
@pytest.mark.parametrize("command", ["salvage", "damage"])
def test_no_half_store(command: str, writes: int, there: bool, tmp_path: Path) -> None:
    """What was made of a new store is gone again, and the line says so."""
    store, target = stores.unpack("5.3.3-clean", tmp_path / "disk"), tmp_path / "new" / "store"
    if there:
        target.mkdir(parents=True)
    more = ["--scenario", "flip-bit"] if command == "damage" else []
    words = [sys.executable, "-c", CUT_OFF, str(writes), command, str(store), "--to", str(target)]
    done = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, ""), done
    how_far = r"(, (copying|writing): .+ of .+)?" if writes > 1 else ""
    told = f"mqstore: interrupted{how_far}; {re.escape(str(target))} was removed again\n"
    assert re.fullmatch(told, done.stderr), done.stderr
    assert list(target.parent.iterdir() if there else tmp_path.iterdir()) == (
        [target] if there else [tmp_path / "disk"]
    )
    assert not there or not list(target.iterdir())


@pytest.mark.few(1)
@pytest.mark.parametrize("line", ["dump S -o F", "recover S -o F", "damage S --to C --scenario killed -o F"])
def test_how_far_it_came(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that were read, of all, and 130; the file is not there."""
    monkeypatch.chdir(tmp_path)
    stores.unpack("4.9.7-clean", tmp_path).rename(tmp_path / "S")
    with Terminal(*line.split(), program=PRESSED) as terminal:
        assert terminal.end() == 130
    assert INTERRUPTED.search(terminal.shown), terminal.shown
    assert not (tmp_path / "F").exists()
    assert "Traceback" not in terminal.shown


def test_sigterm_ends_as_ctrl_c(tmp_path: Path) -> None:
    """Temporary directories go, and the line says so."""
    code = (
        "import os, signal, tempfile\n"
        "from mqstore.cli import app\n"
        "def work(words):\n"
        "    with tempfile.TemporaryDirectory():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        raise AssertionError\n"
        "app._call = work\n"
        "app.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "mqstore: interrupted\n")
    assert not list(tmp_path.iterdir())


AT_A_CHANGE = (
    "import os, signal, sys\n"
    "from mqstore.cli import app\n"
    "from mqstore.store.disk.files import Files\n"
    "wanted = [tuple(sys.argv.pop(1).split())]\n"
    "def step(self, change, path, size_bytes=0):\n"
    "    if wanted and change == wanted[0][0] and wanted[0][1] in str(path):\n"
    "        wanted.clear()\n"
    "        os.kill(os.getpid(), signal.SIGTERM)\n"
    "Files.step = step\n"
    "app.main()\n"
)


@pytest.mark.few(2)
@pytest.mark.parametrize("where", ["write consumequeue", "rename topics.json", "unlink abort", "write commitlog"])
def test_sigterm_leaves_a_clean_store_behind_put(where: str, tmp_path: Path) -> None:
    """The record is finished, or nothing of it is there."""
    words = [sys.executable, "-c", AT_A_CHANGE, where, "put", str(tmp_path), "T", "x", "--keys", "k"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "mqstore: interrupted\n")
    assert not (tmp_path / "abort").exists()
    assert run_here(["verify", str(tmp_path)]).code == 0
    assert bodies(tmp_path) == ["x"]
