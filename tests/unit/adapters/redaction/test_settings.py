"""What an operator may set: kinds, own patterns, exceptions, a key; what is said of a setting that cannot be used."""

from typing import Any

import pytest

from adapters.redaction import InvalidRedaction, PatternSettings, RedactionSettings, Redactor
from tests.unit.adapters.redaction.test_redactor import KEY, MAIL


def test_own_patterns_allowed_values_and_kinds(tmp_path: Any) -> None:
    own = RedactionSettings(
        kinds=("email",),
        patterns=(PatternSettings(name="case", regex=r"case (?P<value>C-\d{5})"),),
        allow=("help@example.com",),
        allow_patterns=(r".*@example\.org",),
    )
    redactor = Redactor(own)
    text = f"case C-12345, help@example.com, x@example.org, {MAIL}, {KEY}"
    assert redactor.text(text) == (
        f"case [REDACTED:case], help@example.com, x@example.org, [REDACTED:email], {KEY}",
        {"case": 1, "email": 1},
    )
    assert Redactor(RedactionSettings(enabled=False)).text(text) == (text, {})


def test_with_a_key_equal_values_can_be_told_from_others(tmp_path: Any) -> None:
    for name, key in (("a", "first-key-of-32-characters"), ("b", "other-key-of-32-characters")):
        (tmp_path / name).write_text(key + "\n")
    redact = Redactor(RedactionSettings(key_file=str(tmp_path / "a"))).text
    ann, bob = redact("ann@example.com")[0], redact("bob@example.com")[0]
    assert redact("ask ann@example.com")[0] == f"ask {ann}"
    assert ann != bob
    assert ann != Redactor(RedactionSettings(key_file=str(tmp_path / "b"))).text("ann@example.com")[0]
    assert redact(ann) == (ann, {})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kinds": ("emial",)}, "did you mean 'email'"),
        ({"patterns": (PatternSettings(name="x", regex="("),)}, "patterns[0].regex"),
        ({"patterns": (PatternSettings(name="x", regex="a*"),)}, "patterns[0].regex"),
        ({"patterns": (PatternSettings(name="email", regex="a"),)}, "patterns[0].name"),
        ({"allow_patterns": ("[",)}, "allow_patterns[0]"),
        ({"key_file": "/nowhere/key"}, "key_file"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_remedy(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRedaction) as refused:
        Redactor(RedactionSettings(**fields))
    assert told in str(refused.value)
