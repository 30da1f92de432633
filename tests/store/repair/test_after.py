"""What verify says of stores of the damage corpus once they are repaired, and what it says besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.layout import Layout
from mqstore.store.recovery.apply import apply
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.repair import examine
from mqstore.store.store import Store
from mqstore.store.verify.catalogue import Severity
from mqstore.store.verify.run import verify
from mqstore.store.write.files import Files

from ... import recovery_cases
from ...recovery_cases import Case, case_of, config_of
from .test_repair import NOW_MS


def errors_after(case: Case, work: Path) -> set[str]:
    """Codes of errors that are left."""
    root = recovery_cases.damaged(case, work)
    config = config_of(case, root)
    layout = Layout.open(root, config)
    plan = examine(layout, Choice(), case["version"], NOW_MS).plan
    apply(layout, None, lambda: plan, Files(), command="repair")
    with Store(root, config) as store:
        found = verify(store).findings
    return {finding.code for finding in found if finding.severity >= Severity.ERROR}


@pytest.mark.parametrize("kind", ["zero_first_page_first", "expired_file_gap"])
def test_fillers_at_the_begin_of_a_log_have_a_time(kind: str, tmp_path: Path) -> None:
    """That of the first record that is left: a broker passes over a file that begins with none."""
    assert not errors_after(case_of(kind), tmp_path)
