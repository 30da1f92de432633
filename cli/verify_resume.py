"""The state of an unfinished run of `verify`, in a file outside the store: `--resume FILE`."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..store.disk.compressed import read_regular
from ..store.errors import InvalidInput, Missing

if TYPE_CHECKING:
    from ..store.findings.findings import Finding
    from ..store.verify.context import LogFacts
    from ..store.verify.verdict import Verdict

_VERSION = 3
_BYTES_MAX = 256 << 20
_READ_WHOLE = frozenset({"layout", "checkpoint", "config", "compaction"})
"""Groups that each run checks as a whole, so that earlier findings of them are out of date."""
_MISSING = "I-070"
_NUMBERS = ("start", "end", "records", "newest", "newest_dead", "damage", "bytes", "skipped", "dispatched")


@dataclass
class Resume:
    """The state of a run. position: in the log, None for a new run. asked: options of the run.

    findings, facts: what earlier runs have found, and what they know of the log.
    """

    path: Path
    store: str
    asked: dict[str, Any]
    position: int | None = None
    findings: list[Finding] = field(default_factory=list)
    facts: LogFacts | None = None

    @classmethod
    def read(cls, path: Path, store: Path, asked: Mapping[str, Any]) -> Self:
        """The state in a file, or a new one if there is no file. Raises InvalidInput, Unreadable.

        asked: the options that all runs over the log must have in common.
        """
        root = os.fspath(store.resolve())
        if path.resolve().is_relative_to(store.resolve()):
            hint = "verify never writes into the store that it checks"
            raise InvalidInput("--resume: name a file outside the store", path=path, hint=hint)
        try:
            text = read_regular(path, _BYTES_MAX)
        except Missing:
            return cls(path, root, dict(asked))
        try:
            return cls._of(path, root, dict(asked), json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            hint = "name another file, or remove it"
            text_of = "not a state file of an interrupted verify"
            raise InvalidInput(text_of, path=path, hint=hint) from error

    @classmethod
    def _of(cls, path: Path, root: str, asked: dict[str, Any], saved: dict[str, Any]) -> Self:
        from ..store.findings.catalogue import Severity
        from ..store.findings.findings import Finding

        if saved["mqstore_verify"] != _VERSION:
            raise ValueError("another version")
        if saved["store"] != root:
            hint = "each store needs its own file"
            raise InvalidInput(f"--resume: this file belongs to {saved['store']}", path=path, hint=hint)
        if saved["asked"] != asked:
            hint = "use the options of the first run, or name another file"
            raise InvalidInput("--resume: the first run had other options", path=path, hint=hint)
        findings = [Finding(**{**row, "severity": Severity[row["severity"].upper()]}) for row in saved["findings"]]
        facts = _facts_of(saved["facts"])
        return cls(path, root, asked, int(saved["position"]), findings, facts)

    def joined(self, verdict: Verdict) -> Verdict:
        """The verdict with the findings of earlier runs added."""
        from ..store.findings.catalogue import catalogue
        from ..store.findings.findings import order
        from ..store.verify.verdict import status_of

        invariants = catalogue()
        here = {(f.code, f.path, f.offset) for f in verdict.findings}

        def again(finding: Finding) -> bool:
            """Whether this run has checked the same again, with all facts known by now."""
            if finding.code == _MISSING:
                return (finding.topic, finding.queue_id) in verdict.facts.missing
            return invariants[finding.code].group in _READ_WHOLE

        earlier = [f for f in self.findings if not again(f) and (f.code, f.path, f.offset) not in here]
        findings = [*verdict.findings, *earlier]
        findings.sort(key=order)
        return replace(verdict, status=status_of(findings), findings=findings)

    def write(self, verdict: Verdict) -> None:
        """Write the state of an unfinished run, or remove the file after a finished one."""
        if verdict.stopped_at is None:
            self.path.unlink(missing_ok=True)
            return
        rows = [{**asdict(f), "severity": f.severity.label} for f in verdict.findings]
        state = {
            "mqstore_verify": _VERSION,
            "store": self.store,
            "asked": self.asked,
            "position": verdict.stopped_at,
            "facts": _facts_json(verdict.facts),
            "findings": rows,
        }
        beside = self.path.with_name(f".{self.path.name}.new")
        beside.write_text(json.dumps(state), encoding="utf-8")
        beside.replace(self.path)


def _facts_json(facts: LogFacts) -> dict[str, Any]:
    """The facts as JSON: numbers, and rows that begin with topic and queue id."""
    saved: dict[str, Any] = {name: getattr(facts, name) for name in _NUMBERS}
    for name in ("first_offset", "next_offset"):
        saved[name] = [[*queue, offset] for queue, offset in getattr(facts, name).items()]
    saved["last"], saved["last_timestamp"] = facts.last, facts.last_timestamp
    saved["missing"] = [[*queue, _before(facts, gaps)] for queue, gaps in facts.missing.items()]
    return saved


def _before(facts: LogFacts, gaps: array[int]) -> list[int]:
    """The gaps, without those that the next run reads again: one of two processes may have been ahead."""
    values, end = iter(gaps), facts.stopped_at
    rows = zip(values, values, values, values, strict=True)
    return [n for row in rows if end is None or row[2] < end for n in row]


def _facts_of(saved: dict[str, Any]) -> LogFacts:
    """The facts from their JSON. Raises ValueError, TypeError, KeyError."""
    from ..store.broker.snapshot import QueueId
    from ..store.verify.context import LogFacts

    facts = LogFacts(**{name: type(getattr(LogFacts, name))(saved[name]) for name in _NUMBERS})
    for name in ("first_offset", "next_offset"):
        rows = {QueueId(str(topic), int(number)): int(at) for topic, number, at in saved[name]}
        getattr(facts, name).update(rows)
    facts.last, facts.last_timestamp = list(map(int, saved["last"])), int(saved["last_timestamp"])
    for topic, number, gaps in saved["missing"]:
        if len(gaps) % 4:
            raise ValueError("missing: four numbers each")
        facts.missing[QueueId(str(topic), int(number))] = array("q", gaps)
    return facts
