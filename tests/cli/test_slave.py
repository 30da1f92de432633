"""`recover` of a store that becomes a slave's: what a new master makes it cut off, and a log that never follows it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.slave import _text
from mqstore.formats.epoch_file import FILE as EPOCH_FILE
from mqstore.store.disk.file_queue import file_name
from mqstore.store.library import Store

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
    assert (done.code, done.stdout.startswith("Nothing is cut off, since by the epochs both logs are the")) == (0, True)
    (root / EPOCH_FILE).unlink()
    done = asked(root, tmp_path / "master")
    assert done.code == 1 and "before, it breaks there: " in done.stdout
    assert ".\n  no epoch here, 1 at the master" in done.stdout


def test_without_epochs_the_logs_tell(root: Path, tmp_path: Path) -> None:
    master = Path(shutil.copytree(root, tmp_path / "master"))
    (root / EPOCH_FILE).unlink()
    done = asked(root, master)
    assert done.code == 0 and ". Before, both logs are the same.\n" in done.stdout
    put(root, "only here, if the master's store is no older copy")
    done = asked(root, master)
    assert done.code == 1 and "before, it breaks there: " in done.stdout


def test_a_log_that_differs_is_told_where_the_masters_store_is_given(root: Path, tmp_path: Path) -> None:
    master = Path(shutil.copytree(root, tmp_path / "master"))
    done = asked(root, master)
    assert (done.code, done.stdout.startswith("Nothing is cut off: both logs are the same up to ")) == (0, True)
    with (master / "commitlog" / file_name(0)).open("r+b") as file:
        file.seek(100)
        file.write(b"\1")
    done = asked(root, master)
    assert done.code == 1 and done.stdout.startswith("Nothing is cut off, since by the epochs both logs are the same")
    assert " But the logs first differ at 100, and it keeps what it has there. Verify both: if one " in done.stdout
    at = list(stores.messages(NAME))[-3]["physical_offset"] + 1
    epochs(master / EPOCH_FILE, 0, at)
    done = asked(root, master)
    assert done.code == 1 and done.stdout.startswith("The slave never follows: no record starts at ")
    assert " must be cut. Besides, the logs first differ at 100. Verify both: " in done.stdout
    assert " recover it with --replica and the other; else start the slave with no log.\n" in done.stdout


@pytest.mark.parametrize("words", [["--role", "slave"], ["--epoch", "x"]])
def test_one_option_without_the_other(words: list[str], root: Path) -> None:
    done = run_here(["recover", str(root), *words])
    assert (done.code, done.stdout) == (2, "") and "--role slave and --epoch FILE need each other" in done.stderr


def test_names_make_no_lines_of_their_own() -> None:
    found: dict[str, Any] = {"outcome": "refuses", "position": -1, "log_end": 9, "last_epoch": 3, "master_epoch": 4}
    lost = [{"messages": 2, "topic": "t\nmqstore: all is well", "queue_id": 0}]
    page = _text({**found, "by_source": "-1", "lost": lost, "compared": False, "differs_at": None})
    assert "no epoch starts at the same position in both files." in page
    assert len(page.splitlines()) == 3


SLAVE = ("--set", "brokerRole=SLAVE")


def put(root: Path, *bodies: str) -> None:
    for body in bodies:
        assert run_here(["put", str(root), "TopicA", body, "--queue", "0"]).code == 0


def log_of(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A master that stored two messages before it failed, and its slave, which was promoted and stored three."""
    former = stores.unpack(NAME, tmp_path)
    new = Path(shutil.copytree(former, tmp_path / "new"))
    put(former, "own of the former master", "and one more")
    put(new, "a", "b", "c")
    return former, new


def test_a_former_master_never_follows_the_new_one_before_a_cut(pair: tuple[Path, Path]) -> None:
    """Both are whole; but a slave asks for what comes behind the end of its own log, whatever is in it."""
    former, new = pair
    at = list(stores.messages(NAME))[-1]
    parted = at["physical_offset"] + at["total_size"]
    words = ["recover", str(former), *SLAVE, "--replica", str(new)]
    done = run_here(words)
    assert done.code == 1 and "--policy broker --replica" in done.stdout
    never = f"from {parted:,} on this log has other messages than {new}, so as its slave a broker never follows"
    assert done.stdout.startswith(f"Do not start a broker: recovery is not possible yet: {never}; ")
    done = run_here([*words, "--policy", "broker"])
    first, *rest = done.stdout.splitlines()
    assert done.code == 1 and first.startswith(f"Do not start a broker: {never}. `mqstore recover {former} --apply")
    assert first.endswith(" loses 2 messages; the master sends again those that it has.")
    assert "  case       in-order: shut down cleanly, complete" in rest
    assert f"This log is cut at {parted:,}: from there on it has other messages than {new}." in rest
    done = run_here([*words, "--policy", "broker", "--apply", "--yes"])
    assert done.code == 1 and done.stdout.startswith("Done: recovered, 2 messages lost; the master sends again ")
    assert log_of(former)[:parted] == log_of(new)[:parted] and not any(log_of(former)[parted:])
    done = run_here(words)
    assert (done.code, done.stdout.splitlines()[0]) == (0, "Safe to start. Nothing to do.")
    done = run_here([*words, "--policy", "broker"])
    assert done.code == 0 and "it changes nothing." in done.stdout


def test_a_master_and_a_slave_with_a_controller_start_on_another_log(pair: tuple[Path, Path]) -> None:
    """A master follows nobody, and a controller makes a slave cut its log."""
    former, new = pair
    for role in ((), (*SLAVE, "--set", "enableControllerMode=true")):
        done = run_here(["recover", str(former), *role, "--replica", str(new)])
        assert done.code == 0 and "neither becomes a copy of the other" in done.stdout
        done = run_here(["recover", str(former), *role, "--replica", str(new), "--policy", "broker"])
        assert done.code == 2 and "only for a slave without a controller" in done.stderr


def test_a_slave_that_is_behind_its_master_follows(pair: tuple[Path, Path], tmp_path: Path) -> None:
    former = stores.unpack(NAME, tmp_path / "behind")
    done = run_here(["recover", str(former), *SLAVE, "--replica", str(pair[1])])
    assert (done.code, done.stdout.splitlines()[0]) == (0, "Safe to start. Nothing to do.")


@pytest.mark.parametrize(("mine", "others"), [(("L",), ("s", "s")), (("s", "s"), ("L",)), (("s", "L"), ("L",))])
def test_a_file_that_one_log_closes_and_the_other_fills(
    mine: tuple[str, ...], others: tuple[str, ...], tmp_path: Path
) -> None:
    """A BLANK is in the place of a record then: nothing is taken for it, and the cut is in front of both."""
    root = stores.unpack(NAME, tmp_path)
    with Store(root) as store:
        size, end = store.log_files.file_size, store.log_end.position
    room = size - end % size
    put(root, "x" * (room - 1000))
    with Store(root) as store:
        end = store.log_end.position
    other = Path(shutil.copytree(root, tmp_path / "other"))
    for store_of, bodies in ((root, mine), (other, others)):
        put(store_of, *("x" * 2000 if body == "L" else body for body in bodies))
    done = run_here(["recover", str(root), *SLAVE, "--replica", str(other), "--policy", "broker"])
    assert f"  at {end:,} by the plan" in done.stdout
    done = run_here(["recover", str(root), *SLAVE, "--replica", str(other)])
    assert f"from {end:,} on this log has other messages" in done.stdout
