"""`--as`."""

from __future__ import annotations

from mqstore.cli.kind_option import KindName
from mqstore.formats.kinds import KINDS


def test_as_takes_every_kind() -> None:
    """The list that `--help` shows is that of the formats."""
    assert {*KINDS, "store"} == {kind.value for kind in KindName}
