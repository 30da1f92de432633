"""What the commands say of a store, and what they leave where they change it: the rows of a case.

A command is called as on the command line, in this process. What takes its words apart, plans and
changes is asked by its public face only, so that a row stays what it is when modules move.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild import rebuild
from mqstore.store.audit import prove
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import StoreError
from mqstore.store.verify import log_pass

from ..cli.datadriven import run_here
from ..pipeline.plain import plain_job
from .cases import Built, Case, copy
from .normal import digest, files_of, rows_of, text_of

POLICIES = ("keep", "broker")
_PARTS = 4
"""The logs of the stores are small: so are the parts that processes take of them here."""
_ONE_IN = 4
"""So many damaged stores are there for one that is salvaged, and whose log is read in parts, too."""


class Row(NamedTuple):
    """What one command gave. policy: "" where there is none to choose."""

    command: str
    policy: str
    text: str


@dataclass(frozen=True)
class Asked:
    """A case, its store, and room for what commands make. only: the one command wanted, or ""."""

    case: Case
    built: Built
    work: Path
    only: str

    def rows(self) -> Iterator[Row]:
        """A row for each command and policy."""
        yield Row("store", "", files_of(self.built.root))
        for row in self._all():
            yield row._replace(text=self._plain(row.text))

    def _all(self) -> Iterator[Row]:
        if self.case.full:
            yield from self._row("inspect")
            yield from self._dumped()
            if self.case.damage == "whole" or int(digest(str(self.case)), 16) % _ONE_IN == 0:
                yield from self._salvaged()
                yield from self._in_parts()
        yield from self._row("verify", *self._version, jobs=1)
        yield from self._row("repair", "--all", *self._version, jobs=1)
        for policy in POLICIES:
            yield from self._recovered(policy)
        if self._wanted("repair-apply"):
            yield from self._changed("repair", "", "--all", *self._version)
        if self._wanted("put"):
            yield from self._put()
        if self._wanted("rebuild"):
            yield from self._rebuilt()

    @property
    def _version(self) -> tuple[str, ...]:
        return ("--broker-version", self.case.version) if self.case.version else ()

    def _wanted(self, command: str) -> bool:
        return self.only in ("", command)

    def _plain(self, text: str) -> str:
        return text_of(text, {str(self.work): "WORK"}) if str(self.work) in text else text

    def _row(self, command: str, *words: str, jobs: int = 0) -> Iterator[Row]:
        if self._wanted(command):
            yield Row(command, "", self._said(self.built, command, *words, jobs=jobs))

    def _said(self, built: Built, command: str, *words: str, jobs: int = 0) -> str:
        """All that a command prints, and its exit code."""
        form = ("--format", "json", *(("--jobs", str(jobs)) if jobs else ()))
        answer = run_here([command, str(built.root), *words, *form, *_settings(built)])
        return self._shown(answer.code, answer.stdout, answer.stderr)

    def _shown(self, code: int, stdout: str, stderr: str) -> str:
        names = {str(self.work): "WORK"}
        out, err = text_of(stdout, names), text_of(stderr, names)
        return f"exit {code}\n{out.rstrip()}\n{err}".rstrip()

    def _dumped(self) -> Iterator[Row]:
        if self._wanted("dump"):
            words = ["dump", str(self.built.root), "--format", "ndjson", *_settings(self.built)]
            answer = run_here(words)
            yield Row("dump", "", self._shown(answer.code, rows_of(answer.stdout), answer.stderr))

    def _salvaged(self) -> Iterator[Row]:
        if self._wanted("salvage"):
            target = self.work / "salvaged"
            words = ["salvage", str(self.built.root), "--to", str(target), "--format", "json"]
            answer = run_here(words)
            said = self._shown(answer.code, answer.stdout, answer.stderr)
            yield Row("salvage", "", f"{said}\n{files_of(target, str(self.work))}")

    def _in_parts(self) -> Iterator[Row]:
        """The same by one process and by two, the log read in parts by both."""
        for command, *words in (["verify"], ["recover"], ["repair", "--all"]):
            name = f"{command}-parts"
            if self._wanted(name):
                with _small_parts(self.built.root):
                    one, two = (self._said(self.built, command, *words, jobs=n) for n in (1, 2))
                yield Row(name, "", one)
                yield Row(f"{name}-equal", "", "equal" if one == two else two)

    def _recovered(self, policy: str) -> Iterator[Row]:
        words = ("--policy", policy, *self._version)
        if self._wanted("recover"):
            said = self._said(self.built, "recover", *words, jobs=1)
            yield Row("recover", policy, said)
            yield Row("edits", policy, _edits(said))
        if self._wanted("recover-apply"):
            yield from self._changed("recover", policy, *words)

    def _changed(self, command: str, policy: str, *words: str) -> Iterator[Row]:
        """`--apply` to a copy, its files then, and what undo makes of them."""
        own = self._copy()
        before = files_of(own.root)
        said = self._said(own, command, *words, "--apply", "--yes")
        after = files_of(own.root)
        yield Row(f"{command}-apply", policy, f"{said}\n{after}")
        if after != before:
            said = self._said(own, "undo", "--yes")
            back = files_of(own.root)
            left = "every byte is back" if back == before else back
            yield Row(f"{command}-undo", policy, f"{said}\n{left}")

    def _put(self) -> Iterator[Row]:
        own = self._copy()
        lines = self.work / "messages.ndjson"
        lines.write_text("".join(f"{json.dumps(each)}\n" for each in _messages(own.root)))
        version = ("--as-broker", self.case.version) if self.case.version else ()
        said = [
            self._said(own, "put", "--from", str(lines), *version),
            self._said(own, "put", "Goldens", "later", "--delay-level", "3", *version),
        ]
        yield Row("put", "", "\n".join([*said, files_of(own.root)]))

    def _rebuilt(self) -> Iterator[Row]:
        target = self.work / "rebuilt"
        config = BrokerConfig().with_set(self.built.options)
        try:
            plan = plan_of([self.built.root], config, self.case.version or None)
            made = rebuild(plan, target, plain_job(parts=3))
            said = json.dumps({name: made[name] for name in sorted(made) if name != "plan"})
        except StoreError as error:
            said = f"{type(error).__name__}: {error}"
        yield Row("rebuild", "", f"{text_of(said, {str(self.work): 'WORK'})}\n{files_of(target)}")

    def _copy(self) -> Built:
        """A copy of the store, at a place that is the same for every command."""
        root = copy(self.built, self.work / "copy")
        moved = (text.replace(str(self.built.root), str(root)) for text in self.built.options)
        return Built(root, tuple(moved))


def _settings(built: Built) -> list[str]:
    return [word for option in built.options for word in ("--set", option)]


def _edits(said: str) -> str:
    """The steps of a plan out of what `recover` has said: their number, and a digest of all."""
    body = said.partition("\n")[2]
    try:
        plan = json.JSONDecoder().raw_decode(body)[0].get("plan")
    except ValueError:
        return "no plan"
    steps = plan["edits"] if plan else []
    return f"{len(steps)} edits, {digest(json.dumps(steps, sort_keys=True))}"


def _messages(root: Path) -> Iterator[dict[str, object]]:
    """Lines for `put --from`: of a topic that is there, of a new one, and a batch."""
    queues = sorted((*root.glob("consumequeue/*"), *root.glob("batchconsumequeue/*")))
    own = [path.name for path in queues if path.name.isalnum()]
    for number, topic in enumerate((*own[:1], "Goldens")):
        fields = {"topic": topic, "queue_id": number, "body": f"golden {number}", "tags": "a"}
        yield {**fields, "keys": f"k{number} golden", "properties": {"x": "1"}}
    yield {"topic": "Goldens", "batch": [{"body": "one"}, {"body": "two"}]}


@contextmanager
def _small_parts(root: Path) -> Iterator[None]:
    """A process takes about a fourth of the log."""
    files = (path for path in root.glob("**/commitlog*/*") if path.is_file())
    size = max(sum(path.stat().st_size for path in files) // _PARTS, 1 << 12)
    with patch.object(log_pass, "CUT_BYTES", size), patch.object(prove, "_PART_BYTES", size):
        yield
