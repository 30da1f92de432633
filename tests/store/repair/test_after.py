"""What verify says of stores of the damage corpus once they are repaired, and what it says besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.layout import Layout
from mqstore.store.recovery.apply import apply
from mqstore.store.repair.beyond import _texts, beyond_repair
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.repair import examine
from mqstore.store.verify.catalogue import catalogue
from mqstore.store.write.files import Files

from ... import recovery_cases
from ...recovery_cases import Case, case_of, config_of
from .test_repair import NOW_MS


def repaired(case: Case, work: Path) -> Layout:
    """The damaged store of a case, with all of its plan carried out."""
    root = recovery_cases.damaged(case, work)
    layout = Layout.open(root, config_of(case, root))
    plan = examine(layout, Choice(), case["version"], NOW_MS).plan
    apply(layout, None, lambda: plan, Files(), command="repair")
    return layout


def test_what_no_repair_mends_is_named(tmp_path: Path) -> None:
    case = case_of("check_missing")
    (found,) = beyond_repair(repaired(case, tmp_path), case["version"])
    assert (found.code, found.path, found.findings) == ("I-131", "config/timercheck", 1)
    assert "not known" in found.why and "delivered again" in found.now


def test_texts_of_what_no_repair_mends() -> None:
    texts = _texts()
    assert set(texts) - {"OTHER"} <= set(catalogue())
    for row in texts.values():
        assert set(row) == {"why", "now"}
        assert row["now"].format(store="S", path="P", code="C")


@pytest.mark.parametrize("kind", ["zero_first_page_first", "expired_file_gap"])
def test_fillers_at_the_begin_of_a_log_have_a_time(kind: str, tmp_path: Path) -> None:
    """That of the first record that is left: a broker passes over a file that begins with none."""
    case = case_of(kind)
    assert not beyond_repair(repaired(case, tmp_path), case["version"])
