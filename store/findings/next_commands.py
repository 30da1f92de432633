"""The commands to run next: the smallest set that repairs what was found, each ready to paste.

No other module composes a command line for people to run. The catalogue says what repairs a finding: a word (`recover`,
`all`, a part that `repair` can be confined to) or, if no repair does, a command to run by hand.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..disk.broker_conf import SPLITTER_PROPERTY
from ..disk.byte_reader import COPY_FIRST
from ..disk.files import FOLLOW_LINKS, is_linked
from ..disk.layout import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    COMPACTION,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    TIMER_LOG,
    Layout,
    is_uri,
    log_files,
)
from ..errors import StoreError
from .catalogue import Severity, catalogue

if TYPE_CHECKING:
    from .findings import Finding

RECOVER, ALL, QUEUE = "recover", "all", "queue"
CUT = "recover --policy broker"
"""The log is to end before the damage: other brokers of the group have what follows."""
PARTS = frozenset({QUEUE, "index", "checkpoint", "config", "timer", "ext", "compaction"})
"""The parts that `mqstore repair` can be confined to: the names of its options."""
MENDS = PARTS | {RECOVER, CUT, ALL}
"""The words of the catalogue; any other text there is a command to run by hand."""
_SAVED = frozenset({RECOVER, CUT, ALL, QUEUE})
"""Of a store that cannot be repaired: what is made again when its messages are saved to a new store."""
_NO_PLAN = "I-187"
"""`recover` and `repair` refuse the store as it is."""
INTERRUPTED = "I-185"
"""A change was interrupted: no plan is made before that change is finished."""
_IN_GENERAL = {
    **dict.fromkeys((INTERRUPTED, "I-146"), ("verify", "STORE")),
    "I-002": ("recover", "STORE", "--replica", "STORE2", "--apply"),
}
"""What helps depends on the change that was interrupted, on whether an offset or an option is wrong, or on a copy that
has the files: a finding names its command.
"""
UNREADABLE = "I-015"
"""The command for this code comes first, alone."""
_IN_PLACE = frozenset({"mv", "cp", "touch", "chmod", "chown", "gunzip", "sed", "zstd"})
"""Commands to run by hand that repair something in place."""
_FINISH = (("mqstore", "undo"), ("mqstore", "pipeline"))
MADE_ANEW = "mv {itself} {half}"
"""The command that makes room before a store that is half made is made again."""
HALF_MADE = """\
half made: the command that was making this store was interrupted. Make the store again from its source, in a new \
directory; if the source is gone, salvage saves what is here"""
_CONVERTED = "--convert plain"
"""Option of the command that makes a new store from one that cannot be repaired in place."""
_FILES_NAMED = 3
"""With more files than this, their directory is named instead."""
_BESIDE_THE_LOG = frozenset({CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, TIMER_LOG, COMPACTION})
"""Directories of other files whose names are numbers, too."""
_QUEUES_NAMED = 3
"""With more queues than this, none is named."""
_KNOW_VERSION = frozenset({"recover", "repair", "report", "salvage", "trace", "verify"})
_WRITE = frozenset({"recover", "repair", "undo"})


class Given(NamedTuple):
    """Options of a command that the next command needs, too, as words.

    config: --broker-config and --set. version: --broker-version, "" without it. writing: --journal and --follow-links.
    """

    config: tuple[str, ...] = ()
    version: str = ""
    writing: tuple[str, ...] = ()

    def words(self, name: str) -> list[str]:
        """Return the options that the command of this name accepts."""
        versioned = self.version and name in _KNOW_VERSION
        words = ["--broker-version", self.version] if versioned else []
        return [*words, *self.config, *(self.writing if name in _WRITE else ())]

    def at(self, layout: Layout) -> Given:
        """Return the same for this store: with --follow-links if a change needs it."""
        known = FOLLOW_LINKS in self.writing or not is_linked(layout)
        return self if known else self._replace(writing=(*self.writing, FOLLOW_LINKS))


NOTHING_GIVEN = Given()


def settings(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return options of a broker, by name, as words: `--set NAME=VALUE` each."""
    return tuple(word for name, value in config.items() for word in ("--set", f"{name}={value}"))


def naming_log(directories: Iterable[PathLike[str]]) -> NextCommand:
    """Return options that name these directories of a log. A broker splits the names at a comma: if one has a comma,
    its JVM must name another separator.
    """
    names = [*map(fspath, directories)]
    separator = next((char for char in ",;:|" if not any(char in name for name in names)), ",")
    splitter = {} if separator == "," else {SPLITTER_PROPERTY: separator}
    return NextCommand(settings({**splitter, "storePathCommitLog": separator.join(names)}))


