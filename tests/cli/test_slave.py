"""`recover --role slave`: what a new master makes a slave cut off, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.slave import _text
from mqstore.formats.epoch_file import FILE as EPOCH_FILE

from .. import stores
from .datadriven import Result, run_here

NAME = "5.3.3-v2"


def epochs(path: Path, *begins: int) -> Path:
    """An epoch file whose epochs begin there."""
    rows = (f"{number}-{begin}\n" for number, begin in enumerate(begins, 1))
    path.write_text(f"{len(begins)}\n0\n{''.join(rows)}")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = stores.unpack(NAME, tmp_path)
    epochs(store / EPOCH_FILE, 0)
    return store


def asked(root: Path, master: Path) -> Result:
    return run_here(["recover", str(root), "--role", "slave", "--epoch", str(master)])


def test_a_cut_is_told_with_what_it_loses_and_ends_with_1(root: Path, tmp_path: Path) -> None:
    rows = list(stores.messages(NAME))
    at = rows[-3]["physical_offset"]
    done = asked(root, epochs(tmp_path / "master", 0, at))
    first, second, *lost = done.stdout.splitlines()
    assert done.code == 1
    assert first.startswith(f"The slave cuts its log at {at:,} (it ends at ") and first.endswith("loses 3 messages.")
    assert second.startswith("  epoch 1 here, 2 at the master")
    assert sum(int(line.split()[0]) for line in lost) == 3


def test_a_cut_inside_of_a_record_never_comes(root: Path, tmp_path: Path) -> None:
    at = list(stores.messages(NAME))[-3]["physical_offset"] + 1
    done = asked(root, epochs(tmp_path / "master", 0, at))
    assert done.code == 1
    assert done.stdout.startswith(f"The slave never follows: no record starts at {at:,}, where its log must be cut.")


def test_where_nothing_is_cut_the_code_is_0(root: Path, tmp_path: Path) -> None:
    done = asked(root, epochs(tmp_path / "master", 0))
    assert (done.code, done.stdout.startswith("Nothing is cut off: both logs are the same up to ")) == (0, True)
    (root / EPOCH_FILE).unlink()
    done = asked(root, tmp_path / "master")
    assert done.code == 1 and "before, its log breaks there: " in done.stdout
    assert ".\n  no epoch here, 1 at the master" in done.stdout


@pytest.mark.parametrize("words", [["--role", "slave"], ["--epoch", "x"]])
def test_one_option_without_the_other(words: list[str], root: Path) -> None:
    done = run_here(["recover", str(root), *words])
    assert (done.code, done.stdout) == (2, "") and "--role slave and --epoch FILE need each other" in done.stderr


def test_names_make_no_lines_of_their_own() -> None:
    found: dict[str, Any] = {"outcome": "refuses", "position": -1, "log_end": 9, "last_epoch": 3, "master_epoch": 4}
    lost = [{"messages": 2, "topic": "t\nmqstore: all is well", "queue_id": 0}]
    page = _text({**found, "by_source": "-1", "lost": lost})
    assert "no epoch starts at the same position in both files." in page
    assert len(page.splitlines()) == 3
