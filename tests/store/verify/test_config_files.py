"""Positions of the broker's own group that contradict the transactions of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.system_topics import TRANSACTION_POSITIONS
from mqstore.store.broker.topics import dumps, loads
from mqstore.store.findings.catalogue import Severity
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores
from ...cli.datadriven import run_here


def test_positions_of_transactions_that_contradict_them(tmp_path: Path) -> None:
    """Two are open, from queue offset 21 on, and the op records decide such as lie in front of that."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    for half, op, wrong in (
        (21, 10, ""),
        (11, 0, ""),
        (25, 10, "2 open transactions lie before the position 25 "),
        (11, 10, "3 decided transactions lie behind the position 11 "),
    ):
        positions = dict(zip(TRANSACTION_POSITIONS, ({0: half}, {0: op}), strict=True))
        path.write_text(dumps({**content, "offsetTable": content["offsetTable"] | positions}))
        found = [finding.message for finding in verify(root).findings if finding.code == "I-189"]
        assert len(found) == bool(wrong) and all(text.startswith(wrong) for text in found)


@pytest.mark.parametrize(
    ("name", "content", "backup", "level"),
    [
        ("consumerFilter.json", "", "", Severity.WARNING),
        ("consumerFilter.json", "{", "", Severity.ERROR),
        ("topics.json", "", "", Severity.ERROR),
        ("topics.json", "{", None, Severity.ERROR),
        ("consumerFilter.json", "", "{", Severity.FATAL),
    ],
)
def test_a_broker_starts_where_the_bak_has_no_byte(
    name: str, content: str, backup: str | None, level: Severity, tmp_path: Path
) -> None:
    """As a full disk leaves both, and as it writes files of clients itself."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "config" / name
    path.write_text(content)
    path.with_name(name + ".bak").unlink(missing_ok=True)
    if backup is not None:
        path.with_name(name + ".bak").write_text(backup)
    scope = Scope(groups=frozenset({"config"}))
    assert [each.severity for each in verify(root, scope).findings if each.code == "I-140"] == [level]


@pytest.mark.parametrize("command", ["recover", "repair"])
def test_what_a_killed_broker_had_passed_is_not_judged_once_it_is_mended(command: str, tmp_path: Path) -> None:
    """Before, nobody says anything of positions that contradict the queues: nor does anybody afterwards."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    positions = dict(zip(TRANSACTION_POSITIONS, ({0: 11}, {0: 10}), strict=True))
    path.write_text(dumps({**content, "offsetTable": content["offsetTable"] | positions}))
    path.with_name("consumerOffset.json.bak").unlink(missing_ok=True)
    (root / "abort").touch()
    done = run_here([command, str(root), *(["--all"] if command == "repair" else []), "--apply", "--yes"])
    assert "A broker can be started." in done.stdout, done
    assert not run_here(["verify", str(root)]).code and "Nothing to do." in run_here(["recover", str(root)]).stdout
