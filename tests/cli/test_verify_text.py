"""The page of `verify`."""

from __future__ import annotations

from pathlib import Path

from mqstore.cli.verify_text import folded

from .datadriven import run_here


def test_the_page_begins_with_the_verdict(world: Path) -> None:
    store = world / "5.3.3-killed-page"
    lines = run_here(["verify", str(store)]).stdout.splitlines()
    assert lines[0].startswith(f"{store}: Do not start a broker: a broker 5.3 would lose 36 messages")
    heads = [line for line in lines if line in ("Fatal:", "Error:", "Warning:", "Info:")]
    assert heads == ["Fatal:", "Error:", "Warning:", "Info:"]
    assert lines[-2].startswith(f"  mqstore recover {store} --apply  # I-022, ")
    assert "@114673: no record at 376817" in "\n".join(lines)


def test_a_terminal_gets_lines_that_fit(world: Path) -> None:
    """The same words; what is longer than a line goes on below, commands stay whole."""
    text = run_here(["verify", str(world / "5.3.3-killed-page")]).stdout
    narrow = folded(text, 80)
    assert narrow.split() == text.split()
    told, _, commands = narrow.partition("\nWhat now:")
    assert commands == text.partition("\nWhat now:")[2]
    long = [line for line in told.splitlines() if len(line) > 80]
    assert all(len(line.split()) == 1 for line in long), "but for paths"
    behind = told.split("Fatal:\n")[1].splitlines()
    assert behind[0].startswith("  commitlog/") and behind[1].startswith("    ")
