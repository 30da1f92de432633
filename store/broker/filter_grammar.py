"""The grammar of the filter language (RocketMQ's SelectorParser.jj, version 5.3), parsed with lark.

Field names (`@topic`) are an addition of mqstore. Otherwise exactly the texts that a broker accepts are accepted, with
one exception that is reported: see `ParsedFilter.ignored`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken

from ..errors import InvalidInput
from . import filter_values
from .filter_values import FIELDS, PROPERTIES, Constant, Name, Node, RefusedExpression

TEXT_MAX = 1 << 20
"""Longest expression in characters."""

_GRAMMAR = r"""
start: either
?either: both (_OR both)*
?both: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison              -> equal
    | equality "<>" comparison             -> not_equal
    | equality _IS _NULL                   -> is_null
    | equality _IS _NOT _NULL              -> is_not_null
?comparison: unary
    | comparison ">" unary                 -> greater
    | comparison ">=" unary                -> greater_or_equal
    | comparison "<" unary                 -> less
    | comparison "<=" unary                -> less_or_equal
    | comparison _CONTAINS TEXT            -> contains
    | comparison _NOT _CONTAINS TEXT       -> not_contains
    | comparison _STARTSWITH TEXT          -> startswith
    | comparison _NOT _STARTSWITH TEXT     -> not_startswith
    | comparison _ENDSWITH TEXT            -> endswith
    | comparison _NOT _ENDSWITH TEXT       -> not_endswith
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN "(" TEXT ("," TEXT)* ")" -> in_list
    | comparison _NOT _IN "(" TEXT ("," TEXT)* ")" -> not_in_list
?unary: "+" unary
    | "-" unary                            -> negative
    | _NOT unary                           -> not_
    | TEXT                                 -> text
    | WHOLE                                -> whole
    | REAL                                 -> real
    | _TRUE                                -> true
    | _FALSE                               -> false
    | _NULL                                -> null
    | PROPERTY                             -> property_
    | FIELD                                -> field
    | "(" either ")"

_NOT.3: /NOT(?![a-z0-9_$])/i
_AND.3: /AND(?![a-z0-9_$])/i
_OR.3: /OR(?![a-z0-9_$])/i
_BETWEEN.3: /BETWEEN(?![a-z0-9_$])/i
_IN.3: /IN(?![a-z0-9_$])/i
_TRUE.3: /TRUE(?![a-z0-9_$])/i
_FALSE.3: /FALSE(?![a-z0-9_$])/i
_NULL.3: /NULL(?![a-z0-9_$])/i
_IS.3: /IS(?![a-z0-9_$])/i
_CONTAINS.3: /CONTAINS(?![a-z0-9_$])/i
_STARTSWITH.3: /STARTSWITH(?![a-z0-9_$])/i
_ENDSWITH.3: /ENDSWITH(?![a-z0-9_$])/i
REAL.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
WHOLE.1: /0|[1-9][0-9]*l?/i
TEXT: /'(?:''|[^'])*'/
PROPERTY: /[a-zA-Z_$][a-zA-Z0-9_$]*/
FIELD: /@[a-zA-Z0-9_$]*/
LINE_COMMENT.4: /--[^\n\r]*(\r\n|\n|\r)/
BLOCK_COMMENT.4: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
BLANKS: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore BLANKS
"""


class ParsedFilter(NamedTuple):
    """The tree of an expression, and the text behind it.

    A broker reads nothing behind the first complete expression: of `a = 1 b = 2` it takes `a = 1`. ignored: the rest of
    the text, empty if there is none.
    """

    node: Node
    ignored: str


def parse(text: str) -> ParsedFilter:
    """The tree of an expression. Raises InvalidInput for a text that a broker refuses."""
    if len(text) > TEXT_MAX:
        raise InvalidInput(f"longer than {TEXT_MAX} characters")
    try:
        try:
            found: Any = _parser().parse(text)
            return ParsedFilter(found, "")
        except UnexpectedToken as error:
            if "$END" not in error.accepts:
                raise
            whole: Any = error.interactive_parser
            return ParsedFilter(whole.feed_eof(), text[error.pos_in_stream or 0 :])
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        place = "at the end" if at_end else f"at {str(error.token)!r}, column {error.column}"
        raise InvalidInput(f"not an expression {place}") from error
    except UnexpectedCharacters as error:
        place = f"at {text[error.pos_in_stream :][:1]!r}, column {error.column}"
        raise InvalidInput(f"not an expression {place}") from error
    except RefusedExpression as error:
        raise InvalidInput(str(error)) from error


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _text_test(test: Any, node: Node, text: Token, *, negated: bool = False) -> Node:
    return filter_values.apply(filter_values.TextTest(test, _text(text), negated), node)


def _in_list(node: Node, *texts: Token, negated: bool = False) -> Node:
    return filter_values.in_list_node(node, frozenset(map(_text, texts)), negated=negated)


def _not(node: Node) -> Node:
    return filter_values.apply(filter_values.logical_not, node)


def _field(token: Token) -> Node:
    name = token[1:]
    if name in PROPERTIES:
        return Name(PROPERTIES[name])
    if name not in FIELDS:
        known = ", ".join(f"@{field}" for field in (*FIELDS, *PROPERTIES))
        raise RefusedExpression(f"no field @{name}; there are {known}")
    return Name(name, field=True)


_BUILD: dict[str, Callable[..., Node]] = {
    "start": filter_values.condition,
    "either": lambda *nodes: filter_values.apply(filter_values.logical_or, *map(filter_values.condition, nodes)),
    "both": lambda *nodes: filter_values.apply(filter_values.logical_and, *map(filter_values.condition, nodes)),
    "equal": filter_values.equality,
    "not_equal": lambda *pair: _not(filter_values.equality(*pair)),
    "is_null": partial(filter_values.apply, filter_values.is_null),
    "is_not_null": lambda node: _not(filter_values.apply(filter_values.is_null, node)),
    "greater": partial(filter_values.ordered, filter_values.greater),
    "greater_or_equal": partial(filter_values.ordered, filter_values.greater_or_equal),
    "less": partial(filter_values.ordered, filter_values.less),
    "less_or_equal": partial(filter_values.ordered, filter_values.less_or_equal),
    "contains": partial(_text_test, str.__contains__),
    "not_contains": partial(_text_test, str.__contains__, negated=True),
    "startswith": partial(_text_test, str.startswith),
    "not_startswith": partial(_text_test, str.startswith, negated=True),
    "endswith": partial(_text_test, str.endswith),
    "not_endswith": partial(_text_test, str.endswith, negated=True),
    "in_list": _in_list,
    "not_in_list": partial(_in_list, negated=True),
    "between": filter_values.between,
    "not_between": filter_values.not_between,
    "negative": partial(filter_values.apply, filter_values.negative, boolean=False),
    "not_": lambda node: _not(filter_values.condition(node)),
    "text": lambda token: Constant(_text(token)),
    "whole": filter_values.whole_literal,
    "real": filter_values.real_literal,
    "true": lambda: Constant(True),
    "false": lambda: Constant(False),
    "null": lambda: Constant(None),
    "property_": lambda token: Name(str(token)),
    "field": _field,
}
"""Rule of the grammar → what makes its node of those of its parts."""


class _Build(Transformer[Token, Node]):
    """Builds the nodes during parsing: without lark's own tree, and without recursion."""

    def __getattr__(self, rule: str) -> Callable[[list[Any]], Node]:
        if rule not in _BUILD:
            raise AttributeError(rule)
        return lambda children: _BUILD[rule](*children)
