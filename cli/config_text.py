"""What `recover` and `repair` print about config/: what a start forgets, and how it reads each file."""

from __future__ import annotations

from collections.abc import Iterator

from ..store.broker.profiles import profile_of
from ..store.disk.layout import Layout
from ..store.recover.recovery import Recovery
from ..store.start.config import ConfigStart, default_settings_text, still_lost
from .plan_text import folded


def still_lost_config(before: ConfigStart | None, after: Layout) -> ConfigStart | None:
    """What a start would have lost, and what is still lost after the store was changed; None for nothing."""
    if before is None or before.bare or not before.loses:
        return None
    lost = still_lost(before, after, profile_of(before.version))
    return lost if lost.loses else None


def not_back(before: ConfigStart | None, left: ConfigStart | None) -> str:
    """Sentences on what stays lost (`left`), and on what came back without its settings, each after a space; or ""."""
    if before is None or before.bare or not before.loses:
        return ""
    unsettled = default_settings_text(before, left)
    return (f" {unsettled}." if unsettled else "") + (f" Not restored: {left.sentence}." if left else "")


def config_lines(config: ConfigStart, rows: int | None) -> list[str]:
    """Lines about files that a start does not take as they are, and about lost entries. rows: see `folded`."""
    if config.bare:
        return []
    files = [file for file in config.files if file.problem and file.start != "empty"]
    files += [file for file in config.files if file.overwritten and file not in files]
    lost = list(_lost(config)) if config.forgets else []
    if not files and not lost:
        return []
    head = [f"  {file.start:<8} config/{file.file}: {file.problem}" for file in files]
    return ["", "Configuration as the next start reads it:", *head, *folded(lost, rows)]


def bare_lines(found: Recovery) -> list[str]:
    """Lines that say that the store has no configuration, if it has topics to serve."""
    config = found.config
    text = "Configuration: none; a broker that starts on this store serves none of its topics yet."
    return ["", text] if config.bare and config.lost_topics else []


def _lost(config: ConfigStart) -> Iterator[str]:
    yield from (f"  lost     {text}" for text in config.unknown)
    yield from (f"  lost     topic {topic}" for topic in config.lost_topics)
    yield from (f"  lost     group {group}" for group in config.lost_groups)
    for place in config.lost_positions:
        then = "by its own rule" if place.after is None else f"{place.after:,}"
        where = f"{place.group} on {place.topic}/{place.queue_id}"
        yield f"  lost     position of {where}: {place.before:,}, then {then}"
    for level in config.lost_delays:
        was = "" if level.before is None else f" instead of {level.before:,}"
        if level.skips:
            yield f"  never    delay level {level.delay_level} from {level.before:,} up to {level.after:,}"
            continue
        yield f"  again    delay level {level.delay_level} from {level.after:,}{was}"
    yield from (f"  lost     {entry} of config/{name}" for name, entry in config.lost_entries)
