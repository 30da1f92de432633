"""`mqstore stats`: what does not go together, and stores that lack something."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.cli.browse import browser_of
from mqstore.store.search.store import StoreReader

from .. import stores
from ..failing_disk import fail_here
from .datadriven import run_here
from .held import held

EXPIRES = ("--expires", "--disk-size", "1G", "--disk-used", "900M")


@pytest.mark.parametrize("answer", ["--expires", "--browse"])
@pytest.mark.parametrize(
    "words", [("--by", "topic"), ("--top", "1"), ("--since", "-1d"), ("--until", "now"), ("--partial",)], ids=" ".join
)
def test_what_another_answer_does_not_take(answer: str, words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(["stats", str(tmp_path), answer, *words])
    assert (done.code, f"{words[0]} cannot be combined with {answer}" in done.stderr) == (2, True)


def test_queues_that_are_not_there_are_not_counted_as_none(tmp_path: Path) -> None:
    lacking = stores.unpack("5.3.3-clean", tmp_path / "a")
    sound = stores.unpack("5.3.3-clean", tmp_path / "b")
    shutil.rmtree(lacking / "consumequeue")
    assert run_here(["stats", str(lacking), "--quick"]).code == 5
    assert run_here(["stats", str(lacking), str(sound), "--quick"]).code == 5
    done = run_here(["stats", str(lacking), str(sound), "--quick", "--partial"])
    assert (done.code, "there are no consume queues" in done.stderr) == (1, True)
    assert "orders" in done.stdout
    done = run_here(["stats", str(lacking), *EXPIRES])
    assert done.code in (0, 1)


def test_a_store_whose_log_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """Where the log ends is asked of it: without --partial nothing is done."""
    broken, sound = stores.unpack("4.9.7-clean", tmp_path / "a"), stores.unpack("5.3.3-pop", tmp_path / "b")
    for log in (broken / "commitlog").iterdir():
        fail_here(log, 0, log.stat().st_size)
    done = run_here(["stats", str(broken), str(sound), "--quick", "--partial"])
    assert done.code == 5 and "work" in done.stdout and f"not read: {broken}" in done.stdout
    done = run_here(["stats", str(broken), str(sound), "--quick"])
    assert done.code == 5 and not done.stdout and "nothing was done" in done.stderr


@pytest.mark.parametrize("words", [("--quick",), EXPIRES], ids=" ".join)
def test_what_needs_a_directory_says_so_of_object_storage(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(["stats", "s3://bucket/a/store?region=x", *words])
    assert done.code == 2, done
    assert done.stderr == "mqstore: s3://bucket/a/store?region=x: use a path of this machine, not a URI\n"
    if words == ("--quick",):
        root = stores.unpack("5.3.3-clean", tmp_path)
        done = run_here(["stats", str(root), "s3://bucket/a/store", *words, "--partial"])
        assert (done.code, "orders" in done.stdout) == (1, True)


def test_queues_that_are_behind_the_log_are_told(tmp_path: Path) -> None:
    """What they lack is in no count of theirs, with --quick and on the terminal."""
    root = stores.unpack("5.5.0-lmq-poison", tmp_path)
    done = run_here(["stats", str(root), "--quick"])
    with StoreReader(root) as store:
        told = browser_of(store).unread
    assert done.code == 1 and told.startswith("the queues are behind the log, from ")
    assert told.partition(":")[0] in done.stderr
    assert run_here(["stats", str(root)]).code == 0
    with held(root):  # a broker writes units right behind their records
        assert run_here(["stats", str(root), "--quick"]).code == 0
