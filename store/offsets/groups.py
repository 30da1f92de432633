"""What config/ says of consumer groups: which there are, and who reads a topic by POP (spec 05, 5.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...formats.kinds import KINDS
from ..broker.profiles import profile_of
from ..broker.system_topics import LMQ_PREFIX, is_system_group
from ..disk.layout import Layout
from ..settings.read import FILES, ConfigFile
from ..start.config_load import load_config, load_table
from ..start.config_rules import GROUPS, MODES, config_rules


@dataclass(frozen=True)
class Groups:
    """subscribed: names of groups, None where no table can be read. popping: (group, topic) by POP."""

    subscribed: frozenset[str] | None = None
    modes: dict[tuple[str, str], str] = field(default_factory=dict)

    def knows(self, group: str) -> bool | None:
        """The group has an entry, or needs none."""
        if self.subscribed is None:
            return None
        light = group.startswith(LMQ_PREFIX)
        return group in self.subscribed or is_system_group(group) or light

    def mode(self, group: str, topic: str) -> str:
        """`pop` or `pull` as messageRequestMode.json has it, "" for nothing."""
        return self.modes.get((group, topic), "").lower()


def groups_of(layout: Layout, version: str) -> Groups:
    """What a broker of this generation takes of the tables of groups. Raises Unreadable."""
    rules = config_rules(profile_of(version))
    text = load_table(layout, GROUPS, rules).taken
    subscribed = None
    if text is not None and text.present and not text.unseen:
        subscribed = frozenset(row["group"] for row in _records(layout, GROUPS, text.value))
    modes = load_config(layout.config, MODES, rules).taken
    found = {
        (row["group"], row["topic"]): str(row.get("mode", ""))
        for row in _records(layout, MODES, modes.value if modes is not None else {})
    }
    return Groups(subscribed, found)


def _records(layout: Layout, name: str, value: dict[Any, Any]) -> list[dict[str, Any]]:
    kind = FILES[name]
    first = KINDS[kind].tables[0].record_type
    rows = ConfigFile(layout.config / name, kind, value).records()
    return [row for row in rows if row["type"] == first and "problem" not in row]
