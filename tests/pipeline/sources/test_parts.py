"""What is read part by part, and the warning of what was passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.pipeline.sources.log import LogReader
from mqstore.store.search.log_search import DamageWarning

from ...store.arrow.rows import ask_of, damage, rows
from ...stores import unpack


def test_a_task_says_what_it_has_passed_over(tmp_path: Path) -> None:
    """In one warning, which leads to the rows of the damage."""
    ask = ask_of(unpack("4.9.7-killed-page", tmp_path), fields="position")
    (lost,) = damage(ask)
    reader = LogReader(ask)
    with pytest.warns(DamageWarning, match="rocketmq-damage has all of them") as told:
        found = [rows.num_rows for part in reader.partitions() for rows in reader.read(part)]
    (warning,) = told
    assert f"{lost.size} bytes in 1 place passed over, from {lost.position}" in str(warning.message)
    assert sum(found) == len(rows(ask))
