"""What a real broker start does to a store, from a shell: ``python -m tests.interop --help``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from .oracle import HERE, VERSIONS, Oracle, compiled

COMMANDS = ("load", "get", "query", "put", "decode")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop", description=__doc__)
    commands = parser.add_subparsers(dest="version", required=True)
    prepare = commands.add_parser("prepare", help="fetch jars and compile, for CI and for later")
    prepare.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    for version in VERSIONS:
        ask = commands.add_parser(version, help="ask this version; messages and queries on stdin")
        ask.add_argument("command", choices=COMMANDS)
        ask.add_argument("store", help="a copy: it is changed as a broker would change it")
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


def main() -> int:
    """Ask, print one JSON line per result, say RocketMQ's warnings on stderr."""
    options = _arguments()
    if options.version == "prepare":
        sources = sorted((HERE / "java" / "oracle").glob("*.java"))
        for version in options.versions:
            print(compiled(version, sources))
        return 0
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
