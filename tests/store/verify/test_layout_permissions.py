"""Files that a broker may not write: its start fails at the first of them, whatever is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.layout import may_write
from mqstore.store.verify.run import verify

from ...stores import unpack

_NOBODY = 65534
_LAYOUT = Scope(groups=frozenset({"layout"}))


def said(root: Path) -> list[Finding]:
    """What verify says of owners and rights."""
    with StoreReader(root) as store:
        return [f for f in verify(store, _LAYOUT).findings if f.code == "I-012"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of somebody who is not the superuser."""
    store = unpack("5.3.3-clean", tmp_path)
    if os.geteuid() == 0:
        for path in (store, *store.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)
    return store


def test_a_file_that_its_owner_may_not_write(root: Path) -> None:
    assert [f for f in said(root) if "%" not in f.message] == []
    for path in (root / "commitlog").iterdir():
        path.chmod(0o444)
    found = said(root)
    assert found and {f.severity for f in found} == {Severity.ERROR}
    assert {f.repair for f in found} == {"chmod -R u+rwX {store}"}


@pytest.mark.parametrize(
    ("uid", "gid", "mode", "may"),
    [
        (_NOBODY, _NOBODY, 0o600, True),
        (_NOBODY, _NOBODY, 0o466, False),
        (0, 0, 0o644, False),  # what a tool that ran as root leaves
        (0, 0, 0o664, False),
        (0, _NOBODY, 0o664, True),
        (0, _NOBODY, 0o644, False),
        (0, 0, 0o666, True),
    ],
)
def test_who_may_write_a_file(uid: int, gid: int, mode: int, may: bool) -> None:
    def status(*values: int) -> os.stat_result:
        mode, uid, gid = values
        return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))

    file = status(mode, uid, gid)
    assert may_write(file, status(0o755, _NOBODY, _NOBODY)) is may
    assert may_write(file, status(0o755, 0, 0))  # the broker runs as root


def test_a_file_that_its_owner_may_not_read(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.chmod(0o200)
    (told,) = said(root)
    assert told.severity is Severity.ERROR and told.path == str(path)
    assert "may not read it" in told.message and told.repair == "chmod -R u+rwX {store}"
