"""Damage for each invariant of docs/invariants.md: one module per group, one function per code.

    @on("5.3.3-timer-clean", "5.5.0-timer-clean")
    def i_120(store: Path, random: Random) -> str:
        '''The wheel has another length.'''
        ...
        return "the wheel cut to 1234 bytes"

The function damages the store (a copy, to be written to) so that the statement of `I-120` is broken,
and says what it did; `verify` must then name the code. `on` names real stores that lack the code
before; without it a mutation is made on `DEFAULT`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import GROUPS
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from ....recovery_cases import sparse_copy
from ....stores import config as options
from ....stores import unpack

DEFAULT = ("5.3.3-clean",)
NOW_MS = 1_795_400_000_000
"""A day or two after the stores were made; a verdict must not depend on when a test runs."""

Mutate = Callable[[Path, Random], str]
_NAME = re.compile(r"i_(\d{3})")


def on(*stores: str) -> Callable[[Mutate], Mutate]:
    """The real stores that a mutation is made on, the cheapest first."""

    def mark(mutate: Mutate) -> Mutate:
        mutate.stores = stores  # type: ignore[attr-defined]
        return mutate

    return mark


@dataclass(frozen=True)
class Mutation:
    """How an invariant is broken."""

    code: str
    group: str
    mutate: Mutate
    stores: tuple[str, ...]

    def __str__(self) -> str:
        return self.code


@cache
def mutations() -> dict[str, Mutation]:
    """All of them by code; a group has a module, and others whose name begins so."""
    found: dict[str, Mutation] = {}
    here = Path(__file__).parent
    for group in GROUPS:
        for path in sorted(here.glob(f"{group}.py")) + sorted(here.glob(f"{group}_*.py")):
            module = import_module(f".{path.stem}", __package__)
            for name, mutate in sorted(vars(module).items()):
                if match := _NAME.fullmatch(name):
                    stores: Sequence[str] = getattr(mutate, "stores", DEFAULT)
                    code = f"I-{match[1]}"
                    found[code] = Mutation(code, group, mutate, tuple(stores))
    return found


def verified(name: str, root: Path) -> Verdict:
    """What `verify` says about the store of that name at `root`."""
    with StoreReader(root, BrokerConfig(options(name, root))) as store:
        return verify(store, now_ms=NOW_MS)


def original(name: str, work: Path) -> Path:
    """The store of that name, unpacked once below `work`; do not change it."""
    target = work / "originals"
    return target / name if (target / name).exists() else unpack(name, target)


def copied(source: Path, work: Path) -> Path:
    """A copy to be damaged, in a directory that the next call replaces; its holes stay holes."""
    target = work / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=sparse_copy)
    return target
