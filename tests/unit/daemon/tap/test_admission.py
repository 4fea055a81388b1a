"""On whose behalf a call comes, and what is kept of it. Keys: `tests/integration/tap/test_keys.py`."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from daemon.tap.admission import Admission, DoorSettings, Visitor
from daemon.tap.conversation import named
from daemon.tap.errors import InvalidTapSettings
from daemon.tap.keys import add_key, check_host
from tests.support.fakes import Clock
from tests.unit.daemon.tap.made import request


def door(**settings: Any) -> Admission:
    return Admission(DoorSettings(**settings), clock=Clock())


def chat(*said: tuple[str, str], **fields: object) -> bytes:
    messages = [{"role": role, "content": content} for role, content in said]
    return json.dumps({"messages": messages, **fields}).encode()


LOGIN = base64.b64encode(b"anyone:evk_000000000000_x").decode()


@pytest.mark.parametrize(
    ("headers", "visitor"),
    [
        ({"Host": "x", "Content-Type": "application/json"}, Visitor("default")),
        ({"X-Evolved-Tenant": " acme "}, Visitor("acme")),
        ({"X-Evolved-Tenant": " "}, Visitor("default")),
        ({"X-Evolved-Tenant": "a" * 999}, Visitor("a" * 256)),
        ({"Authorization": "Bearer sk-engine"}, Visitor("default")),
        ({"Authorization": "Bearer evk_000000000000_x"}, Visitor("default", strip_authorization=True)),
        ({"Authorization": f"Basic {LOGIN}"}, Visitor("default", strip_authorization=True)),
        ({"Authorization": "Basic c2stMTpzay0x"}, Visitor("default")),
        ({"Sec-Fetch-Site": "none"}, Visitor("default")),
        ({"Origin": "https://shop.example"}, Visitor("default", keep=False, why_not="other_site")),
        ({"Sec-Fetch-Site": "same-site"}, Visitor("default", keep=False, why_not="other_site")),
        *(
            ({"X-Evolved-Opt-Out": yes}, Visitor("default", keep=False, why_not="opted_out"))
            for yes in ("1", "please", " TRUE ")
        ),
        *(({"x-evolved-opt-out": no}, Visitor("default")) for no in ("0", "false", "no", "", "No", " 0 ")),
    ],
)
@pytest.mark.promise
def test_without_keys_the_headers_say_whose_a_call_is_and_whether_it_is_kept(
    headers: dict[str, Any], visitor: Visitor
) -> None:
    assert door().admit(request(**headers)) == visitor


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        *((chat(("user", "x"), metadata={"evolved_opt_out": yes}), False) for yes in (True, "1", 1)),
        *((chat(("user", "x"), metadata={"evolved_opt_out": no}), True) for no in (False, "no")),
        (chat(("user", 'what does {"metadata": {"evolved_opt_out": true}} mean?')), True),
        (b'{"evolved_opt_out": true', True),
    ],
)
def test_the_bodys_metadata_may_opt_out_as_well_and_words_about_it_do_not(body: bytes, kept: bool) -> None:
    assert door().admit(request(body)).keep is kept


def test_where_no_key_is_required_one_that_is_shown_counts(tmp_path: Path) -> None:
    text = add_key(tmp_path / "keys.json", tenant="acme", scope="agent", now=0.0)[0]
    at = door(keys_file=str(tmp_path / "keys.json"))
    assert at.admit(request(x_evolved_tenant="guest")) == Visitor("guest")
    assert at.admit(request(x_evolved_key=text, Origin="https://shop.example")) == Visitor("acme", text[4:16])


def test_an_admin_page_for_others_needs_an_admin_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    add_key(keys, tenant="acme", scope="agent", now=0.0)
    for at in (door(), door(keys_file=str(keys))):
        check_host("tap.admin_host", "127.0.0.1", at.ring)
        with pytest.raises(InvalidTapSettings, match=r"tap\.admin_host '0\.0\.0\.0'.*evolved keys add --scope admin"):
            check_host("tap.admin_host", "0.0.0.0", at.ring)
    add_key(keys, tenant="acme", scope="admin", now=0.0)
    check_host("tap.admin_host", "0.0.0.0", door(keys_file=str(keys)).ring)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"require_key": True}, "evolved keys add"),
        ({"keys_file": "/nonexistent/keys.json"}, r"keys: .*evolved keys add"),
    ],
)
def test_settings_that_cannot_work_are_named_with_the_remedy(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTapSettings, match=says):
        door(**settings)


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_a_conversation_is_kept_as_a_whole_or_not_at_all_and_every_tap_says_the_same() -> None:
    rng, kept = random.Random(5), 0
    first, second = door(sampling={"": 0.3}), door(sampling={"": 0.3})
    for number in range(400):
        said, answers = [("system", "desk " * 2000), ("user", f"wish {number}")], set[bool]()
        for _ in range(5):
            answers |= {at.admit(request(chat(*said))).keep for at in (first, second)}
            said += [("assistant", f"answer {rng.random()}"), ("user", f"more {rng.random()}")]
        assert len(answers) == 1
        kept += answers.pop()
    assert 0.2 < kept / 400 < 0.4


PART = {"content": [{"type": "text", "text": "a"}], "role": "user"}


@pytest.mark.parametrize(
    "turns",
    [
        [
            {"instructions": "i", "input": "wish"},
            {"instructions": "i", "input": [{"role": "user", "content": "wish"}, {"role": "assistant"}]},
        ],
        [
            {"system": "s", "messages": [{"content": PART["content"], "role": "user"}]},
            {"messages": [PART, {"content": "b", "role": "assistant"}], "system": "s"},
        ],
        [{"metadata": {"trajectory_id": "t"}, "input": "a"}, {"metadata": {"trajectory_id": "t"}, "input": "b"}],
        [{"conversation": {"id": "c"}, "input": "a"}, {"conversation": "c", "input": "b"}],
        [{"prompt": "p" * 300}, {"prompt": "p" * 300 + "and on"}],
    ],
    ids=["responses", "anthropic", "metadata", "conversation", "completions"],
)
def test_the_calls_of_a_conversation_fall_together_in_every_dialect(turns: list[dict[str, object]]) -> None:
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        at = door(sampling={"": share})
        assert len({at.admit(request(json.dumps(turn).encode())).keep for turn in turns}) == 1


def test_a_named_trajectory_falls_together_whatever_is_in_its_calls() -> None:
    at = door(sampling={"": 0.5})
    for number in range(50):
        calls = [request(chat(("user", str(call))), x_evolved_trajectory=f"run-{number}") for call in range(5)]
        assert len({at.admit(call).keep for call in calls}) == 1


def test_each_tenant_has_its_own_share_and_feedback_is_not_sampled() -> None:
    at = door(sampling={"": 0.0, "acme": 1.0})
    assert at.admit(request(x_evolved_tenant="acme")).keep
    assert at.admit(request(x_evolved_tenant="other")).why_not == "sampled_out"
    assert at.admit(request(path=b"/v1/feedback", x_evolved_tenant="other")).keep


def test_bodies_of_any_size_fall_together_and_what_cannot_be_read_is_drawn_for_like_the_rest() -> None:
    at, answers = door(sampling={"": 0.5}), set[bool]()
    for number in range(60):
        said = [("system", "s" * 300_000 if number % 2 else "s"), ("user", f"wish {number}")]
        kept = set[bool]()
        for _ in range(3):
            kept.add(at.admit(request(chat(*said, metadata={"a": 1}))).keep)
            said += [("assistant", "a" * 400_000), ("user", "more")]
        assert len(kept) == 1
        answers |= kept
    assert answers == {True, False}
    assert {at.admit(request(body)).why_not for body in (b"", b"\xff", b"[" * 5000, b"[]")} <= {"", "sampled_out"}


def test_all_calls_of_a_run_are_kept_or_none_although_each_answers_another_tool() -> None:
    at = door(sampling={"": 0.5})
    for number in range(200):
        messages: list[dict[str, object]] = [{"role": "user", "content": f"wish {number}"}]
        kept = set[bool]()
        for call in range(6):
            kept.add(at.admit(request(json.dumps({"messages": messages}).encode())).keep)
            told = {"id": f"c{number}-{call}", "function": {"name": "f", "arguments": "{}"}}
            messages.append({"role": "assistant", "tool_calls": [told]})
            messages.append({"role": "tool", "tool_call_id": told["id"], "content": "x"})
        assert len(kept) == 1


def test_a_run_is_named_by_header_before_address_before_body() -> None:
    body = json.dumps({"metadata": {"trajectory_id": "body"}, "messages": []}).encode()
    path = b"/agents/planner/runs/run-7/v1/chat/completions"
    asked = [request(body, path, x_evolved_trajectory="head"), request(body, path), request(body)]
    assert [named(one)[0] for one in asked] == [b"head", b"run-7", b"body"]
    assert [(one.path, one.head.agent) for one in asked[:2]] == [(b"/v1/chat/completions", "planner")] * 2
