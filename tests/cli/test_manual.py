"""The manual, the completion scripts and the schemas say what the code does."""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .datadriven import run_here

ROOT = Path(__file__).parents[2]
MAN = ROOT / "man"
PAGES = sorted([*MAN.glob("man1/*.1"), *MAN.glob("man5/*.5")])


def _module(name: str) -> ModuleType:
    """A module of man/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, MAN / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


TREE = _module("command_tree").commands()


def test_nothing_generated_is_stale() -> None:
    """`python man/generate.py` was run after the last change of a command or a format."""
    done = subprocess.run(
        [sys.executable, str(MAN / "generate.py"), "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("command", TREE, ids=lambda command: command.name)
def test_every_command_has_help_examples_and_a_page(command: Any) -> None:
    """And says of each option what it does."""
    assert command.summary
    assert command.is_group or command.examples
    for example in command.examples:
        assert example.startswith("mqstore ")
    for parameter in command.parameters:
        assert parameter.help, parameter
    assert (MAN / "man1" / f"{command.name.replace(' ', '-')}.1").exists()


@pytest.mark.parametrize("command", [c for c in TREE if not c.is_group], ids=lambda c: c.name)
def test_help_has_the_own_options_first(command: Any) -> None:
    """Those that every command has stand behind them, in a section of their own."""
    text = run_here([*command.name.split()[1:], "--help"]).stdout
    own, _, common = text.partition("\nCommon options:\n")
    for option in command.options:
        section = common if option.shared or "--help" in option.names else own.split("\nOptions:")[-1]
        assert re.search(rf"^ .*{option.names[-1]}\b", section, re.MULTILINE), option.names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_clean_roff(page: Path) -> None:
    """No warning of groff, where there is one; no stray backslash in any case."""
    assert "\b" not in page.read_text("ascii")
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-t", "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stderr == ""
        assert len(done.stdout) > 500


def test_the_manual_of_the_formats_has_every_field() -> None:
    """Of every kind."""
    from mqstore.formats.derive import columns_of
    from mqstore.formats.kinds import KINDS

    page = (MAN / "man5" / "mqstore-store.5").read_text("ascii").replace("\\-", "-")
    for kind in KINDS.values():
        assert f".SH {kind.name.upper()}" in page
        for _, schema in kind.layouts:
            for column in columns_of(schema):
                assert f"\\fB{column.name}\\fR" in page


def _bash_completions(line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _mqstore; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(ROOT / "completions" / "bash" / "mqstore"), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_and_values() -> None:
    """In a real bash."""
    assert "dump" in _bash_completions("mqstore du")
    assert "--hex" in _bash_completions("mqstore dump store --h")
    assert _bash_completions("mqstore dump --format nd") == ["ndjson"]
    assert "--apply" not in _bash_completions("mqstore dump --")


def test_bash_offers_paths_where_no_option_is_begun() -> None:
    """Where the script offers nothing, bash offers files."""
    assert _bash_completions("mqstore verify ") == _bash_completions("mqstore verify st") == []
    assert _bash_completions("mqstore verify store -- --q") == _bash_completions("mqstore verify --resume ") == []
    assert {"verify", "pipeline"} <= set(_bash_completions("mqstore "))
    assert "--quick" not in _bash_completions("mqstore ")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dump --format = nd", ["ndjson"]),
        ("dump --format =", ["text", "json", "ndjson", "csv"]),
        ("dump --output =", []),
        ("verify store --broker-version 4", ["4.3", "4.9"]),
        ("put store --as-broker 4", ["4.3", "4.9"]),
        ("damage store --scenario torn-t", ["torn-tail"]),
        ("verify --only lay", ["layout"]),
        ("pipeline verify --only index,lay", ["index,layout"]),
        ("diff --only mess", ["messages"]),
        ("pipeline stats --by topic,queue_", ["topic,queue_id"]),
        ("offsets --by ", ["group", "topic", "queue"]),
        ("offsets --take ", ["max", "min"]),
        ("dump --as topics", ["topics"]),
        ("explain I-064", ["I-064"]),
        ("explain damage-c", ["damage-cuts"]),
    ],
)
def test_bash_offers_the_values_of_a_list(line: str, offered: list[str]) -> None:
    """Those of the help, behind a blank or `=`, and behind a comma."""
    assert _bash_completions(f"mqstore {line}") == offered


def _typed_in_bash(line: str, folder: Path) -> str:
    """The arguments of a command that is typed at a terminal, TAB and all."""
    script, told = ROOT / "completions" / "bash" / "mqstore", folder / ".told"
    rc = folder / ".rc"
    rc.write_text(f"source {shlex.quote(str(script))}\nmqstore() {{ printf '<%s>' \"$@\" >.told; exit; }}\n")
    master, slave = pty.openpty()
    os.write(master, f"{line}\n".encode())
    command, env = ["bash", "--rcfile", str(rc), "-i"], {**os.environ, "TERM": "dumb"}
    try:
        subprocess.run(command, stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=env, check=True, timeout=60)
    finally:
        os.close(slave)
        os.close(master)
    return told.read_text()


@pytest.mark.parametrize("typed", ["verify ", "verify --broker-config ", "report big --to ", "recover --journal "])
def test_bash_completes_files_as_a_shell_does(typed: str, tmp_path: Path) -> None:
    """Behind an option as where a store is: a directory ends with a slash, a blank is quoted."""
    for name in ("big", "my store"):
        (tmp_path / name).mkdir()
        asked = "".join(f"<{word}>" for word in typed.split())
        assert _typed_in_bash(f"mqstore {typed}{name[:2]}\t", tmp_path) == f"{asked}<{name}/>"


@pytest.mark.parametrize(("shell", "script"), [("zsh", "zsh/_mqstore"), ("fish", "fish/mqstore.fish")])
def test_scripts_name_every_command_and_option(shell: str, script: str) -> None:
    """And parse, where the shell is there."""
    path = ROOT / "completions" / script
    text = path.read_text("utf-8")
    for command in TREE:
        assert command.word in text
        for option in command.options:
            for name in option.names:
                assert name in text or f"-l {name[2:]} " in text or f"-s {name[1:]} " in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(path)], check=True, capture_output=True, timeout=60)


FILE_OPTIONS = (
    *("addresses", "body-file", "broker-config", "compare", "epoch", "from", "journal", "merge", "output", "replica"),
    "to",
)


def _offered(lines: list[str]) -> set[str]:
    """The options that completions of fish name."""
    return {f"--{name}" for line in lines for name in re.findall(r" -l ([a-z0-9-]+)", line.partition(" -d ")[0])}


def test_files_are_offered_behind_options_that_take_one() -> None:
    """In zsh and fish; and nothing behind those that take another text."""
    zsh = (ROOT / "completions" / "zsh" / "_mqstore").read_text("utf-8")
    assert set(re.findall(r"'\*?--([a-z-]+)\[.*:_files' ", zsh)) == {*FILE_OPTIONS, "resume"}
    fish = (ROOT / "completions" / "fish" / "mqstore.fish").read_text("utf-8").splitlines()
    assert _offered([line for line in fish if " -r -d " in line]) == {f"--{name}" for name in (*FILE_OPTIONS, "resume")}


@pytest.mark.parametrize("command", TREE, ids=lambda command: command.name)
def test_fish_offers_the_options_of_the_command_that_is_typed(command: Any) -> None:
    """No others: a store may be called as a command, and pipeline has commands of the same names."""
    text = (ROOT / "completions" / "fish" / "mqstore.fish").read_text("utf-8")
    function, *rest = text.partition("\ncomplete ")
    assert f"'{command.name}'" in function or command.name == "mqstore"
    lines = [line for line in "".join(rest).splitlines() if f" -n '__mqstore_at {command.name}' " in line]
    long = {name for option in command.options for name in option.names if name.startswith("--")}
    assert _offered(lines) == long


def _fish_completions(line: str) -> list[str]:
    """What fish offers at the end of a line."""
    script = "source $argv[1]; complete --do-complete $argv[2]"
    words = ["fish", "--no-config", "-c", script, str(ROOT / "completions" / "fish" / "mqstore.fish"), line]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    return [row.partition("\t")[0] for row in done.stdout.splitlines()]


def test_fish_completes_options_and_files() -> None:
    """In a real fish, where there is one."""
    if not shutil.which("fish"):
        return
    assert _fish_completions("mqstore pipeline verify --re") == []
    assert _fish_completions("mqstore put s verify --re") == ["--resume"]
    assert _fish_completions("mqstore dump --format nd") == ["ndjson"]
    assert _fish_completions("mqstore recover --journal cli/sche") == ["cli/schemas/"]
    assert _fish_completions("mqstore put --tag ") == []
