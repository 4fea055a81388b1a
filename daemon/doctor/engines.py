"""The engines: do they answer, are the endpoints open that a swap needs, and do answers have what training needs?"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from actors.ports.errors import EngineRejected, EngineUnavailable
from adapters.engines.client import Deadlines, EngineClient
from daemon.composition.engines import engine_clients
from daemon.doctor.base import CALL_SECONDS, Check, Finding, NotLooked, Scene, fault, warning
from daemon.errors import ConfigError
from daemon.settings.tables import SHADOW, Config

_TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


def _setting(config: Config, name: str) -> str:
    """Where the engine's URL stands."""
    return "shadow.url" if name == SHADOW else f"engines: url of {name}"


@asynccontextmanager
async def _clients(config: Config) -> AsyncIterator[dict[str, EngineClient]]:
    try:
        keyed = engine_clients(config)
    except ConfigError as error:
        raise NotLooked("an engine's key file cannot be used") from error
    # Clients of our own: shorter deadlines than a swap's.
    limits = Deadlines(connect=CALL_SECONDS, small=CALL_SECONDS, sample=CALL_SECONDS)
    made = {name: EngineClient(one.url, name=name, key=one.key, deadlines=limits) for name, one in keyed.items()}
    try:
        yield made
    finally:
        for one in (*made.values(), *keyed.values()):
            await one.aclose()


async def _answer(scene: Scene) -> Sequence[Finding]:
    found: list[Finding] = []
    async with _clients(scene.config) as engines:
        for name, engine in engines.items():
            if await engine.health():
                continue
            where = _setting(scene.config, name)
            if name == SHADOW:
                remedy = (
                    f"start a second engine of the same model, or set {where}: without it nothing new is ever judged"
                )
            else:
                remedy = f"start it (evolved engine --vllm MODEL), or set {where}"
            found.append(fault(f"the engine {name} does not answer at {engine.url}", remedy))
    return found


async def _endpoints(scene: Scene) -> Sequence[Finding]:
    found: list[Finding] = []
    reached = 0
    async with _clients(scene.config) as engines:
        for name, engine in engines.items():
            try:
                reached += await engine.health()
                await engine.version()
                await engine.render([{"role": "user", "content": "hello"}])
                if name in scene.config.serving and await engine.is_paused():
                    found.append(
                        warning(
                            f"the engine {name} is paused: agents wait",
                            "a swap ends within seconds; if it stays so: curl -X POST " + engine.url + "/resume",
                        )
                    )
            except EngineRejected as error:
                found.append(_refused(scene.config, name, error))
            except EngineUnavailable:
                continue  # told by the check before
    return _unless_away(reached, found)


def _refused(config: Config, name: str, error: EngineRejected) -> Finding:
    key = "shadow.key_file" if name == SHADOW else f"engines: key_file of {name}"
    if error.status in (401, 403):
        return fault(f"{error}", f"write the engine's --api-key into a file and name it: {key}")
    text = str(error)
    if "VLLM_SERVER_DEV_MODE" in text:
        return fault(
            f"{text.partition(';')[0]}: its development endpoints are closed",
            "start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment, where only we can reach it (docs/attach.md)",
        )
    if "scale-out" in text:
        return fault(
            f"{text.partition(';')[0]}: its token endpoints are closed",
            "start vLLM with --enable-scale-out (docs/attach.md)",
        )
    return fault(text, "see the engine's log; docs/attach.md has what it must be started with")


async def _tokens(scene: Scene) -> Sequence[Finding]:
    """One token is sampled from each serving engine, as an agent with a tool would ask for it."""
    if not scene.config.tap.capture_tokens:
        return [
            warning(
                "the tap asks for no token ids: nothing of production can be trained on",
                "set tap.capture_tokens = true",
            )
        ]
    found: list[Finding] = []
    reached = 0
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, "logprobs": True,
        "return_token_ids": True,
    }  # fmt: skip
    async with _clients(scene.config) as engines:
        for name in scene.config.serving:
            engine = engines[name]
            try:
                reached += await engine.health()
                engine.generation(await engine.chat(body))
            except EngineUnavailable:
                continue
            except EngineRejected as error:
                if error.status in (401, 403):
                    continue
                found.append(
                    fault(
                        f"{error}: calls through the tap cannot be trained on",
                        "serve with vLLM 0.32 or newer, and without --max-logprobs 0 (docs/attach.md)",
                    )
                )
                continue
            try:
                await engine.chat({**body, "tools": [_TOOL], "tool_choice": "auto"})
            except EngineUnavailable:
                continue
            except EngineRejected as error:
                found.append(
                    fault(
                        f"{error}: agents' tools are refused",
                        "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME (hermes, llama3_json, ...)",
                    )
                )
    return _unless_away(reached, found)


def _unless_away(reached: int, found: list[Finding]) -> list[Finding]:
    """`found`, if there was anybody to ask.

    Raises:
        NotLooked: there was not.
    """
    if not reached and not found:
        raise NotLooked("no engine answers")
    return found


ENGINES = (
    Check("engines", "each engine answers at its URL", _answer),
    Check("engine endpoints", "what a swap and rollouts need is open, and the API key is right", _endpoints),
    Check("engine answers", "token ids, log-probs and tool calls (one token is sampled of each engine)", _tokens),
)
