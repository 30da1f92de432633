"""The grammar of the filter language (RocketMQ's SelectorParser.jj, version 5.3), parsed with lark.

Field names (`@topic`) are an addition of mqstore. Otherwise exactly the texts that a broker accepts are accepted, with
one exception that is reported: see `ParsedFilter.ignored`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken
from lark.exceptions import VisitError

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
    except VisitError as error:
        raise InvalidInput(str(error.orig_exc)) from error
    except RefusedExpression as error:
        raise InvalidInput(str(error)) from error


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _ordered(operator: filter_values.Operator) -> Any:
    def build(_: object, children: list[Node]) -> Node:
        return filter_values.ordered(operator, *children)

    return build


def _text_test(test: Any, *, negated: bool = False) -> Any:
    def build(_: object, children: list[Any]) -> Node:
        node, text = children
        return filter_values.apply(filter_values.TextTest(test, _text(text), negated), node)

    return build


def _in_list(*, negated: bool) -> Any:
    def build(_: object, children: list[Any]) -> Node:
        node, *texts = children
        return filter_values.in_list_node(node, frozenset(map(_text, texts)), negated=negated)

    return build


class _Build(Transformer[Token, Node]):
    """Builds the nodes during parsing: without lark's own tree, and without recursion."""

    def start(self, children: list[Node]) -> Node:
        return filter_values.condition(children[0])

    def either(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.logical_or, *map(filter_values.condition, children))

    def both(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.logical_and, *map(filter_values.condition, children))

    def equal(self, children: list[Node]) -> Node:
        return filter_values.equality(*children)

    def not_equal(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.logical_not, filter_values.equality(*children))

    def is_null(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.is_null, children[0])

    def is_not_null(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.logical_not, filter_values.apply(filter_values.is_null, children[0]))

    greater = _ordered(filter_values.greater)
    greater_or_equal = _ordered(filter_values.greater_or_equal)
    less = _ordered(filter_values.less)
    less_or_equal = _ordered(filter_values.less_or_equal)
    contains = _text_test(str.__contains__)
    not_contains = _text_test(str.__contains__, negated=True)
    startswith = _text_test(str.startswith)
    not_startswith = _text_test(str.startswith, negated=True)
    endswith = _text_test(str.endswith)
    not_endswith = _text_test(str.endswith, negated=True)
    in_list = _in_list(negated=False)
    not_in_list = _in_list(negated=True)

    def between(self, children: list[Node]) -> Node:
        return filter_values.between(*children)

    def not_between(self, children: list[Node]) -> Node:
        return filter_values.not_between(*children)

    def negative(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.negative, children[0], boolean=False)

    def not_(self, children: list[Node]) -> Node:
        return filter_values.apply(filter_values.logical_not, filter_values.condition(children[0]))

    def text(self, children: list[Token]) -> Node:
        return Constant(_text(children[0]))

    def whole(self, children: list[Token]) -> Node:
        return filter_values.whole_literal(children[0])

    def real(self, children: list[Token]) -> Node:
        return filter_values.real_literal(children[0])

    def true(self, _: list[Token]) -> Node:
        return Constant(True)

    def false(self, _: list[Token]) -> Node:
        return Constant(False)

    def null(self, _: list[Token]) -> Node:
        return Constant(None)

    def property_(self, children: list[Token]) -> Node:
        return Name(str(children[0]))

    def field(self, children: list[Token]) -> Node:
        name = children[0][1:]
        if name in PROPERTIES:
            return Name(PROPERTIES[name])
        if name not in FIELDS:
            known = ", ".join(f"@{field}" for field in (*FIELDS, *PROPERTIES))
            raise RefusedExpression(f"no field @{name}; there are {known}")
        return Name(name, field=True)
