"""Rules of handlers: what is a glob, and what it matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from basefs.errors import UsageError
from basefs.fs.events.rules import Rule, matching
from tests.support.helpers import path


@pytest.mark.parametrize(
    ("text", "glob", "command"),
    [
        ("echo hello", None, "echo hello"),
        ("FOO=1 run", None, "FOO=1 run"),
        ("/bin/run --level=1", None, "/bin/run --level=1"),
        ("awk -F= '{print}' | cat", None, "awk -F= '{print}' | cat"),
        ("/nginx/**=systemctl reload nginx", "/nginx/**", "systemctl reload nginx"),
        ("*.conf=a=1 run", "*.conf", "a=1 run"),
        ("/a=b=c", "/a", "b=c"),
    ],
)
def test_parse(text: str, glob: str | None, command: str) -> None:
    assert Rule.parse(text) == Rule(command, glob)


@pytest.mark.parametrize("text", ["nginx/*=reload", "nginx/site=reload", "a?=reload"])
def test_a_glob_that_no_path_matches_is_not_taken_for_a_command(text: str) -> None:
    with pytest.raises(UsageError, match="a glob begins with '/' or '\\*': write '/" + re.escape(text)):
        Rule.parse(text)


@pytest.mark.parametrize("text", ["/nginx/**", "*.conf", "/nginx/?.conf", "/nginx/[ab]", "/nginx/", "/"])
def test_a_glob_alone_is_not_taken_for_a_command(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"is a glob without a command: write '{text}=CMD'")):
        Rule.parse(text)


def test_an_empty_glob_is_not_taken_for_all_changes() -> None:
    with pytest.raises(UsageError, match="has an empty glob: write 'true' for all changes"):
        Rule.parse("=true")


@pytest.mark.parametrize("text", ["", "  ", "/a=", "*.conf= "])
def test_a_rule_needs_a_command(text: str) -> None:
    with pytest.raises(UsageError, match="write 'CMD' or 'GLOB=CMD'"):
        Rule.parse(text)


@pytest.mark.parametrize(
    ("glob", "matches", "others"),
    [
        (None, ["/", "/a", "/a/b"], []),
        ("/a", ["/a"], ["/", "/b", "/a/a", "/ab"]),
        ("/", ["/"], ["/a"]),
        ("/*", ["/a", "/ab", "/"], ["/a/b"]),
        ("/**", ["/", "/a", "/a/b"], []),
        ("/a/**", ["/a/b", "/a/b/c"], ["/a", "/b/c"]),
        ("/a/*.conf", ["/a/x.conf", "/a/.conf"], ["/a/b/x.conf", "/a/x.confx", "/a/xconf"]),
        ("*.conf", ["/x.conf", "/a/b/x.conf"], ["/x.conf/y", "/"]),
        ("**", ["/", "/a", "/a/b"], []),
        ("/?", ["/a"], ["/", "/ab"]),
        ("/[ab]", ["/a", "/b"], ["/c", "/ab"]),
        ("/[!ab]", ["/c"], ["/a", "/b", "/"]),
        ("/[]]", ["/]"], ["/["]),
        ("/[^a]", ["/^", "/a"], ["/b"]),
        ("/[a-c]x", ["/bx"], ["/dx", "/-x"]),
        ("/[", ["/["], ["/a"]),
        ("/a.b", ["/a.b"], ["/axb"]),
        ("/ä*", ["/äb"], ["/ab"]),
    ],
)
def test_matches(glob: str | None, matches: list[str], others: list[str]) -> None:
    rule = Rule("true", glob)
    assert [text for text in matches + others if rule.matches(path(text))] == matches


@given(st.text(alphabet="ab*?[]!^-\\/.", max_size=12), st.lists(st.binary(min_size=1, max_size=3), max_size=3))
def test_no_glob_is_an_error(glob: str, names: list[bytes]) -> None:
    Rule("true", f"/{glob}").matches(tuple(names))


@given(st.lists(st.text(alphabet="ab*?[]!^-\\.ö", min_size=1, max_size=6), min_size=1, max_size=3))
def test_a_path_matches_itself_in_brackets(parts: list[str]) -> None:
    text = "/" + "/".join(parts)
    quoted = "".join(f"[{character}]" if character in "*?[" else character for character in text)
    assert Rule("true", quoted).matches(path(text))


def test_the_rules_of_a_path_keep_their_order() -> None:
    rules = [Rule("one", "/a"), Rule("two"), Rule("three", "/b")]
    assert matching(rules, path("/a")) == rules[:2]
