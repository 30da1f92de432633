"""What a new master's epochs make a slave cut off its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.epoch_file import FILE as EPOCH_FILE
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, NotFound
from mqstore.store.recover.predict import SlaveCut, slave_cut
from tests import stores

NAME = "5.3.3-v2"
SEVERAL_FILES = "5.3.3-clean"


def epochs(path: Path, *rows: tuple[int, int]) -> Path:
    lines = [str(len(rows)), "0", *(f"{epoch}-{begin}" for epoch, begin in rows)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stores.unpack(NAME, tmp_path)


def cut(root: Path, master: Path) -> SlaveCut:
    return slave_cut(Layout.open(root), master)


def positions() -> list[int]:
    return [row["physical_offset"] for row in stores.messages(NAME)]


def test_the_same_epochs_cut_nothing(root: Path, tmp_path: Path) -> None:
    epochs(root / EPOCH_FILE, (1, 0))
    found = cut(root, epochs(tmp_path / "master", (1, 0)))
    assert (found.outcome, found.position) == ("same", found.log_end)


def test_what_the_new_master_has_not_is_lost(root: Path, tmp_path: Path) -> None:
    """The next epoch began before the end of this log: what lies behind is none of the master's."""
    at = positions()[-5]
    epochs(root / EPOCH_FILE, (1, 0))
    found = cut(root, epochs(tmp_path / "master", (1, 0), (2, at)))
    assert (found.outcome, found.position) == ("cuts", at)
    assert found.lost.messages == 5
    assert found.to_json()["master_epoch"] == 2


def test_a_cut_inside_of_a_record_never_comes(root: Path, tmp_path: Path) -> None:
    epochs(root / EPOCH_FILE, (1, 0))
    found = cut(root, epochs(tmp_path / "master", (1, 0), (2, positions()[-5] + 1)))
    assert found.outcome == "refuses"


def test_no_epoch_in_common(root: Path, tmp_path: Path) -> None:
    epochs(root / EPOCH_FILE, (1, 0))
    found = cut(root, epochs(tmp_path / "master", (1, 1), (2, 7)))
    assert (found.outcome, found.position) == ("refuses", -1)
    assert found.lost.messages == len(positions())


def test_a_slave_without_epochs_compares_nothing(root: Path, tmp_path: Path) -> None:
    """5.3.3 asks for what is behind its own end; only an empty log is copied from the begin."""
    master = epochs(tmp_path / "master", (1, 0))
    assert cut(root, master).outcome == "unchecked"
    for file in (root / "commitlog").iterdir():
        file.unlink()
    assert cut(root, master).outcome == "copies"


def test_the_backup_counts_where_the_file_is_missing_or_does_not_add_up(root: Path, tmp_path: Path) -> None:
    at = positions()[-5]
    epochs(root / f"{EPOCH_FILE}.bak", (1, 0))
    master = epochs(tmp_path / "master", (1, 0), (2, at))
    assert (cut(root, master).outcome, cut(root, master).position) == ("cuts", at)
    epochs(root / EPOCH_FILE, (1, 0)).write_text("2\n0\n1-0\n")
    assert (cut(root, master).outcome, cut(root, master).position) == ("cuts", at)


def test_a_log_that_ends_before_its_last_epoch_never_follows(root: Path, tmp_path: Path) -> None:
    epochs(root / EPOCH_FILE, (1, 0), (2, 1 << 40))
    found = cut(root, epochs(tmp_path / "master", (1, 0), (2, 1 << 40)))
    assert found.outcome == "refuses" and found.position > found.log_end


def test_where_the_logs_agree_only_before_what_has_expired_the_whole_log_is_cut(tmp_path: Path) -> None:
    root = stores.unpack(SEVERAL_FILES, tmp_path)
    files = sorted((root / "commitlog").iterdir())
    files[0].unlink()
    epochs(root / EPOCH_FILE, (1, 0))
    found = cut(root, epochs(tmp_path / "master", (1, 0), (2, 7)))
    assert (found.outcome, found.position) == ("cuts", 7)
    assert found.lost.messages


def test_the_masters_store_tells_its_end(root: Path, tmp_path: Path) -> None:
    epochs(root / EPOCH_FILE, (1, 0))
    master = stores.unpack("4.9.7-lmq", tmp_path)
    epochs(master / EPOCH_FILE, (1, 0))
    found = cut(root, master)
    assert found.outcome in ("same", "cuts", "refuses")
    assert found.position <= found.log_end


def test_what_is_no_epoch_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "master").write_text("x\n")
    with pytest.raises(InvalidInput, match="no epoch file"):
        cut(root, tmp_path / "master")
    (tmp_path / "master").write_text("0\n0\n")
    with pytest.raises((NotFound, InvalidInput)):
        cut(root, tmp_path / "master")
