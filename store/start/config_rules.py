"""What seven broker generations do with the files of `config/`, as data (spec 05, 5.2).

A load takes the file; where that is missing, empty or refused the .bak; where there is no .bak an
empty table, which the next write lays over the file. File and .bak refused: no start. What is refused
differs in what is no broken text, but a text with another meaning. Measured with the managers of the
releases that `profiles` names.
"""

from __future__ import annotations

from typing import NamedTuple

from ..broker.profiles import Profile
from ..settings.parse import Grammar

TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
OFFSETS, LIGHT_OFFSETS = "consumerOffset.json", "lmqConsumerOffset.json"
DELAYS, FILTERS = "delayOffset.json", "consumerFilter.json"
ORDER, MAPPING, MODES = (
    "consumerOrderInfo.json",
    "topicQueueMapping.json",
    "messageRequestMode.json",
)
TIMERS, TRANSACTIONS = "timermetrics", "transactionMetrics"
TIMER_CHECK = "timercheck"
STATISTICS = frozenset({TIMERS, TRANSACTIONS})
"""Counts that a broker makes again."""


class ConfigRules(NamedTuple):
    """Load of `config/` by one generation. Names are those of files."""

    #: without them, file and .bak, there is no start; in the order in which they are loaded
    needed: tuple[str, ...]
    #: the same where there is a timer
    needed_by_timer: tuple[str, ...] = ()
    #: loaded, and nobody asks whether that succeeds
    passed_over: tuple[str, ...] = ()
    #: nothing but blanks is an empty table
    blank_is_empty: frozenset[str] = frozenset()
    #: so is a text of no characters
    no_text_is_empty: frozenset[str] = frozenset()
    #: an empty list where an object should be is an empty table
    list_is_empty: bool = True
    #: a table of `null` is refused
    null_refused: frozenset[str] = frozenset()
    #: a table of `null` is taken, and each use of it fails
    null_fails: frozenset[str] = frozenset()
    #: a table of "" counts as one of `null`; elsewhere it is refused
    no_text_is_null: frozenset[str] = frozenset()
    #: the file has to have its table
    table_needed: frozenset[str] = frozenset()
    #: by file, types that are refused as its dataVersion
    version_refused: tuple[tuple[frozenset[str], tuple[type, ...]], ...] = ()
    #: what the parser passes over
    grammar: Grammar = Grammar.FASTJSON
    #: a member that is no table of the file, and has keys that are numbers, is refused
    strange_numbers_refused: bool = False
    #: types of what the topics of a group may be, () where the generation does not note them
    topics_of_group: tuple[type, ...] = ()
    #: a text that names none of the constants of a field is refused
    strange_constants_refused: bool = False
    #: a value nested deep ends the start, whatever the .bak has
    deep_ends_start: bool = False

    @property
    def known(self) -> tuple[str, ...]:
        """All files that are loaded."""
        return (*self.needed, *self.needed_by_timer, *self.passed_over)

    def refused_as_version(self, name: str) -> tuple[type, ...]:
        """Types that are no dataVersion of this file."""
        return tuple(
            kind for names, kinds in self.version_refused if name in names for kind in kinds
        )

    def counter_needed(self, name: str) -> bool:
        """A `null` for the counter of its dataVersion is refused."""
        named = any(name in names for names, _ in self.version_refused)
        return named and name not in (OFFSETS, LIGHT_OFFSETS)


_OF_4 = (TOPICS, OFFSETS, GROUPS, FILTERS, DELAYS)
_OF_5 = (TOPICS, MAPPING, OFFSETS, GROUPS, FILTERS, ORDER, DELAYS)
_NULL_4 = frozenset({TOPICS, GROUPS, DELAYS})
_NULL_5 = _NULL_4 | {MAPPING, TIMERS, TRANSACTIONS, ORDER}
_ALL_TYPES = (str, type(None), list, int)
_LISTS = (list, type(None))
_PARTS = frozenset({OFFSETS, LIGHT_OFFSETS, DELAYS})
_METRICS = frozenset({MAPPING, TIMERS, TRANSACTIONS})

_BLANK_4_3 = frozenset(_OF_4)
_BLANK_4_9 = frozenset({TOPICS, OFFSETS, LIGHT_OFFSETS, FILTERS, DELAYS})
_BLANK_5 = frozenset({TOPICS, GROUPS, FILTERS, ORDER, MAPPING, MODES, DELAYS, TIMERS, TRANSACTIONS})

_FASTJSON_2 = ConfigRules(
    _OF_5,
    (TIMERS,),
    (MODES, TRANSACTIONS),
    no_text_is_empty=_BLANK_5,
    list_is_empty=False,
    null_refused=_NULL_5,
    null_fails=frozenset({OFFSETS}),
    no_text_is_null=frozenset({OFFSETS, LIGHT_OFFSETS, FILTERS, MODES}),
    table_needed=frozenset({MAPPING}),
    version_refused=((_METRICS | {TOPICS, GROUPS}, _ALL_TYPES), (_PARTS, (str, int, list))),
    topics_of_group=(*_LISTS, dict, str),
    grammar=Grammar.FASTJSON_2,
    strange_numbers_refused=True,
    deep_ends_start=True,
)

RULES: dict[str, ConfigRules] = {
    "4.3": ConfigRules(
        _OF_4,
        strange_constants_refused=True,
        blank_is_empty=_BLANK_4_3,
        no_text_is_empty=_BLANK_4_3,
        null_refused=_NULL_4,
        version_refused=((frozenset({TOPICS}), _ALL_TYPES),),
    ),
    "4.9": ConfigRules(
        _OF_4,
        blank_is_empty=_BLANK_4_9,
        no_text_is_empty=_BLANK_4_9,
        null_refused=_NULL_4,
        version_refused=((frozenset({TOPICS}), _ALL_TYPES),),
    ),
    "5.1": ConfigRules(
        _OF_5,
        (TIMERS,),
        (MODES,),
        blank_is_empty=_BLANK_5,
        no_text_is_empty=_BLANK_5,
        null_refused=_NULL_5,
        null_fails=frozenset({OFFSETS}),
        no_text_is_null=frozenset({OFFSETS, LIGHT_OFFSETS}),
        table_needed=frozenset({MAPPING}),
        version_refused=((_METRICS | {TOPICS}, _ALL_TYPES), (_PARTS, (str, int))),
        topics_of_group=_LISTS,
    ),
    "5.3": ConfigRules(
        _OF_5,
        (TIMERS,),
        (MODES, TRANSACTIONS),
        blank_is_empty=_BLANK_5,
        no_text_is_empty=_BLANK_5,
        null_refused=_NULL_5,
        null_fails=frozenset({OFFSETS}),
        no_text_is_null=frozenset({OFFSETS, LIGHT_OFFSETS}),
        table_needed=frozenset({MAPPING}),
        version_refused=((_METRICS | {TOPICS, GROUPS}, _ALL_TYPES), (_PARTS, (str, int))),
        topics_of_group=_LISTS,
    ),
    # 5.4.0 refuses the pullOffsetTable of 5.5; a store of 5.5 is often guessed to be of either
    **dict.fromkeys(("5.4", "5.5", "5.5.1"), _FASTJSON_2),
}


def config_rules(profile: Profile) -> ConfigRules:
    """Those of a generation."""
    return RULES[profile.version]
