"""`recover` and the configuration: what a start forgets of it, and bringing it back."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.broker.topics import loads

from .. import stores
from ..store.recover.recovered import content
from .datadriven import run_here

pytestmark = pytest.mark.long

NAME = "5.3.3-clean"
VERSION = ("--broker-version", "5.3")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stores.unpack(NAME, tmp_path)


def recover(root: Path, *options: str) -> tuple[int, str]:
    found = run_here(["recover", str(root), *VERSION, *options])
    return found.code, found.stdout


def both_garbage(config: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_bytes(b"no configuration")


def all_gone(config: Path) -> None:
    for path in config.iterdir():
        path.unlink()


def emptied(config: Path) -> None:
    for path in config.glob("consumerOffset.json*"):
        path.write_bytes(b"")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("damage", "says", "left"),
    [
        (both_garbage, "would not start: config/topics.json", ""),
        (all_gone, "topics are no longer served", "the positions of all groups are lost"),
        (emptied, "the positions of all groups are lost", "the positions of all groups are lost"),
    ],
    ids=["both garbage", "all gone", "emptied"],
)
def test_what_a_start_would_forget_is_told_and_brought_back(
    damage: Callable[[Path], None], says: str, left: str, root: Path
) -> None:
    topics = set(loads((root / "config" / "topics.json").read_text())["topicConfigTable"])
    damage(root / "config")
    before = content(root)
    code, text = recover(root)
    assert (code, says in text) == (1, True), text
    code, text = recover(root, "--apply", "--yes")
    assert (code, left in text) == (1 if left else 0, True), text
    assert recover(root)[0] == 0
    assert run_here(["verify", str(root), *VERSION]).code == 0
    known = set(loads((root / "config" / "topics.json").read_text())["topicConfigTable"])
    assert {"orders", "logs", "payments"} <= known & topics
    assert run_here(["undo", str(root), "--yes"]).code == 0
    assert content(root) == before


def test_under_the_policy_broker_the_configuration_stays(root: Path) -> None:
    emptied(root / "config")
    before = content(root)
    assert recover(root, "--policy", "broker", "--apply", "--yes")[0] == 1
    assert {n: h for n, h in content(root).items() if n.startswith("config/")} == {
        n: h for n, h in before.items() if n.startswith("config/")
    }


def test_a_log_with_its_queues_alone_is_no_alarm(tmp_path: Path) -> None:
    assert run_here(["put", str(tmp_path / "s"), "orders", "hello", "--no-topic-config"]).code == 0
    shutil.rmtree(tmp_path / "s" / "config", ignore_errors=True)
    found = run_here(["recover", str(tmp_path / "s")])
    assert (found.code, "Configuration: none;" in found.stdout) == (0, True)


@pytest.mark.few(1)
@pytest.mark.parametrize("whole_backup", [True, False], ids=["a whole .bak", "no .bak"])
def test_a_directory_in_the_place_of_a_file(whole_backup: bool, root: Path) -> None:
    """A broker starts, and never writes the table again; what is told is run, as it stands there."""
    topics = root / "config" / "topics.json"
    topics.unlink()
    topics.mkdir()
    (topics / "x").write_bytes(b"x")
    if not whole_backup:
        (root / "config" / "topics.json.bak").unlink()
    code, told = recover(root)
    assert code == 1 and "a directory of this name" in told
    (line,) = (line for line in told.splitlines() if line.startswith("Next: mv "))
    subprocess.run(shlex.split(line.removeprefix("Next: ")), check=True)
    assert not topics.exists()
    code, told = recover(root, "--apply", "--yes")
    assert code == 0 or not whole_backup, told
    code, told = recover(root)
    assert "is no longer served" not in told and "would not start" not in told
    assert run_here(["verify", str(root), *VERSION]).code == 0


def test_the_loss_of_settings_is_named(root: Path) -> None:
    for name in ("topics.json", "subscriptionGroup.json"):
        (root / "config" / name).write_bytes(b"no configuration")
        (root / "config" / f"{name}.bak").unlink()
    _, plan = recover(root)
    assert "created new: permission, order, message type and other attributes are lost" in plan
    assert "created new: retries, modes and other settings are lost" in plan
    _, done = recover(root, "--apply", "--yes")
    first = done.splitlines()[0]
    assert "9 topics and 3 groups came back with default settings" in first
    assert "their old settings are lost" in first


def test_settings_that_can_be_read_are_not_called_lost(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.with_name("topics.json.bak").unlink()
    path.write_bytes(path.read_bytes()[:-10])
    _, done = recover(root, "--apply", "--yes")
    assert "default settings" not in done and "Done" in done


def test_a_store_without_its_configuration_is_no_all_clear(root: Path) -> None:
    """Each command says the same of it, and what is not back after a recovery is named."""
    shutil.rmtree(root / "config")
    sentence = "would forget configuration: 9 topics are no longer served"
    for words in (["verify", *VERSION], ["recover", *VERSION], ["inspect"]):
        found = run_here([words[0], str(root), *words[1:]])
        assert sentence in found.stdout.splitlines()[0], words
        assert found.code == (0 if words == ["inspect"] else 1), words
    code, done = recover(root, "--apply", "--yes")
    assert code == 1 and "the positions of all groups are lost" in done.splitlines()[0]


def test_positions_behind_the_ends_that_a_broker_makes_move_with_them(tmp_path: Path) -> None:
    """In the same run, and the plan names them: else the recovered store would be damaged."""
    root = stores.unpack("5.3.3-killed-bit", tmp_path)
    reset = ["offsets", str(root), "--reset", "orders@group-a_tags=latest", "--apply", "--yes"]
    assert run_here(reset).code == 0
    words = ["recover", str(root), "--policy", "broker"]
    assert "config/consumerOffset.json: 4 wrong offsets" in run_here(words).stdout
    done = run_here([*words, "--apply", "--yes"]).stdout
    assert done.startswith("Done: recovered, 150 messages lost. A broker can be started.\n"), done
