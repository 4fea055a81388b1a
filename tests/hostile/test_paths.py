"""The engine's admin plane is out of reach, however its path is dressed up, with names in the address and without."""

import re
from urllib.parse import unquote_to_bytes

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.hostile.conftest import SAME_EVERY_TIME, Rig
from tests.support.wire import Client

ADMIN = [
    b"/pause", b"/resume", b"/sleep", b"/wake_up", b"/collective_rpc", b"/update_weights", b"/reset_prefix_cache",
    b"/server_info", b"/init_weights_update_group", b"/load", b"/metrics", b"/tokenize", b"/docs", b"/", b"/v1",
    b"/pause/", b"/pause?mode=keep", b"/PAUSE", b"/Pause", b"//pause", b"///pause", b"/./pause", b"/;/pause",
    b"/v1/../pause", b"/v1/./../pause", b"/v1/.././pause", b"/v1/x/../../pause", b"/v1/../v1/../pause", b"/v1/..",
    b"/v1/../", b"/V1/../pause", b"/v1/%2e%2e/pause", b"/v1/%2E%2E/pause", b"/v1/.%2e/pause", b"/v1/%2e./pause",
    b"/v1/..%2fpause", b"/v1/..%2Fpause", b"/v1%2f..%2fpause", b"/v1/%2e%2e%2fpause", b"/v1/%2e%2e/collective_rpc",
    b"/%2e%2e/pause", b"/%70ause", b"/v1/..;/pause", b"/v1/..;x=y/pause", b"/v1/.;/../pause", b"/v1/x/..;/..;/pause",
    b"/v1/%2e%2e;/pause", b"/v1/%2e%2e%3b/pause", b"/v1/..%3b/pause", b"/v1\\..\\pause", b"/v1/..\\pause",
    b"/v1/..%5cpause", b"/v1/%5c..%5cpause", b"\\pause", b"/\\pause", b"/v1//pause", b"/v1//../pause", b"/v1/..//pause",
    b"/v1/%252e%252e/pause", b"/v1/..%252fpause", b"/v1/%25%32%65%25%32%65/pause", b"/v1/%2e%2e%00/pause",
    b"/v1/..%00/pause", b"/v1/..%20/pause", b"/v1/..%0a/pause", b"/v1/..%09/pause", b"/v1/x#/../../pause",
    b"/health/../pause", b"/health/..;/pause", b"/health%2f..%2fpause", b"/healthz", b"/health/pause",
    b"/v1/load_lora_adapter", b"/v1/load_lora_adapter/", b"/v1/load_lora_adapter//", b"/v1/load_lora_adapter?x=y",
    b"/v1/load%5flora_adapter", b"/v1/%6coad_lora_adapter", b"/v1/unload_lora_adapter", b"/v1/./load_lora_adapter",
    b"/v1/x/../load_lora_adapter", b"/v1//load_lora_adapter", b"/v1/load_lora_adapter;x", b"/v1/load_lora_adapter%2f",
    b"/v1/load_lora_adapter%3bx", b"/v1/load%255flora_adapter", b"/v1/load_lora_adapter/.",
    b"http://engine/pause", b"http://engine/v1/../pause", b"HTTP://engine/pause", b"http:/pause", b"http:///pause",
    b"https://engine/pause", b"ftp://engine/pause", b"http://a@engine/pause", b"http://engine:1/v1/%2e%2e/pause",
    b"*", b"engine:80", b"engine/pause", b"pause", b"?/v1/", b"/pause?/v1/models", b"/pause#/v1/models",
    b"/pause;/v1/models", b"/pause%3f/v1/models", b"/pause%23/v1/", b"/pause%00/v1/",
]  # fmt: skip
"""Targets that some engine, router or file system takes for something outside /v1/, or for an adapter upload."""

MODELS = [b"/v1/models", b"/v1/models/", b"/v1/models?x=../../pause", b"/v1/models/a.b", b"/v1/models/..a",
          b"/v1/a%20b", b"/v1/models/org%2Fname", b"/health", b"/v1/responses/resp_1/input_items"]  # fmt: skip

