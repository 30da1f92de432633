"""A finding that a repair mends: verify names it, the repair of its part, verify does not, undo."""

from __future__ import annotations

from pathlib import Path
from random import Random

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.repair.parts import chosen, part_of_code
from mqstore.store.repair.recheck import Unrepairable, unrepairable_of, with_open_repairs
from mqstore.store.search.store import StoreReader
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import slices, stores
from ..session.test_undo import everything
from ..verify.mutations import copied, mutations, original, verified
from .test_repair import repaired


def told(name: str, root: Path) -> dict[str, int]:
    """Code → how many findings of `verify` above `info`."""
    found: dict[str, int] = {}
    for finding in verified(name, root).findings:
        if finding.severity > Severity.INFO:
            found[finding.code] = found.get(finding.code, 0) + finding.count
    return found


def find_unrepairable(layout: Layout, version: str) -> list[Unrepairable]:
    """Errors of a store that has nothing left to repair. version: the generation of brokers."""
    with StoreReader(layout) as store:
        verdict = verify(store, Scope(broker_version=version))
    return unrepairable_of(with_open_repairs(verdict, layout, version), layout)


def check_mended(code: str, seed: str, work: Path, number: int = 0) -> None:
    """Damage that breaks this invariant, the repair of its part, and undo. number: which store."""
    mutation = mutations()[code]
    name = mutation.stores[number % len(mutation.stores)]
    whole = original(name, work)
    root = copied(whole, work)
    did = mutation.mutate(root, Random(f"{slices.SEED} {seed} {code} {number}"))
    before = told(name, whole)
    assert told(name, root).get(code, 0) > before.get(code, 0), did
    broken = everything(root)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    done = repaired(root, config, chosen([part_of_code(code)], ()))
    after = told(name, root)
    new = {key: count for key, count in after.items() if count > before.get(key, 0)}
    assert not new, f"{name}: {did}: {new}"
    layout = Layout.open(root, config)
    undo(layout, session_to_undo(layout, done.session), Files())
    assert everything(root) == broken, f"{name}: {did}"
