"""What to do next: the smallest set of commands that mends what was found, each ready to be pasted.

Nothing else composes a command line that people are told to run. What mends a finding is said in the
catalogue, as a word (`recover`, `all`, a part that `repair` can be confined to) or, where no repair
does, as a command to be run by hand.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..disk.byte_reader import COPY_FIRST
from ..disk.files import FOLLOW_LINKS, is_linked
from ..disk.layout import (
    BATCH_CONSUME_QUEUE,
    COMPACTION,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    TIMER_LOG,
    Layout,
    is_uri,
)
from ..errors import StoreError
from .catalogue import Severity, catalogue

if TYPE_CHECKING:
    from .findings import Finding

RECOVER, ALL, QUEUE = "recover", "all", "queue"
PARTS = frozenset({QUEUE, "index", "checkpoint", "config", "timer", "ext", "compaction"})
"""What `mqstore repair` can be confined to; the names of its options."""
MENDS = PARTS | {RECOVER, ALL}
"""The words of the catalogue; each other text there is a command by hand."""
_SAVED = frozenset({RECOVER, ALL, QUEUE})
"""Where a store cannot be mended: what of it is rebuilt with its messages."""
_NO_PLAN = "I-187"
"""`recover` and `repair` refuse the store as it is."""
CUT_OFF = "I-185"
"""A change is not over: that is not a matter of any plan."""
UNREADABLE = "I-015"
"""Its command goes before all others, alone."""
_IN_PLACE = frozenset({"mv", "cp", "touch", "chmod", "chown", "gunzip", "zstd"})
"""Commands by hand that mend something."""
_FINISH = (("mqstore", "undo"), ("mqstore", "pipeline"))
MADE_ANEW = "mv {itself} {half}"
"""What is done first with half of a store, before it is made again."""
HALF_MADE = """\
half made: the command that was making this store was cut off. Make the store again from its source, in a new \
directory; if the source is gone, salvage saves what is here"""
_CONVERTED = "--convert plain"
"""Of the command that makes another store of one that cannot be mended where it lies."""
_FILES_NAMED = 3
"""More files than these are told by the directory that they are in."""
_BESIDE_THE_LOG = frozenset({CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, TIMER_LOG, COMPACTION})
"""Directories of other files that have numbers as names."""
_QUEUES_NAMED = 3
"""More queues than these are not named one by one."""
_KNOW_VERSION = frozenset({"recover", "repair", "verify"})
_WRITE = frozenset({"recover", "repair", "undo"})


class Given(NamedTuple):
    """Options of a command that the next one needs as well, as words.

    config: --broker-config and --set. version: of --broker-version, "" where it was not given.
    writing: --journal and --follow-links.
    """

    config: tuple[str, ...] = ()
    version: str = ""
    writing: tuple[str, ...] = ()

    def words(self, name: str) -> list[str]:
        """Those that the command of this name takes."""
        versioned = self.version and name in _KNOW_VERSION
        words = ["--broker-version", self.version] if versioned else []
        return [*words, *self.config, *(self.writing if name in _WRITE else ())]

    def at(self, layout: Layout) -> Given:
        """The same for this store: with --follow-links where a change of it needs that."""
        known = FOLLOW_LINKS in self.writing or not is_linked(layout)
        return self if known else self._replace(writing=(*self.writing, FOLLOW_LINKS))


NOTHING_GIVEN = Given()


def settings(config: Mapping[str, str]) -> tuple[str, ...]:
    """Options of a broker, by name, as words."""
    return tuple(word for name, value in config.items() for word in ("--set", f"{name}={value}"))


class NextCommand(NamedTuple):
    """A command line. codes: of the findings that it is about. by_hand: no repair mends these."""

    words: tuple[str, ...]
    codes: tuple[str, ...] = ()
    by_hand: bool = False

    @property
    def changes(self) -> bool:
        """It mends something in its place, or shows how; others show or save what is there."""
        return "--apply" in self.words or self.words[0] in _IN_PLACE or self.words[:2] in _FINISH

    @property
    def ends(self) -> bool:
        """It ends a change of the store that was cut off."""
        return self.changes and self.words[0] == "mqstore"

    def __str__(self) -> str:
        return " ".join(map(_quoted, self.words))


def _quoted(word: str) -> str:
    """As a shell takes it. What is no text to show is written as bash and zsh know it: it can be pasted."""
    if word.isprintable():
        return shlex.quote(word)
    shown = (c if c.isprintable() and c not in "\\'" else _in_hex(c) for c in word)
    return f"$'{''.join(shown)}'"


def _in_hex(char: str) -> str:
    of_undecodable = "\udc80" <= char <= "\udcff"
    data = char.encode("utf-8", "surrogateescape" if of_undecodable else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def command(name: str, root: PathLike[str] | str, *arguments: str, given: Given = NOTHING_GIVEN) -> NextCommand:
    """`mqstore NAME ROOT ARGUMENTS…` with the options that were given."""
    return NextCommand(("mqstore", name, _operand(root), *arguments, *given.words(name)))


def proposed(layout: Layout, name: str, *arguments: str) -> str:
    """A command for the store of a layout, with the configuration that it was opened with, and what it needs."""
    return str(command(name, layout.root, *arguments, given=Given(layout.broker_config.words).at(layout)))


def repair_command(
    root: PathLike[str] | str,
    parts: Iterable[str] = (),
    queues: Sequence[str] = (),
    given: Given = NOTHING_GIVEN,
    kind: str = "",
) -> NextCommand:
    """`mqstore repair ROOT … --apply`. parts: of `PARTS`, none for all. queues: as `--queue` takes them,
    none for all. kind: where all queues go, as `--as` takes it.
    """
    if kind:
        return command("repair", root, "--queues", "--as", kind, "--apply", given=given)
    chosen = sorted(set(parts))
    words = [f"--{part}" for part in chosen if part != QUEUE] if chosen else ["--all"]
    if QUEUE in chosen:
        words = [*(word for each in queues or ("*",) for word in ("--queue", each)), *words]
    return command("repair", root, *words, "--apply", given=given)


def salvaging(root: PathLike[str] | str, given: Given = NOTHING_GIVEN, *arguments: str) -> NextCommand:
    """`mqstore salvage ROOT --to ROOT-salvaged`."""
    return command("salvage", root, "--to", _beside(root, "salvaged"), *arguments, given=given)


def converting(root: PathLike[str] | str, given: Given = NOTHING_GIVEN) -> NextCommand:
    """`mqstore repair ROOT --convert plain --to ROOT-plain`."""
    return command("repair", root, *_CONVERTED.split(), "--to", _beside(root, "plain"), given=given)


def copying_first(path: str, given: Given = NOTHING_GIVEN, root: PathLike[str] | str | None = None) -> str:
    """What to do where a disk does not give bytes of the file at `path`. root: of its store, where that
    is known.
    """
    root = _store_above(fspath(Path(path).parent)) or root
    return COPY_FIRST if root is None else f"{COPY_FIRST}, then: {salvaging(root, given)}"


@cache
def _store_above(directory: str) -> str | None:
    for place in (Path(directory), *Path(directory).parents):
        try:
            return fspath(Layout.open(place).root)
        except StoreError:
            continue
    return None


def next_commands(
    findings: Iterable[Finding],
    root: PathLike[str] | str,
    given: Given = NOTHING_GIVEN,
    *,
    whole: bool = True,
    recovered: bool | None = None,
    to_renumber: Sequence[str] | None = None,
    unmendable: str = "",
    least: Severity = Severity.ERROR,
) -> list[NextCommand]:
    """What mends a store, in this order. whole: all of it was looked at; a repair of one part is refused
    where the log is damaged, too. recovered: `recover` has nothing to do any more: what it would mend
    no repair mends; False: it has, whether a finding names it or not. to_renumber: repairs of parts have
    nothing to do either, but for these queues: only a repair that names them changes numbers that consumers
    know; None: not known. unmendable: why neither takes this store; then its messages can be saved, no
    more. least: findings below are passed over, those of a shutdown that was none excepted. None is for
    a store in object storage.

    What has to be moved or unpacked by hand comes first, for it is in the way; then the one command
    of mqstore that mends all it can; then what shows what is left, once for each code.
    """
    if is_uri(fspath(root)):
        return []
    about = [finding for finding in findings if calls_for_something(finding, least)]
    # nothing is planned over bytes that nobody has read: whatever else is wrong, that comes first
    unread = [finding for finding in about if finding.code == UNREADABLE]
    if (left := going_on(about, root, given)) is not None and not unread:
        return [left]
    about = unread or about
    mended: dict[str, list[Finding]] = {}
    by_hand: dict[tuple[str, ...], list[Finding]] = {}
    renumbered: list[Finding] = []
    for finding in about:
        cure = cure_of(finding)
        if is_past_repair(finding, recovered, to_renumber):
            if _is_renumbered(finding, to_renumber):
                renumbered.append(finding)
        elif cure in MENDS:
            mended.setdefault(cure, []).append(finding)
        elif cure:
            by_hand.setdefault(_by_hand(cure, finding, root, given), []).append(finding)
    if refused(about):
        commands = []
    elif unmendable:
        lost = {cure: found for cure, found in mended.items() if cure in _SAVED}
        commands = [_saving(lost, root, given, unmendable)] if any(lost.values()) else []
    else:
        commands = [_mending(mended, root, given, whole=whole)] if mended else []
        if renumbered and to_renumber:
            again = repair_command(root, (QUEUE,), to_renumber, given)
            commands.append(again._replace(codes=_codes(renumbered)))
        if about and not (commands or unread) and recovered is False:
            commands = [command("recover", root, "--apply", given=given)]
    hands = [NextCommand(words, _codes(found), True) for words, found in by_hand.items()]
    looks = {each.codes: each for each in reversed(hands) if each.words[0] == "mqstore"}
    in_the_way = [each for each in hands if each.words[0] != "mqstore"]
    return [*in_the_way, *commands, *reversed(looks.values())]


def going_on(findings: Iterable[Finding], root: PathLike[str] | str, given: Given) -> NextCommand | None:
    """What ends a change that was cut off, where that is not `recover` as it is called for any other reason: it goes
    before all else.
    """
    for finding in findings:
        if finding.code == CUT_OFF and (cure := cure_of(finding)) not in MENDS:
            if cure.startswith("mqstore pipeline "):
                given = NOTHING_GIVEN  # it has those that it was begun with
            if "--journal" in cure and "--journal" in (writing := given.writing):
                at = writing.index("--journal")
                given = given._replace(writing=(*writing[:at], *writing[at + 2 :]))
            return NextCommand(_by_hand(cure, finding, root, given), (CUT_OFF,))
    return None


def by_hand(cure: str, root: PathLike[str] | str) -> NextCommand:
    """A command of the catalogue that is about a store as a whole."""
    from .findings import Finding  # which costs a start more than all of this

    return NextCommand(_by_hand(cure, Finding.of(CUT_OFF, fspath(root), ""), root, NOTHING_GIVEN))


def done_with_half(root: Path) -> str:
    """What is done with half of a store: it makes room for a whole one. Behind that, what is in it can be saved."""
    moved = root.resolve().name.endswith("-half")
    return "mqstore salvage {store} --to {salvaged}" if moved else MADE_ANEW


def pipeline_again(manifest: Mapping[str, Any]) -> str:
    """The command that has sealed a stage with this manifest, as the catalogue has commands; "" where none has."""
    try:
        plan, job = manifest.get("plan"), manifest.get("job")
        if plan is not None:
            first = plan["stores"][0]
            name, of, options = "rebuild", [store["root"] for store in plan["stores"]], settings(first["options"])
            options = ("--broker-version", first["broker_version"], *options)
        elif job is not None:
            name, of = ("import", job["files"]) if "files" in job else ("compact", list(job["folders"]))
            of = of if name == "compact" or len(of) <= _FILES_NAMED else [os.path.commonpath(of)]
            options = (*(word for topic in job.get("topics", ()) for word in ("--topic", topic)), *_made(job["how"]))
        else:
            return ""
        if any(word.startswith("-") or "\0" in word for word in of):
            return ""  # no name of a file that a shell hands over as one
        return f"mqstore pipeline {name} {in_catalogue((*of, '--to'))} {{store}} {in_catalogue(options)}".rstrip()
    except (LookupError, TypeError, AttributeError, ValueError):  # anybody may have written it
        return ""


def in_catalogue(words: Iterable[str]) -> str:
    """Words as the catalogue has those of its commands: as they are, whatever is in them."""
    return " ".join(shlex.quote(word).replace("{", "{{").replace("}", "}}") for word in words)


def _made(how: Mapping[str, Any]) -> Iterator[str]:
    """Options of a command that makes a store of messages."""
    yield from settings(how["config"])
    if how["as_broker"]:
        yield from ("--as-broker", how["as_broker"])
    if not how["keep_times"]:
        yield "--new-times"
    if how["on_damage"] != "fail":
        yield from ("--on-damage", how["on_damage"])


def refused(findings: Iterable[Finding]) -> str:
    """Why `recover` and `repair` refuse the store as it is, "" where they do not."""
    told = (finding.message or finding.code for finding in findings if finding.code == _NO_PLAN)
    return next(told, "")


def calls_for_something(finding: Finding, least: Severity = Severity.ERROR) -> bool:
    """It is an error, or as serious as `least`, or the shutdown was none."""
    return finding.severity >= least or finding.unclean


def is_past_repair(finding: Finding, recovered: bool | None, to_renumber: Sequence[str] | None) -> bool:
    """No repair mends it where it lies, whatever its cure is. recovered, to_renumber: as in `next_commands`.

    A warning alone is no reason for `recover` to look at a part: a repair of that may have something to do.
    """
    cure = cure_of(finding)
    if finding.code == CUT_OFF:
        return False
    if to_renumber is not None and cure in MENDS and calls_for_something(finding):
        return True
    return bool(recovered) and cure == RECOVER


def _is_renumbered(finding: Finding, to_renumber: Sequence[str] | None) -> bool:
    """A repair that names the queue mends it."""
    of_queue = cure_of(finding) == QUEUE
    return of_queue and (finding.topic is None or _queue(finding) in (to_renumber or ()))


def tidying_commands(
    findings: Iterable[Finding],
    root: PathLike[str] | str,
    given: Given = NOTHING_GIVEN,
    *,
    recovered: bool | None = None,
) -> list[NextCommand]:
    """What mends the warnings of a store that is in order. What only shows them is left out. recovered: as in
    `next_commands`.
    """
    commands = next_commands(findings, root, given, recovered=recovered or None, least=Severity.WARNING)
    return [each for each in commands if each.changes]


def cure_of(finding: Finding) -> str:
    """What mends it: one of `MENDS`, a command by hand, or "" for nothing."""
    told = catalogue()[finding.code].repair
    return told if finding.repair is None else finding.repair


def command_for(
    finding: Finding,
    root: PathLike[str] | str,
    commands: Sequence[NextCommand] = (),
    given: Given = NOTHING_GIVEN,
    *,
    recovered: bool | None = None,
    to_renumber: Sequence[str] | None = None,
    unmendable: str = "",
) -> NextCommand | None:
    """The next command for one finding, None for none. commands: those for all findings of the store;
    the one of them that mends this finding, too, is its next one. recovered, to_renumber, unmendable: as in
    `next_commands`.
    """
    cure = cure_of(finding)
    if not cure or is_uri(fspath(root)):
        return None
    if is_past_repair(finding, recovered, to_renumber):
        helps = (each for each in commands if finding.code in each.codes and _is_renumbered(finding, to_renumber))
        return next(helps, None)
    if (left := going_on([finding], root, given)) is not None:
        return left
    if cure not in MENDS:
        return NextCommand(_by_hand(cure, finding, root, given), (finding.code,), True)
    if any(UNREADABLE in each.codes for each in commands):
        return None  # nothing is planned over bytes that nobody has read
    if unmendable:
        return next((each for each in commands if finding.code in each.codes), None)
    whole = next((each for each in commands if not each.by_hand), None)
    if whole is not None and (finding.code in whole.codes or _mends_all(whole)):
        return whole
    return _mending({cure: [finding]}, root, given)


def by_hand_for(finding: Finding, root: PathLike[str] | str, given: Given, template: str = "") -> NextCommand | None:
    """What is left to run by hand for a finding that no repair mends: a command in the catalogue's form,
    else that of the finding. None where there is none, or where the finding lacks a name for it.
    """
    cure = cure_of(finding)
    told = template or ("" if cure in MENDS else cure)
    if not told or ("{queue}" in told and finding.topic is None):
        return None
    if "{position}" in told and not _is_in_log(finding, root):
        return None
    if "{path}" in told and not os.path.lexists(finding.path):
        return None
    return NextCommand(_by_hand(told, finding, root, given), (finding.code,), True)


def _mends_all(command: NextCommand) -> bool:
    """What `recover` plans to keep is all that a repair mends. What was cut off is to be over before any repair."""
    return command.words[1] == RECOVER or "--all" in command.words or command.codes == (CUT_OFF,)


def command_in_general(code: str) -> str:
    """The next command for a finding of this code, with words for what a finding would name."""
    cure = catalogue()[code].repair
    if cure not in MENDS:
        names = {"store": "STORE", "topic": "TOPIC", "queue_id": "QUEUE", "path": "FILE"}
        return cure.format(**names, position="POSITION", aside="STORE-aside-FILE", salvaged="STORE-salvaged")
    if cure == RECOVER:
        return str(command("recover", "STORE", "--apply"))
    parts = () if cure == ALL else (cure,)
    return str(repair_command("STORE", parts, ("TOPIC/QUEUE",)))


def _mending(
    mended: dict[str, list[Finding]], root: PathLike[str] | str, given: Given, *, whole: bool = True
) -> NextCommand:
    """One command for all that a repair mends."""
    codes = _codes(finding for found in mended.values() for finding in found)
    if RECOVER in mended:  # its plan mends what any repair can
        made = command("recover", root, "--apply", given=given)
    elif whole and len(mended) == 1 and ALL not in mended:
        (part,) = mended
        queues = sorted({_queue(finding) for finding in mended[part]}) if part == QUEUE else []
        few = queues if len(queues) <= _QUEUES_NAMED else []
        made = repair_command(root, (part,), few, given)
    else:
        made = repair_command(root, given=given)
    return made._replace(codes=codes)


def _saving(lost: dict[str, list[Finding]], root: PathLike[str] | str, given: Given, unmendable: str) -> NextCommand:
    """A new store of the messages that can be read, with their queue offsets where a conversion can make it."""
    codes = _codes(finding for found in lost.values() for finding in found)
    compact = salvaging(root, given, "--layout", "compact")
    made = converting(root, given) if _CONVERTED in unmendable else compact
    return made._replace(codes=codes, by_hand=True)


def _queue(finding: Finding) -> str:
    return f"{finding.topic}/{finding.queue_id or 0}" if finding.topic is not None else "*"


def _codes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.code for finding in findings))


def _by_hand(cure: str, finding: Finding, root: PathLike[str] | str, given: Given) -> tuple[str, ...]:
    """The words of a command of the catalogue, filled in."""
    places = {
        "store": _operand(root),
        "code": finding.code,
        "topic": finding.topic or "",
        "queue_id": finding.queue_id,
        "queue": _queue(finding),
        "path": finding.path,
        "directory": fspath(Path(finding.path).parent),
        "position": _position(finding),
        "aside": aside(root, finding.path),
        "itself": _beside(root, "half").removesuffix("-half"),
        "half": _beside(root, "half"),
        "salvaged": _beside(root, "salvaged"),
    }
    words = [word.format(**places) for word in shlex.split(cure)]
    return (*words, *given.words(words[1])) if words[0] == "mqstore" else tuple(words)


def aside(root: PathLike[str] | str, path: str) -> str:
    """A place beside the store for something of it that does not belong there."""
    inside = path.removeprefix(f"{fspath(root).rstrip('/')}/").split("/")
    return _beside(root, f"aside-{'-'.join(inside)}")


def _beside(root: PathLike[str] | str, what: str) -> str:
    """The name of something that is made beside the store, of a store that is called `.`, too."""
    base = fspath(root).rstrip("/")
    if Path(base).name in ("", ".."):
        base = os.path.abspath(base)  # noqa: PTH100
    return f"{_operand(base)}-{what}"


def _is_in_log(finding: Finding, root: PathLike[str] | str) -> bool:
    """Its place is that of a record in a file of the commit log."""
    path = Path(finding.path)
    inside = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return path.name.isdigit() and _BESIDE_THE_LOG.isdisjoint(inside)


def _position(finding: Finding) -> int:
    """Of the log, where the finding is about bytes of one of its files."""
    name = Path(finding.path).name
    return (int(name) if name.isdigit() else 0) + (finding.offset or 0)


def _operand(path: PathLike[str] | str) -> str:
    """A path that is not taken for an option."""
    text = fspath(path)
    return f"./{text}" if text.startswith("-") else text