NAMES = [b"", b"/agents/planner", b"/runs/run-7_a.b", b"/agents/a/runs/b"]
ODD = [
    b"/agents//v1/models", b"/agents/v1/models", b"/agents/a%62/v1/models", b"/agents/-a/v1/models",
    b"/agents/.a/v1/models", b"/agents/../v1/models", b"/agents/a/../v1/models", b"/agents/a;x/v1/models",
    b"/agents/a b/v1/models", b"/agents/a//v1/models", b"/agents/a/agents/b/v1/models", b"/runs/a/runs/b/v1/models",
    b"/runs/a/agents/b/v1/models", b"/agents/%b/v1/models" % (b"a" * 65), b"/runs/a\\b/v1/models", b"/runs/a/health",
    b"/Agents/a/v1/models", b"/agents/a?/v1/models", b"/agents/a#/v1/models", b"/v1/agents/../../runs/a/v1/models",
    b"/runs/\xc3\xa9/v1/models", b"/agents/a/runs//v1/models", b"http://tap/agents/a/v1/models", b"agents/a/v1/models",
]  # fmt: skip
"""Names in any other alphabet, order or place than one."""


def get(client: Client, target: bytes) -> int:
    client.send(b"GET %b HTTP/1.1\r\nHost: tap\r\n\r\n" % target)
    return client.response().status


@pytest.mark.parametrize("target", [name + target for name in (b"", NAMES[-1]) for target in ADMIN] + ODD)
def test_the_admin_plane_is_out_of_reach(rig: Rig, target: bytes) -> None:
    for method in (b"GET", b"POST"):
        with rig.client() as client:
            client.send(b"%b %b HTTP/1.1\r\nHost: tap\r\nContent-Length: 2\r\n\r\n{}" % (method, target))
            assert client.response().status in (400, 404)
    assert rig.engine.asked == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("target", MODELS, ids=[target.decode() for target in MODELS])
def test_what_is_inside_passes_as_it_was_written(rig: Rig, target: bytes, name: bytes) -> None:
    if target == b"/health":
        name = b""
    with rig.client() as client:
        assert get(client, name + target) == 200
    assert [asked.target for asked in rig.engine.asked] == [target]


def leads_out(target: bytes) -> bool:
    """Whether an engine, a router or a file system may read a way out of /v1/ in it, or an adapter upload: however
    often it decodes, and whatever it takes for the end of a part."""
    path = target.partition(b"?")[0]
    inside = path == b"/health" or path.startswith(b"/v1/")
    for _ in range(4):
        path = unquote_to_bytes(path)
    parts = {re.split(rb"[;#?\x00]", part)[0].strip() for part in re.split(rb"[/\\]", path.lower())}
    return not inside or not parts.isdisjoint({b"..", b"load_lora_adapter", b"unload_lora_adapter"})


def test_the_judge_of_the_next_test_knows_the_cases_above() -> None:
    assert [target for target in MODELS if leads_out(target)] == []
    assert [target for target in ADMIN if not leads_out(target)] == [b"/v1//pause"]


_PARTS = [
    b"/", b"/", b"/", b"//", b"v1", b"v1", b"..", b".", b"%2e", b"%2E%2e", b"%2f", b"%5c", b"\\", b";", b";x=y", b"%3b",
    b"pause", b"models", b"health", b"load_lora_adapter", b"%00", b"%20", b"%09", b"#", b"%23", b"?", b"%3f", b"%25",
    b"2e", b"%252e", b"%252f", b"%c0%ae", b"x", b"V1", b"%76", b"1", b"http:", b"tap", b"@", b":", b"*",
]  # fmt: skip


@settings(SAME_EVERY_TIME, max_examples=1500)
@given(st.sampled_from(NAMES), st.booleans(), st.lists(st.sampled_from(_PARTS), max_size=9))
def test_no_path_that_may_lead_outside_reaches_the_engine(
    rig: Rig, name: bytes, inside: bool, parts: list[bytes]
) -> None:
    target = (b"/v1/" if inside else b"/") + b"".join(parts)
    rig.engine.fresh()
    with rig.client() as client:
        status = get(client, name + target)
    assert [asked.target for asked in rig.engine.asked] == ([target] if status == 200 else [])
    if status == 200:
        assert not leads_out(target)
