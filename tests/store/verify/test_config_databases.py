"""RocksDBs of the configuration as real brokers leave them: one without a column family is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import Store
from mqstore.store.verify.register import Scope
from mqstore.store.verify.run import verify

from ... import stores


@pytest.mark.parametrize("version", ["5.3", "5.5"])
def test_a_family_that_is_missing_is_made(version: str, tmp_path: Path) -> None:
    """Real 5.3.3 and 5.5.0 load it and make the family; a new one of 5.5.0 has none but the default."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        Rdict(str(root / "config" / name), Options(raw_mode=True)).close()
    with Store(root) as store:
        found = verify(store, Scope(groups=frozenset({"config"}), broker_version=version)).findings
    about = [finding for finding in found if finding.code == "I-155"]
    assert about and {finding.severity for finding in about} == {Severity.INFO}
