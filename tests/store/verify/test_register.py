"""Which function checks which invariant: each of the catalogue has one, and a function is called once."""

from __future__ import annotations

import pytest

from mqstore.store.findings.catalogue import GROUPS, catalogue
from mqstore.store.verify.context import VerifyContext
from mqstore.store.verify.register import CHECKS, Once, checks_of, registering
from mqstore.store.verify.run import load_checks


def one(context: VerifyContext) -> None:
    del context


def other(context: VerifyContext) -> None:
    del context


def test_every_invariant_that_is_checked_is_in_the_catalogue() -> None:
    load_checks()
    assert CHECKS.codes <= catalogue().keys()
    unchecked = {code for code, invariant in catalogue().items() if invariant.unchecked}
    assert not CHECKS.codes & unchecked
    seen_elsewhere = catalogue().keys() - CHECKS.codes - unchecked
    assert not seen_elsewhere, "neither checked nor said to be unchecked"


def test_a_function_of_several_codes_is_called_once_in_the_order_of_the_codes() -> None:
    moment = {"I-092": other, "I-091": one, "I-090": other}
    both = {other: ["I-092", "I-090"], one: ["I-091"]}
    assert list(checks_of(moment, frozenset({"index"})).items()) == list(both.items())
    assert checks_of(moment, frozenset({"layout"})) == {}
    assert list(checks_of(moment, frozenset(GROUPS))) == [other, one]


def test_two_functions_for_one_code_are_a_mistake() -> None:
    moment: dict[str, Once] = {}
    at_a_moment = registering(moment)
    assert at_a_moment("I-090", "I-091")(one) is one
    with pytest.raises(ValueError, match="I-091 is checked twice"):
        at_a_moment("I-091")(other)
    assert moment == {"I-090": one, "I-091": one}
