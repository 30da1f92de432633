"""Which error ends a command with which code: the list of the design, and what is derived of each kind."""

from __future__ import annotations

import pytest

from mqstore.cli.exit_codes import MEANINGS, ExitCode, exit_code_of, exit_code_of_status
from mqstore.store import errors
from mqstore.store.verify.verdict import Status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("x"), 1),
        (errors.Corrupted("x"), 1),
        (errors.InvalidInput("x"), 2),
        (errors.Unclean("x"), 3),
        (errors.InUse("x"), 4),
        (errors.Unreadable("x"), 5),
        (errors.Refused("x"), 5),
        (OSError("x"), 5),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_leads_to_its_code(error: BaseException, code: int) -> None:
    """What is not in the list ends with 5, whatever it is."""
    assert exit_code_of(error) == code


def test_each_status_and_each_code_has_a_meaning() -> None:
    """No verdict is without a code, no code without a line in the manual."""
    assert [exit_code_of_status(status) for status in (Status.CLEAN, Status.UNCLEAN, Status.DAMAGED)] == [0, 3, 1]
    assert {exit_code_of_status(status) for status in Status} <= set(ExitCode) == set(MEANINGS)
