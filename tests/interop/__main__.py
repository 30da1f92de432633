"""What a real broker start does to a store, from a shell: ``python -m tests.interop --help``."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.recovery_cases import sparse_copy

from .conftest import Judge
from .oracle import HERE, VERSIONS, Oracle, compiled
from .random_cases import Cases

COMMANDS = ("load", "get", "query", "put", "decode")
CASE = "case"

_CASE_HELP = "make the damaged store of test_prediction.py, say what broker and simulation do with it"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    commands = parser.add_subparsers(dest="version", required=True)
    prepare = commands.add_parser("prepare", help="fetch jars and compile, for CI and for later")
    prepare.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    for version in VERSIONS:
        ask = commands.add_parser(version, help="ask this version; messages and queries on stdin")
        ask.add_argument("command", choices=(*COMMANDS, CASE))
        ask.add_argument("store", help="a copy: it is changed as a broker would change it")
        ask.add_argument("--case", type=int, default=0, metavar="NUMBER", help=_CASE_HELP)
        ask.add_argument("--mishaps", metavar="N,…", help="of the case, those alone")
        ask.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
        ask.add_argument("--no-start", action="store_true", help="load only")
        ask.add_argument("--halt", action="store_true", help="end as if killed")
        ask.add_argument("--log", default="warn", help="level of RocketMQ's own log")
    return parser.parse_args()


def _steps(command: str) -> list[dict[str, Any]]:
    """What to do with the loaded store; reads stdin where the command needs input."""

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in sys.stdin if line.strip()]

    known: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "get": lambda: [{"do": "get"}],
        "put": lambda: [{"do": "put", "messages": lines()}],
        "query": lambda: [{"do": "query", **query} for query in lines()],
    }
    return known.get(command, list)()


def _case(options: argparse.Namespace) -> int:
    """Make a random case again; exit code 1 where broker and simulation disagree."""
    judge = Judge(options.version)
    with tempfile.TemporaryDirectory(prefix="mqstore-interop-") as work:
        case = Cases(judge, Path(work))[options.case]
        if options.mishaps:
            wanted = [int(number) for number in options.mishaps.split(",")]
            case = case.only([pair for pair in case.mishaps if pair[0] in wanted])
        seen = case.judged(judge)
        shutil.copytree(case.made("case"), options.store, copy_function=sparse_copy)
    judge.close()
    print("\n".join(seen.answer.get("log", [])), file=sys.stderr)
    print(case, " ".join(f"--set {name}={value}" for name, value in case.store.config.items()))
    print("\n".join(seen.differences) or "as predicted")
    return 1 if seen.differences else 0


def main() -> int:
    """Ask, print one JSON line per result, say RocketMQ's warnings on stderr."""
    options = _arguments()
    if options.version == "prepare":
        sources = sorted((HERE / "java" / "oracle").glob("*.java"))
        for version in options.versions:
            print(compiled(version, sources))
        return 0
    if options.command == CASE:
        return _case(options)
    with Oracle(options.version, log=options.log) as oracle:
        if options.command == "decode":
            answer = oracle.decode(options.store)
            results = answer["messages"] + answer["files"]
        else:
            answer = oracle.run(
                options.store,
                config=dict(pair.split("=", 1) for pair in options.set),
                steps=_steps(options.command),
                start=not options.no_start,
                exit="kill" if options.halt else "clean",
            )
            results = [answer] if options.command == "load" else answer.get("steps", [])
    print("\n".join(answer["log"]), file=sys.stderr)
    for result in results:
        print(json.dumps(result, ensure_ascii=False))
    return 0 if answer.get("loaded", True) and "exception" not in answer else 1


if __name__ == "__main__":
    sys.exit(main())
