"""Suggestions for a command or an option that mqstore does not have.

The names come from other tools and from what people try first; each leads to a command line that does the same. For a
mistyped word the nearest name is suggested.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from .declared import PROGRAM

_NEAR = 0.7
"""Similarity (difflib) from which a word is taken for a mistyped name; at 0.6 lag would match salvage."""

_VERIFY, _REPAIR, _RECOVER = "mqstore verify PATH", "mqstore repair STORE", "mqstore recover STORE"
_INSPECT, _DUMP, _UNDO = "mqstore inspect PATH", "mqstore dump PATH", "mqstore undo STORE"
_KEY = "mqstore get STORE --key KEY"
_FOLLOW = "mqstore get STORE --follow"
_STATS = "mqstore stats STORE"
_SALVAGE = "mqstore salvage IMAGE --to DIR"
_PUT = "mqstore put STORE TOPIC BODY"
_OFFSETS = "mqstore offsets STORE"

COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("check", "fsck", "validate", "lint", "scrub", "audit", "test"), _VERIFY),
    **dict.fromkeys(("fix", "mend", "rebuild", "heal", "reindex"), _REPAIR),
    **dict.fromkeys(("plan", "preflight", "predict", "simulate", "preview", "start", "restart"), _RECOVER),
    **dict.fromkeys(("ls", "info", "describe", "status", "list", "summary", "stat"), _INSPECT),
    **dict.fromkeys(("topics", "queues", "show"), _INSPECT),
    **dict.fromkeys(("delays", "timers", "retry", "retries", "dlq"), f"{_INSPECT} --delays --timers --retries"),
    "pop": f"{_INSPECT} --pop",
    "transactions": f"{_INSPECT} --transactions",
    **dict.fromkeys(("cat", "print", "decode", "read", "head"), _DUMP),
    **dict.fromkeys(("hexdump", "hex"), f"{_DUMP} --hex"),
    **dict.fromkeys(("restore", "rollback", "revert", "back"), _UNDO),
    **dict.fromkeys(("find", "search", "query", "lookup"), _KEY),
    "grep": "mqstore get STORE --grep REGEX",
    **dict.fromkeys(("tail", "follow", "watch"), _FOLLOW),
    **dict.fromkeys(("carve", "undelete", "rescue", "extract"), _SALVAGE),
    **dict.fromkeys(("append", "write", "send", "produce", "publish", "insert"), _PUT),
    **dict.fromkeys(("du", "disk", "usage", "top", "count"), _STATS),
    **dict.fromkeys(("compare", "cmp"), "mqstore diff A B"),
    **dict.fromkeys(("html", "page", "chart", "plot", "picture"), "mqstore report STORE --to FILE.html"),
    **dict.fromkeys(("select", "duckdb", "ask"), "mqstore sql QUERY STORE"),
    **dict.fromkeys(("convert", "migrate"), f"{_REPAIR} --queues --as rocksdb (or files), or --convert plain --to DIR"),
    "import": "mqstore put STORE --from FILE, or mqstore pipeline import FILE --to DIR",
    "compact": "mqstore pipeline compact STORE --to DIR",
    **dict.fromkeys(("lag", "groups", "consumers", "progress"), _OFFSETS),
    **dict.fromkeys(("corrupt", "break", "drill"), "mqstore damage STORE --to COPY"),
    **dict.fromkeys(("why", "code", "codes"), "mqstore explain CODE"),
    **dict.fromkeys(("help", "man", "usage-help"), "mqstore --help"),
    "version": "mqstore --version",
}
"""Words that are not commands → the command line that is meant."""

_FORMATS = {f"--{name}": f"--format {name}" for name in ("json", "ndjson", "csv", "text")}

OPTIONS: Mapping[str, tuple[str, ...]] = {
    **{name: (meant,) for name, meant in _FORMATS.items()},
    "--jsonl": ("--format ndjson",),
    "--format-json": ("--format json",),
    **dict.fromkeys(("--out", "--output-file", "--out-file", "--outfile"), ("--output FILE",)),
    **dict.fromkeys(("--threads", "--parallel", "--workers", "--processes", "--cores"), ("--jobs N",)),
    **dict.fromkeys(("--debug", "--trace"), ("--verbose",)),
    "--silent": ("--quiet",),
    **dict.fromkeys(("--no-colour", "--nocolor", "--color=never", "--plain"), ("--no-color",)),
    **dict.fromkeys(("--config", "--conf", "--config-file"), ("--broker-config FILE",)),
    **dict.fromkeys(("--property", "--define", "--option"), ("--set KEY=VALUE",)),
    **dict.fromkeys(("--limit-rate", "--bwlimit", "--throttle", "--max-rate"), ("--rate BYTES",)),
    **dict.fromkeys(("--from", "--start", "--begin", "--after", "--start-time"), ("--since TIME",)),
    **dict.fromkeys(("--to", "--end", "--before", "--stop", "--end-time"), ("--until TIME",)),
    **dict.fromkeys(("--head", "--max", "--max-count", "--top", "--lines"), ("--limit N", "--count N")),
    **dict.fromkeys(("--tail", "--watch", "--live"), ("--follow",)),
    **dict.fromkeys(("--last", "--desc", "--newest"), ("--reverse --limit N",)),
    **dict.fromkeys(("--id", "--msg-id", "--msgid", "--offset-msg-id"), ("--message-id HEX",)),
    **dict.fromkeys(("--uniq-key", "--unique-id", "--uniqkey"), ("--unique-key HEX",)),
    "--keys": ("--key K",),
    "--tags": ("--tag TAG",),
    **dict.fromkeys(("--regex", "--body", "--search", "--pattern"), ("--grep REGEX",)),
    **dict.fromkeys(("--filter", "--sql", "--select"), ("--where SQL92",)),
    **dict.fromkeys(("--queue-id", "--queueid", "--partition"), ("--queue Q",)),
    **dict.fromkeys(("--position", "--physical-offset", "--phy-offset"), ("--at N", "--at POSITION")),
    **dict.fromkeys(("--kind", "--type"), ("--as KIND",)),
    **dict.fromkeys(("--force", "--assume-yes", "--no-confirm"), ("--yes",)),
    **dict.fromkeys(("--execute", "--commit", "--write", "--do", "--go"), ("--apply",)),
    **dict.fromkeys(("--fast", "--shallow"), ("--quick",)),
    **dict.fromkeys(("--full", "--thorough"), ("--deep",)),
}
"""Options that no command has, or only some → options that are meant, if the command has them."""

ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("--fix", "--repair", "--mend", "--apply"), "mqstore repair STORE --apply"),
    **dict.fromkeys(("--check", "--verify"), "mqstore verify PATH"),
    **dict.fromkeys(("--follow", "-f", "--tail"), _FOLLOW),
    "--version": "mqstore --version",
}
"""Options that another command has → that command."""

_DRY_HINTS = {
    "recover": "nothing is written without --apply",
    "repair": "nothing is written without --apply",
    "undo": "on a terminal undo shows what it would take back, and asks; --list names the sessions",
    "salvage": "did you mean --dry-run?",
}
_SPARK = ("--master", "--executor-memory", "--packages")
_WRITES_AT_ONCE = ("put", "damage", "rebuild", "export", "compact", "import")
_DRY = ("--dry-run", "--dryrun", "--no-act", "--just-print", "--simulate", "--check-only", "-n")


def command_hint(word: str, known: Iterable[str], path: str = PROGRAM) -> str:
    """A suggestion for a word that is not a command, "" if there is none.

    known: the commands that exist below `path`.
    """
    known = list(known)
    name = word.strip().lower()
    if name not in known and name not in COMMANDS:
        name = _nearest(name, known) or _nearest(name, COMMANDS)
    meant = COMMANDS.get(name, "")
    if path != PROGRAM:  # a group: its own commands come first
        name = next((each for each in meant.split() if each in known), "") or _nearest(name, known)
    if name in known:
        meant = f"{path} {name}"
    return f"did you mean {meant}?" if meant else ""


def option_hint(word: str, known: Collection[str], command: str = "") -> str:
    """A suggestion for an option that a command does not have, "" if there is none.

    known: the options of that command, long and short. command: its name.
    """
    for meant in OPTIONS.get(word, ()):
        if meant.split()[0] in known:
            return f"did you mean {meant}?"
    if word in _DRY and command not in _WRITES_AT_ONCE:
        return _DRY_HINTS.get(command, "this command only reads; it writes nothing")
    if word in _SPARK:
        return "this command runs in this process, without Spark"
    if word in ELSEWHERE:
        return f"did you mean {ELSEWHERE[word]}?"
    near = _nearest(word, [name for name in known if name.startswith("--")])
    return f"did you mean {near}?" if near else ""


def _nearest(word: str, names: Iterable[str]) -> str:
    """The name most similar to a word, "" if none is similar enough."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word[:64], list(names), n=1, cutoff=_NEAR)), "")
