"""Who comes in, on whose behalf, and what is kept of the call."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.tap.admission import Admission, DoorSettings, TenantSettings, Visitor
from daemon.tap.errors import InvalidTapSettings, Refused
from daemon.tap.keys import add_key, revoke_key
from daemon.tap.request import Head, Request, Upload

CHAT = b"/v1/chat/completions"


class Clock:
    now = 7200.0

    def __call__(self) -> float:
        return self.now


def request(
    headers: dict[str, str] | None = None,
    body: bytes = b'{"messages": []}',
    *,
    path: bytes = CHAT,
    method: bytes = b"POST",
    upload: Upload | None = None,
) -> Request:
    told = [(name.lower().encode(), name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return Request(Head(method, path, path, told), body, 1.0, upload)


def door(clock: Callable[[], float] | None = None, **settings: Any) -> Admission:
    return Admission(DoorSettings(**settings), clock=clock or Clock())


def chat(*said: tuple[str, str], **fields: object) -> bytes:
    messages = [{"role": role, "content": content} for role, content in said]
    return json.dumps({"messages": messages, **fields}).encode()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def key(path: Path, tenant: str = "acme", scope: Any = "agent", **fields: Any) -> str:
    return add_key(path, tenant=tenant, scope=scope, now=0.0, **fields)[0]


def refusal(door: Admission, asked: Request) -> tuple[int, str, str]:
    with pytest.raises(Refused) as error:
        door.admit(asked)
    return error.value.status, error.value.code, str(error.value)


# -- without keys --


def test_without_settings_everybody_comes_in_and_everything_is_kept() -> None:
    assert door().admit(request({"Host": "x", "Content-Type": "application/json"})) == Visitor("default")


def test_the_tenant_is_what_the_header_says() -> None:
    assert door().admit(request({"X-Evolved-Tenant": " acme "})).tenant == "acme"
    assert door().admit(request({"X-Evolved-Tenant": " "})).tenant == "default"
    assert len(door().admit(request({"X-Evolved-Tenant": "a" * 999})).tenant) == 256


@pytest.mark.promise
def test_the_callers_own_authorization_is_left_alone_and_a_key_of_ours_never_travels_on() -> None:
    assert not door().admit(request({"Authorization": "Bearer sk-engine"})).strip_authorization
    assert door().admit(request({"Authorization": "Bearer evk_000000000000_x"})).strip_authorization


# -- keys --


def test_a_key_says_whose_the_call_is(keys: Path) -> None:
    text = key(keys)
    at = door(keys_file=str(keys))
    visitor = at.admit(request({"x-evolved-key": text, "Authorization": "Bearer sk-engine"}))
    assert (visitor.tenant, visitor.caller, visitor.strip_authorization) == ("acme", text[4:16], False)


def test_a_key_may_come_as_the_bearers_token(keys: Path) -> None:
    text = key(keys)
    visitor = door(keys_file=str(keys)).admit(request({"authorization": f"Bearer {text}"}))
    assert (visitor.tenant, visitor.caller, visitor.strip_authorization) == ("acme", text[4:16], True)


def test_a_key_comes_with_its_own_tenant_alone(keys: Path) -> None:
    text = key(keys)
    at = door(keys_file=str(keys))
    assert at.admit(request({"x-evolved-key": text, "x-evolved-tenant": "acme"})).tenant == "acme"
    assert refusal(at, request({"x-evolved-key": text, "x-evolved-tenant": "other"}))[:2] == (403, "wrong_tenant")


def test_where_no_key_is_required_the_header_names_the_tenant(keys: Path) -> None:
    key(keys)
    visitor = door(keys_file=str(keys)).admit(request({"x-evolved-tenant": "guest"}))
    assert (visitor.tenant, visitor.caller) == ("guest", "")


def test_where_a_key_is_required_nobody_comes_in_without(keys: Path) -> None:
    text = key(keys)
    at = door(keys_file=str(keys), require_key=True)
    status, code, says = refusal(at, request({"Authorization": "Bearer sk-engine"}))
    assert (status, code) == (401, "missing_key")
    assert "evolved keys add" in says
    assert at.admit(request({"x-evolved-key": text})).tenant == "acme"


def test_a_load_balancers_probe_needs_no_key(keys: Path) -> None:
    key(keys)
    at = door(keys_file=str(keys), require_key=True)
    assert at.admit(request(path=b"/health", method=b"GET")).tenant == "default"


def test_every_key_that_opens_nothing_gets_the_same_answer(keys: Path) -> None:
    clock = Clock()
    expired = key(keys, expires=1.0)
    revoked = key(keys)
    revoke_key(keys, revoked[4:16], now=1.0)
    good = key(keys)
    at = door(clock, keys_file=str(keys))
    tries = ["evk_000000000000_" + "x" * 43, expired, revoked, good[:-1] + ("A" if good[-1] != "A" else "B"), "sk-1"]
    answers = {refusal(at, request({"x-evolved-key": one})) for one in tries}
    assert len(answers) == 1
    assert answers.pop()[:2] == (401, "invalid_key")


@pytest.mark.promise
def test_a_refusal_never_repeats_the_key(keys: Path) -> None:
    text = key(keys)
    says = refusal(door(keys_file=str(keys)), request({"x-evolved-key": text + "x"}))[2]
    assert text not in says
    assert text[4:16] not in says


def test_an_agents_key_opens_no_admin_page_and_an_admins_no_agents_port(keys: Path) -> None:
    agent, admin = key(keys), key(keys, scope="admin")
    at = door(keys_file=str(keys))
    assert refusal(at, request({"x-evolved-key": admin}))[:2] == (403, "wrong_scope")
    at.admit_admin(request({"x-evolved-key": admin}).head)
    at.admit_admin(request({"Authorization": f"Bearer {admin}"}).head)
    for shown in ({"x-evolved-key": agent}, {"Authorization": f"Bearer {agent}"}, {}):
        with pytest.raises(Refused) as error:
            at.admit_admin(request(shown).head)
        assert (error.value.status, error.value.code) == (401, "invalid_key")


def test_admin_pages_are_open_while_there_is_no_admin_key_and_stay_shut_after_the_last(keys: Path) -> None:
    door().admit_admin(request().head)
    key(keys)
    door(keys_file=str(keys)).admit_admin(request().head)
    admin = key(keys, scope="admin")
    at = door(keys_file=str(keys))
    revoke_key(keys, admin[4:16], now=1.0)
    at.reload()
    with pytest.raises(Refused):
        at.admit_admin(request({"x-evolved-key": admin}).head)


def test_an_admin_page_for_others_needs_an_admin_key(keys: Path) -> None:
    key(keys)
    for at in (door(), door(keys_file=str(keys))):
        at.check_admin_host("tap.admin_host", "127.0.0.1")
        with pytest.raises(InvalidTapSettings, match=r"tap\.admin_host '0\.0\.0\.0'.*evolved keys add --scope admin"):
            at.check_admin_host("tap.admin_host", "0.0.0.0")
    key(keys, scope="admin")
    door(keys_file=str(keys)).check_admin_host("tap.admin_host", "0.0.0.0")


# -- opt-out --


@pytest.mark.parametrize("value", ["1", "true", "yes", "please", " TRUE "])
@pytest.mark.promise
def test_who_opts_out_passes_and_leaves_nothing(value: str) -> None:
    at = door()
    visitor = at.admit(request({"X-Evolved-Opt-Out": value}))
    assert (visitor.keep, visitor.why_not) == (False, "opted_out")


@pytest.mark.parametrize("value", ["0", "false", "no", "", "No", " 0 "])
def test_an_opt_out_that_says_no_is_none(value: str) -> None:
    assert door().admit(request({"x-evolved-opt-out": value})).keep


@pytest.mark.parametrize(("value", "kept"), [(True, False), ("1", False), (1, False), (False, True), ("no", True)])
def test_the_bodys_metadata_may_opt_out_as_well(value: object, kept: bool) -> None:
    assert door().admit(request(body=chat(("user", "x"), metadata={"evolved_opt_out": value}))).keep is kept


def test_words_about_opting_out_are_no_opt_out() -> None:
    body = chat(("user", 'what does {"metadata": {"evolved_opt_out": true}} mean?'))
    assert door().admit(request(body=body)).keep
    assert door().admit(request(body=b'{"evolved_opt_out": true')).keep


# -- sampling --


def conversation(number: int, rng: random.Random) -> list[bytes]:
    said = [("system", "desk " * 2000), ("user", f"wish {number}")]
    bodies = [chat(*said)]
    for _ in range(4):
        said += [("assistant", f"answer {rng.random()}"), ("user", f"more {rng.random()}")]
        bodies.append(chat(*said, stream=True))
    return bodies


def test_a_conversation_is_kept_as_a_whole_or_not_at_all() -> None:
    rng = random.Random(5)
    at = door(sampling=0.3)
    kept = []
    for number in range(400):
        answers = {at.admit(request(body=body)).keep for body in conversation(number, rng)}
        assert len(answers) == 1
        kept += answers
    assert 0.2 < sum(kept) / 400 < 0.4


@pytest.mark.parametrize(
    "turns",
    [
        [
            {"instructions": "i", "input": "wish"},
            {
                "instructions": "i",
                "input": [{"role": "user", "content": "wish"}, {"role": "assistant", "content": "x"}],
            },
        ],
        [
            {"system": "s", "messages": [{"content": [{"type": "text", "text": "a"}], "role": "user"}]},
            {
                "messages": [
                    {"content": [{"type": "text", "text": "a"}], "role": "user"},
                    {"content": "b", "role": "assistant"},
                ],
                "system": "s",
            },
        ],
        [{"metadata": {"trajectory_id": "t"}, "input": "a"}, {"metadata": {"trajectory_id": "t"}, "input": "b"}],
        [{"conversation": {"id": "c"}, "input": "a"}, {"conversation": "c", "input": "b"}],
        [{"prompt": "p" * 300}, {"prompt": "p" * 300 + "and on"}],
    ],
    ids=["responses", "anthropic", "metadata", "conversation", "completions"],
)
def test_the_calls_of_a_conversation_fall_together_in_every_dialect(turns: list[dict[str, object]]) -> None:
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        at = door(sampling=share)
        assert len({at.admit(request(body=json.dumps(turn).encode())).keep for turn in turns}) == 1


def test_a_named_trajectory_falls_together_whatever_is_in_its_calls() -> None:
    at = door(sampling=0.5)
    for number in range(50):
        headers = {"x-evolved-trajectory": f"run-{number}"}
        assert len({at.admit(request(headers, chat(("user", str(call))))).keep for call in range(5)}) == 1


def test_two_taps_come_to_the_same_answer() -> None:
    bodies = [chat(("user", f"wish {number}")) for number in range(100)]
    first, second = door(sampling=0.5), door(sampling=0.5)
    assert [first.admit(request(body=b)).keep for b in bodies] == [second.admit(request(body=b)).keep for b in bodies]


def test_each_tenant_has_its_own_share() -> None:
    at = door(sampling=0.0, tenants={"acme": TenantSettings(sampling=1.0)})
    assert at.admit(request({"x-evolved-tenant": "acme"})).keep
    assert at.admit(request({"x-evolved-tenant": "other"})).why_not == "sampled_out"


def test_bodies_that_are_not_to_be_looked_into_are_drawn_for_one_by_one() -> None:
    at = door(sampling=0.5)
    large = [request(body=b"", upload=Upload(None)) for _ in range(200)]
    for number, one in enumerate(large):
        one.received = float(number)
    assert 60 < sum(at.admit(one).keep for one in large) < 140
    assert {at.admit(request(body=body)).why_not for body in (b"", b"\xff", b"[" * 5000, b"[]")} <= {"", "sampled_out"}


def test_feedback_is_not_sampled() -> None:
    at = door(sampling=0.0)
    assert [at.admit(request(path=b"/v1/feedback")).keep for _ in range(3)] == [True] * 3


# -- settings --


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"require_key": True}, "evolved keys add"),
        ({"keys_file": "/nonexistent/keys.json"}, r"tap\.door\.keys_file: .*evolved keys add"),
        ({"sampling": 1.5}, r"tap\.door\.sampling 1\.5"),
        ({"tenants": {"acme": TenantSettings(sampling=-1)}}, r"tap\.door\.tenants\.acme\.sampling"),
    ],
)
def test_settings_that_cannot_work_are_named_with_the_remedy(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTapSettings, match=says):
        door(**settings)


def test_what_a_web_page_sends_is_not_kept_unless_it_has_a_key(keys: Path) -> None:
    page = {"Origin": "https://shop.example"}
    assert door().admit(request(page)).why_not == "other_site"
    assert door().admit(request({"Sec-Fetch-Site": "same-site"})).why_not == "other_site"
    assert door().admit(request({"Sec-Fetch-Site": "none"})).keep
    shown = key(keys)
    assert door(keys_file=str(keys)).admit(request({"x-evolved-key": shown, **page})).keep
