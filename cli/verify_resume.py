"""How far a run of `verify` came, in a file outside the store: `--resume FILE`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..store.errors import InvalidInput, Missing
from ..store.regular_file import read_regular

if TYPE_CHECKING:
    from ..store.verify.finding import Finding
    from ..store.verify.run import Verdict

_VERSION = 1
_BYTES_MAX = 256 << 20
_READ_WHOLE = frozenset({"layout", "checkpoint", "config", "compaction"})
"""Groups that each run checks as a whole: what an earlier one said of them is out of date."""


@dataclass
class Resume:
    """The state. position: of the log, None for a run that begins. findings: of earlier runs."""

    path: Path
    store: str
    position: int | None
    findings: list[Finding]
    records: int = 0
    bytes: int = 0

    @classmethod
    def read(cls, path: Path, store: Path) -> Self:
        """The state in a file, or that of a run that begins. Raises InvalidInput, Unreadable."""
        root = os.fspath(store.resolve())
        if path.resolve().is_relative_to(store.resolve()):
            hint = "nothing is ever written into a store that is checked"
            raise InvalidInput("--resume: a file outside the store", path=path, hint=hint)
        try:
            text = read_regular(path, _BYTES_MAX)
        except Missing:
            return cls(path, root, None, [])
        try:
            return cls._of(path, root, json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "name another file, or remove it"
            text_of = "not the state of an interrupted verify"
            raise InvalidInput(text_of, path=path, hint=hint) from error

    @classmethod
    def _of(cls, path: Path, root: str, saved: dict[str, Any]) -> Self:
        from ..store.verify.catalogue import Severity
        from ..store.verify.finding import Finding

        if saved["mqstore_verify"] != _VERSION:
            raise ValueError("another version")
        if saved["store"] != root:
            hint = "each store needs a file of its own"
            raise InvalidInput(f"--resume: that is of {saved['store']}", path=path, hint=hint)
        findings = [
            Finding(**{**row, "severity": Severity[row["severity"].upper()]})
            for row in saved["findings"]
        ]
        counts = (int(saved["records"]), int(saved["bytes"]))
        return cls(path, root, int(saved["position"]), findings, *counts)

    def joined(self, verdict: Verdict) -> Verdict:
        """A verdict over what this run has read and what earlier ones have."""
        from ..store.verify.catalogue import catalogue
        from ..store.verify.run import status_of

        told = catalogue()
        here = {(f.code, f.path, f.offset) for f in verdict.findings}
        earlier = [
            f
            for f in self.findings
            if told[f.code].group not in _READ_WHOLE and (f.code, f.path, f.offset) not in here
        ]
        findings = [*verdict.findings, *earlier]
        findings.sort(key=lambda f: (-f.severity, f.code, f.path, f.offset or 0))
        return replace(
            verdict,
            status=status_of(findings),
            findings=findings,
            records=verdict.records + self.records,
            bytes=verdict.bytes + self.bytes,
        )

    def write(self, verdict: Verdict) -> None:
        """Keep the state of a run that was ended early; remove that of one that is done."""
        if verdict.stopped_at is None:
            self.path.unlink(missing_ok=True)
            return
        rows = [{**asdict(f), "severity": f.severity.label} for f in verdict.findings]
        state = {
            "mqstore_verify": _VERSION,
            "store": self.store,
            "position": verdict.stopped_at,
            "records": verdict.records,
            "bytes": verdict.bytes,
            "findings": rows,
        }
        beside = self.path.with_name(f".{self.path.name}.new")
        beside.write_text(json.dumps(state), encoding="utf-8")
        beside.replace(self.path)
