"""Keys and addresses: the same for every adapter that asks an endpoint."""

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.messages import Trajectory
from actors.ports.errors import AdapterError, AdapterNotSetUp
from adapters.chat.keys import read_key
from adapters.embedders.openai import OpenAIEmbedder
from adapters.extractors.llm import LlmExtractor
from adapters.judges.llm import make
from adapters.rewriters.llm import LLMRewriter
from tests.support.chat_endpoint import ChatEndpoint, fails

pytestmark = [pytest.mark.anyio, pytest.mark.promise]
RUN = Trajectory(id="t", goal="Book.", steps=(), started=0.0, ended=1.0)
MAKERS: dict[str, Callable[..., Any]] = {
    "judge": lambda **options: make(model="m", canary_share=0.0, **options),
    "extractor": lambda **options: LlmExtractor(model="m", environment={}, **options),
    "rewriter": lambda **options: LLMRewriter(model="m", **options),
    "embedder": lambda url, **options: OpenAIEmbedder("m", base_url=url, **options),
}


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MAKERS[request.param]


@pytest.mark.parametrize("url", ["http://me:hunter2@host/v1", "ftp://me:hunter2@host", "http://me:hunter2@host:99999"])
def test_an_address_with_a_password_is_refused_by_all_and_never_repeated(maker: Callable[..., Any], url: str):
    with pytest.raises((AdapterNotSetUp, ValueError)) as caught:
        maker(url=url)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("content", ["", "two\nlines", "sk-caf\u00e9"])
def test_a_file_without_a_key_is_refused_by_all_and_never_repeated(
    maker: Callable[..., Any], tmp_path: Path, content: str
):
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(AdapterNotSetUp, match="key_file") as caught:
        maker(url="http://127.0.0.1:9/v1", key_file=str(file))
    assert not content or content not in str(caught.value)


def test_a_variable_that_is_not_set_is_refused_by_all(maker: Callable[..., Any]):
    with pytest.raises(AdapterNotSetUp, match="EVOLVED_NO_SUCH"):
        maker(url="http://127.0.0.1:9/v1", key_env="EVOLVED_NO_SUCH")


def test_of_two_places_for_a_key_one_must_go():
    with pytest.raises(AdapterNotSetUp, match="one of them"):
        read_key("A", "b", {"A": "sk"})


@pytest.mark.parametrize("kind", ["extractor", "rewriter"])
async def test_a_key_is_sent_and_stands_in_no_error_and_no_log(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "key"
    file.write_text("sk-secret\n")
    with ChatEndpoint(fails(401, json.dumps({"error": "bad key sk-secret"}).encode())) as endpoint:
        adapter = MAKERS[kind](url=endpoint.url, key_file=str(file), timeout=20.0)
        with pytest.raises(AdapterError, match="key_file") as caught:
            await (adapter.draw([RUN], []) if kind == "extractor" else adapter.rewrite("a", "b", "c"))
        await adapter.aclose()
    assert endpoint.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))
    assert "sk-secret" not in caplog.text
