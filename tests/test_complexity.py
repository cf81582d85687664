"""The gate of complexity counts what it says, and its list can only shrink."""

from __future__ import annotations

import ast

from tests.complexity import check, compare, complexity, functions


def count(body: str) -> int:
    return complexity(ast.parse(f"def f(a, b):\n    {body}").body[0])


def test_what_a_reader_follows_is_counted() -> None:
    assert count("return a") == 1
    assert count("return a if b else 0") == 2
    assert count("return a and b and a") == 3
    assert count("return [x for x in a for _ in b]") == 3
    assert count("assert a or b") == 3
    assert count("return lambda: a and b") == 1


def test_functions_inside_of_others_have_names_of_their_own() -> None:
    source = "class A:\n    def f(self):\n        def g():\n            return 1 or 2\n"
    assert dict(functions(source)) == {"A.f": 1, "A.f.g": 2}


def test_a_list_of_exceptions_only_shrinks() -> None:
    assert compare({"a": 12, "b": 15}, {"b": 15}) == []
    assert "a has a complexity of 13, and may have 12" in compare({"a": 13}, {})[0]
    assert "b has a complexity of 16, and may have 15" in compare({"b": 16}, {"b": 15})[0]
    assert "write 14" in compare({"b": 14}, {"b": 15})[0]
    assert "remove it" in compare({"b": 12}, {"b": 15})[0]
    assert "remove it" in compare({}, {"gone": 15})[0]


def test_the_package_is_within_it() -> None:
    assert check() == []