class NextCommand(NamedTuple):
    """A command line. codes: the codes of the findings that it is for. by_hand: no repair mends these findings."""

    words: tuple[str, ...]
    codes: tuple[str, ...] = ()
    by_hand: bool = False

    @property
    def changes(self) -> bool:
        """Whether it repairs something, in place or in a plain copy, or shows how. Others show or save it."""
        repairs = not {"--apply", "--convert"}.isdisjoint(self.words)
        return repairs or self.words[0] in _IN_PLACE or self.words[:2] in _FINISH

    @property
    def ends(self) -> bool:
        """Whether it finishes a change of the store that was interrupted."""
        return self.changes and self.words[0] == "mqstore"

    def __str__(self) -> str:
        return " ".join(map(_quoted, self.words))


def _quoted(word: str) -> str:
    """Quote a word for a shell. Unprintable characters are escaped as bash and zsh read them, so it can be pasted."""
    if word.isprintable():
        return shlex.quote(word)
    shown = (c if c.isprintable() and c not in "\\'" else _in_hex(c) for c in word)
    return f"$'{''.join(shown)}'"


def _in_hex(char: str) -> str:
    of_undecodable = "\udc80" <= char <= "\udcff"
    data = char.encode("utf-8", "surrogateescape" if of_undecodable else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def command(name: str, root: PathLike[str] | str, *arguments: str, given: Given = NOTHING_GIVEN) -> NextCommand:
    """Return `mqstore NAME ROOT ARGUMENTS…` with the given options."""
    return NextCommand(("mqstore", name, _operand(root), *arguments, *given.words(name)))


def proposed(layout: Layout, name: str, *arguments: str) -> str:
    """Return a command for the store of a layout, with what the layout was opened with: configuration, version of the
    broker, place of the journal; and what the command needs.
    """
    place = None if "--journal" in arguments else layout.journal_place
    writing = () if place is None else ("--journal", fspath(place.parent))
    given = Given(layout.broker_config.words, layout.version_named, writing)
    return str(command(name, layout.root, *arguments, given=given.at(layout)))


def repair_command(
    root: PathLike[str] | str,
    parts: Iterable[str] = (),
    queues: Sequence[str] = (),
    given: Given = NOTHING_GIVEN,
    kind: str = "",
) -> NextCommand:
    """Return `mqstore repair ROOT … --apply`. parts: from `PARTS`, none for all. queues: as for `--queue`, none for
    all. kind: as for `--as`, where all queues go.
    """
    if kind:
        return command("repair", root, "--queues", "--as", kind, "--apply", given=given)
    chosen = sorted(set(parts))
    words = [f"--{part}" for part in chosen if part != QUEUE] if chosen else ["--all"]
    if QUEUE in chosen:
        words = [*(word for each in queues or ("*",) for word in ("--queue", each)), *words]
    return command("repair", root, *words, "--apply", given=given)


def cutting(root: PathLike[str] | str, given: Given) -> NextCommand:
    """Return `mqstore recover ROOT --apply --policy broker`."""
    return command("recover", root, "--apply", *CUT.split()[1:], given=given)


def salvaging(root: PathLike[str] | str, given: Given, *arguments: str) -> NextCommand:
    """Return `mqstore salvage ROOT --to ROOT-salvaged`."""
    return command("salvage", root, "--to", _beside(root, "salvaged"), *arguments, given=given)


def converting(root: PathLike[str] | str, given: Given) -> NextCommand:
    """Return `mqstore repair ROOT --convert plain --to ROOT-plain`."""
    return command("repair", root, *_CONVERTED.split(), "--to", _beside(root, "plain"), given=given)


def moving_back(layout: Layout) -> str:
    """Say what to do with log files that were found where no broker looks (`Layout.aside`); "" without any."""
    if not layout.aside:
        return ""
    if any(file.compressed for path in layout.aside for file in log_files(path)):
        return "move the compressed files out of the store; if the log needs them, decompress them in their directory"
    target = layout.root / COMMIT_LOG
    empty = not (target.is_dir() and any(target.iterdir()))
    made = "" if target.is_dir() else f"{NextCommand(('mkdir', '-p', fspath(target)))} && "
    move = f"{made}mv {' '.join(map(_log_files_in, layout.aside))} {NextCommand((fspath(target),))}"
    read = layout.aside if empty else (target, *layout.aside)
    there = f"if the broker reads them there, add {naming_log(read)}"
    return f"move them back (`{move}`); {there}; if nobody needs them, move them out of the store"


def _log_files_in(directory: Path) -> str:
    """Return the words for a shell that name the log files of a directory, and nothing else that lies there."""
    paths = [file.path for file in log_files(directory)]
    others = {entry.name for entry in directory.iterdir()} - {Path(path).name for path in paths}
    if any(name[0].isdigit() for name in others):
        return str(NextCommand(tuple(paths)))
    return f"{NextCommand((fspath(directory),))}/[0-9]*"


def copying_first(path: str, given: Given, root: PathLike[str] | str | None) -> str:
    """Say what to do if a disk cannot read bytes of the file at `path`. root: of its store, if known."""
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
    """Return the commands that repair a store, in order; none for a store in object storage.

    First what has to be moved or unpacked by hand, because it is in the way; then the one command of mqstore that
    repairs all it can; then the commands that show what is left, once for each code.

    whole: the whole store was checked; a repair of one part is refused if the log is damaged, too. recovered: `recover`
    has nothing to do any more, so that no repair mends what it would mend; False: it has, whether a finding says so or
    not. to_renumber: repairs of parts have nothing to do either, except for these queues, whose offsets consumers know:
    only a repair that names them changes these; None: not known. unmendable: why neither command accepts this store;
    then its messages can only be saved. least: findings below it are left out, except that the shutdown was not clean.
    """
    if is_uri(fspath(root)):
        return []
    about = [finding for finding in findings if calls_for_something(finding, least)]
    # no plan is made over bytes that could not be read: they come first, whatever else is wrong
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
        same = by_hand.pop(commands[0].words, []) if commands else []
        commands = [each._replace(codes=(*each.codes, *_codes(same))) for each in commands]
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
    """Return the command that must first finish an interrupted change; None without one, or if plain `recover` does."""
    for finding in findings:
        if finding.code == INTERRUPTED and (cure := cure_of(finding)) not in MENDS:
            if cure.startswith("mqstore pipeline "):
                given = NOTHING_GIVEN  # the command has the options that the job was started with
            if "--journal" in cure and "--journal" in (writing := given.writing):
                at = writing.index("--journal")
                given = given._replace(writing=(*writing[:at], *writing[at + 2 :]))
            return NextCommand(_by_hand(cure, finding, root, given), (INTERRUPTED,))
    return None


def by_hand(cure: str, root: PathLike[str] | str) -> NextCommand:
    """Return a command of the catalogue that is about a whole store."""
    from .findings import Finding  # imported late: it needs numpy

    return NextCommand(_by_hand(cure, Finding.of(INTERRUPTED, fspath(root), ""), root, NOTHING_GIVEN))


def done_with_half(root: Path) -> str:
    """Return what is done with a store that is half made: move it away; if it was moved already, save what is in it."""
    moved = root.resolve().name.endswith("-half")
    return "mqstore salvage {store} --to {salvaged}" if moved else MADE_ANEW


def pipeline_again(manifest: Mapping[str, Any]) -> str:
    """Return the command that made a stage with this manifest, in the form of the catalogue; "" if none did."""
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
            return ""  # no shell passes such a file name as one
        return f"mqstore pipeline {name} {in_catalogue((*of, '--to'))} {{store}} {in_catalogue(options)}".rstrip()
    except (LookupError, TypeError, AttributeError, ValueError):  # anybody may have written the manifest
        return ""


def in_catalogue(words: Iterable[str]) -> str:
    """Quote words for a command of the catalogue, braces included."""
    return " ".join(shlex.quote(word).replace("{", "{{").replace("}", "}}") for word in words)


def _made(how: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options of a command that makes a store from messages."""
    yield from settings(how["config"])
    if how["as_broker"]:
        yield from ("--as-broker", how["as_broker"])
    if not how["keep_times"]:
        yield "--new-times"
    if how["on_damage"] != "fail":
        yield from ("--on-damage", how["on_damage"])


def refused(findings: Iterable[Finding]) -> str:
    """Return why `recover` and `repair` refuse the store as it is, "" if they do not."""
    told = (finding.message or finding.code for finding in findings if finding.code == _NO_PLAN)
    return next(told, "")


def calls_for_something(finding: Finding, least: Severity = Severity.ERROR) -> bool:
    """Whether it is an error, or at least as serious as `least`, or says that the shutdown was not clean."""
    return finding.severity >= least or finding.unclean


def is_past_repair(finding: Finding, recovered: bool | None, to_renumber: Sequence[str] | None) -> bool:
    """Whether no repair mends it in place, whatever its cure is. recovered, to_renumber: as of `next_commands`.

    For a warning alone `recover` does not look at a part: a repair of that part may still have something to do.
    """
    cure = cure_of(finding)
    if finding.code == INTERRUPTED:
        return False
    if to_renumber is not None and cure in MENDS and calls_for_something(finding):
        return True
    return bool(recovered) and cure == RECOVER


def _is_renumbered(finding: Finding, to_renumber: Sequence[str] | None) -> bool:
    """Whether a repair that names the queue mends it."""
    of_queue = cure_of(finding) == QUEUE
    return of_queue and (finding.topic is None or _queue(finding) in (to_renumber or ()))


def cure_of(finding: Finding) -> str:
    """Return what mends it: a word of `MENDS`, a command to run by hand, or "" for nothing."""
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
    """Return the next command for one finding, or None. commands: those for all findings of the store; if one of them
    mends this finding, too, it is returned. recovered, to_renumber, unmendable: as of `next_commands`.
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
        return None  # no plan is made over bytes that could not be read
    if unmendable:
        return next((each for each in commands if finding.code in each.codes), None)
    whole = next((each for each in commands if not each.by_hand), None)
    if whole is not None and (finding.code in whole.codes or _mends_all(whole)):
        return whole
    return _mending({cure: [finding]}, root, given)


def by_hand_for(finding: Finding, root: PathLike[str] | str, given: Given, template: str = "") -> NextCommand | None:
    """Return the command to run by hand for a finding that no repair mends: the template, in the form of the catalogue,
    else the finding's own. None without one, or if the finding lacks a name that the command needs.
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
    """Whether it mends all that any repair does: `recover`, `repair --all`, or what finishes an interrupted change."""
    return command.words[1] == RECOVER or "--all" in command.words or command.codes == (INTERRUPTED,)


def command_in_general(code: str) -> str:
    """Return the next command for findings of this code, with placeholders for what a finding would name."""
    if code in _IN_GENERAL:
        return str(command(*_IN_GENERAL[code]))
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
    codes = _codes(finding for found in mended.values() for finding in found)
    if CUT in mended:
        made = cutting(root, given)
    elif RECOVER in mended:  # its plan mends all that any repair can
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
    """Return the command that saves the readable messages to a new store, with queue offsets if it can be converted."""
    codes = _codes(finding for found in lost.values() for finding in found)
    compact = salvaging(root, given, "--layout", "compact")
    made = converting(root, given) if _CONVERTED in unmendable else compact
    return made._replace(codes=codes, by_hand=True)


def _queue(finding: Finding) -> str:
    return f"{finding.topic}/{finding.queue_id or 0}" if finding.topic is not None else "*"


def _codes(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.code for finding in findings))


def _by_hand(cure: str, finding: Finding, root: PathLike[str] | str, given: Given) -> tuple[str, ...]:
    """Fill in a command of the catalogue; return its words."""
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
        "plain": _beside(root, "plain"),
        "salvaged": _beside(root, "salvaged"),
    }
    words = [word.format(**places) for word in shlex.split(cure)]
    return (*words, *given.words(words[1])) if words[0] == "mqstore" else tuple(words)


def moving_away(path: str, root: PathLike[str] | str | None = None) -> NextCommand | None:
    """The command that moves out of a store what does not belong there; None if no store is around it."""
    root = root or _store_above(fspath(Path(path).parent))
    return None if root is None else NextCommand(("mv", path, aside(root, path)))


def aside(root: PathLike[str] | str, path: str) -> str:
    """Return a path beside the store for something in it that does not belong there."""
    inside = path.removeprefix(f"{fspath(root).rstrip('/')}/").split("/")
    return _beside(root, f"aside-{'-'.join(inside)}")


def _beside(root: PathLike[str] | str, what: str) -> str:
    """Return a name beside the store for something that is made from it; the store may be called `.`."""
    base = fspath(root).rstrip("/")
    if Path(base).name in ("", ".."):
        base = os.path.abspath(base)  # noqa: PTH100
    return f"{_operand(base)}-{what}"


def _is_in_log(finding: Finding, root: PathLike[str] | str) -> bool:
    """Whether it is about a record in a file of the commit log."""
    path = Path(finding.path)
    inside = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return path.name.isdigit() and _BESIDE_THE_LOG.isdisjoint(inside)


def _position(finding: Finding) -> int:
    """Return the log position of a finding about bytes of a log file."""
    name = Path(finding.path).name
    return (int(name) if name.isdigit() else 0) + (finding.offset or 0)


def _operand(path: PathLike[str] | str) -> str:
    """Return a path that cannot be mistaken for an option."""
    text = fspath(path)
    return f"./{text}" if text.startswith("-") else text
