"""What a start forgets of `config/`, in lines: what is lost has a name, and a name has one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mqstore.cli.config_text import bare_lines, config_lines, not_back, still_lost_config
from mqstore.cli.terminal import page_of
from mqstore.store.start.config import ConfigStart, LostDelay, LostPosition

from .hostile import TEXTS

if TYPE_CHECKING:
    from mqstore.store.disk.layout import Layout
    from mqstore.store.recover.recovery import Recovery


def found(**config: Any) -> ConfigStart:
    return ConfigStart("5.3", **config)


def with_config(config: ConfigStart) -> Recovery:
    return cast("Recovery", SimpleNamespace(config=config))


def file(start: str, problem: str, *, overwritten: bool = False) -> Any:
    return SimpleNamespace(file="topics.json", start=start, problem=problem, overwritten=overwritten)


def test_nothing_is_wrong() -> None:
    """Then nothing is said; of a log that never had a configuration only that."""
    assert config_lines(found(), None) == bare_lines(with_config(found())) == []
    assert config_lines(found(files=(file("taken", ""), file("empty", "there is none"))), None) == []
    bare = found(bare=True, lost_topics=("t",))
    assert config_lines(bare, None) == []
    assert len(bare_lines(with_config(bare))) == 2 and "Configuration: none" in bare_lines(with_config(bare))[1]
    assert bare_lines(with_config(found(bare=True))) == []
    for nothing in (None, bare, found()):
        assert still_lost_config(nothing, cast("Layout", None)) is None and not_back(nothing, None) == ""


def test_what_is_lost_is_named() -> None:
    lines = config_lines(
        found(
            lost_topics=("t",),
            lost_groups=("g",),
            lost_positions=(LostPosition("g", "t", 3, 1000, None), LostPosition("g", "t", 4, 5, 2000)),
            lost_delays=(LostDelay(2, None, 1000), LostDelay(3, 7, 0), LostDelay(4, 0, 1000)),
            lost_entries=(("topics.json", "dataVersion"),),
            unnamed=(("topics.json", "some topics"),),
        ),
        None,
    )
    assert lines[:2] == ["", "Configuration as the next start reads it:"]
    assert lines[2:] == [
        "  lost     some topics",
        "  lost     topic t",
        "  lost     group g",
        "  lost     position of g on t/3: 1,000, then by its own rule",
        "  lost     position of g on t/4: 5, then 2,000",
        "  again    delay level 2 from 1,000",
        "  again    delay level 3 from 0 instead of 7",
        "  never    delay level 4 from 0 up to 1,000",
        "  lost     dataVersion of config/topics.json",
    ]


def test_where_there_is_no_start_nothing_is_forgotten() -> None:
    """Which file it is, is said."""
    refused = found(refuses="broken", lost_topics=("t",), files=(file("refuses", "broken"),))
    assert config_lines(refused, None)[2:] == ["  refuses  config/topics.json: broken"]


def test_files_are_told_once() -> None:
    one = file("backup", "cut off", overwritten=True)
    assert config_lines(found(files=(one,)), None)[2:] == ["  backup   config/topics.json: cut off"]


def test_a_long_list_is_folded() -> None:
    names = tuple(f"t{number}" for number in range(50))
    lines = config_lines(found(lost_topics=names), 10)
    assert lines[-1] == "  … 40 more (--verbose shows all)" and len(lines) == 13
    assert len(config_lines(found(lost_topics=names), None)) == 52


@pytest.mark.parametrize("text", TEXTS)
def test_names_make_no_lines_of_their_own(text: str) -> None:
    lines = config_lines(
        found(
            files=(file("backup", text),),
            lost_topics=(text,),
            lost_groups=(text,),
            lost_positions=(LostPosition(text, text, 0, 1, 0),),
            lost_entries=((text, text),),
        ),
        None,
    )
    assert len(lines) == 7
    assert page_of(lines).count("\n") == 6
