"""The warm starts that ship: weights, vocabulary and template are those that the demo's agents and engines expect."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from daemon.demo.worlds import WORLDS  # noqa: E402
from tests.warmstart import checkpoint, courses, service, tokenizer  # noqa: E402
from tests.warmstart import service_demonstrations as desk  # noqa: E402
from tests.warmstart import travel_demonstrations as travel  # noqa: E402
from tests.warmstart.train import Settings  # noqa: E402

pytestmark = pytest.mark.torch
SHIPPED = {name: Path(world.warm_start) for name, world in WORLDS.items()}
SHIPPED_BYTES = 10 << 20


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_vocabulary_is_the_one_that_the_code_makes(world: str) -> None:
    course = courses.COURSES[world]
    parts = course.words()
    built = tokenizer.build(course.texts(), (*course.pieces(), *parts.entities, *parts.names, *parts.held_out))
    every = (*parts.entities, *parts.names, *parts.held_out)
    assert len(tokenizer.single(built, every)) == len(every)
    assert Tokenizer.from_file(str(SHIPPED[world] / "tokenizer.json")).to_str() == built.to_str()


def told_in_travel() -> Iterator[tuple[list[dict[str, Any]], int, Any]]:
    """Demonstrations as chat messages, how many of them open, and the tools."""
    demonstrator = travel.Demonstrator(random.Random("chat"))
    for _ in range(100):
        one = demonstrator.demonstrate()
        messages: list[dict[str, Any]] = []
        if one.hint:
            messages.append({"role": "system", "content": courses.chat.SYSTEM + one.hint})
        messages.append({"role": "user", "content": one.goal})
        for turn, (call, observation) in enumerate(one.turns):
            function = {"name": call.name, "arguments": call.arguments}
            made = [{"id": f"call-{turn}", "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": made})
            if turn + 1 < len(one.turns):
                messages.append({"role": "tool", "tool_call_id": f"call-{turn}", "content": observation})
        yield messages, 2 if one.hint else 1, one.tools


def told_in_service() -> Iterator[tuple[list[dict[str, Any]], int, Any]]:
    demonstrator = desk.Demonstrator(random.Random("chat"))
    for _ in range(100):
        one = demonstrator.demonstrate()
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": one.system + one.hint},
            {"role": "user", "content": one.goal},
        ]
        for turn, (calls, text, following) in enumerate(one.turns):
            functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
            made = [{"id": "c", "type": "function", "function": function} for function in functions]
            messages.append({"role": "assistant", "content": text, **({"tool_calls": made} if made else {})})
            messages += following if turn + 1 < len(one.turns) else []
        yield messages, 2, one.tools


TOLD = {
    "travel": (told_in_travel, lambda: courses.segments(travel.Demonstrator(random.Random("chat")))),
    "service": (told_in_service, lambda: service.segments(desk.Demonstrator(random.Random("chat")))),
}


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_template_gives_the_ids_of_training(world: str) -> None:
    told, trained = TOLD[world]
    loaded = AutoTokenizer.from_pretrained(SHIPPED[world])
    vocabulary = Tokenizer.from_file(str(SHIPPED[world] / "tokenizer.json"))
    for (messages, opening, tools), segments in zip(told(), trained(), strict=False):
        prompt = loaded.apply_chat_template(
            messages[:opening], tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert prompt == vocabulary.encode(segments[0][0]).ids
        whole = loaded.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=False)
        pieces = [token for text, _ in segments for token in vocabulary.encode(text).ids]
        assert whole == pieces + vocabulary.encode("\n").ids


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_checkpoint_loads_as_plain_qwen2_with_the_same_logits(world: str) -> None:
    made, vocabulary = checkpoint.load(SHIPPED[world])
    plain = AutoModelForCausalLM.from_pretrained(SHIPPED[world], dtype=torch.float32).eval()
    assert type(plain).__name__ == "Qwen2ForCausalLM"
    assert plain.lm_head.weight.data_ptr() != plain.model.embed_tokens.weight.data_ptr()
    ids = torch.tensor([vocabulary.encode("find_person to:Oslo").ids])
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, made(ids).logits)


@pytest.mark.parametrize("world", SHIPPED)
def test_the_recipe_says_how_the_shipped_checkpoint_was_made(world: str) -> None:
    recipe = json.loads((SHIPPED[world] / "recipe.json").read_text(encoding="utf-8"))
    assert recipe["digest"] == courses.digest(SHIPPED[world])
    assert recipe["command"].startswith("python -m tests.warmstart ")
    first = recipe
    while "start" in first:
        assert Settings(**first["settings"]).imitation_steps > 0
        first = first["start"]
    assert Settings(**first["settings"]) == Settings(**courses.COURSES[world].settings)
    assert courses.COURSES[world].recipe["habits"] == recipe["habits"]
    names = {"config.json", "model.safetensors", "recipe.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in SHIPPED[world].iterdir()} == names
    assert sum(path.stat().st_size for path in SHIPPED[world].iterdir()) < SHIPPED_BYTES


def test_a_checkpoint_is_measured_on_fresh_names_without_training() -> None:
    figures = courses.measured(SHIPPED["service"], "service", attempts=6, seed=3)
    assert set(figures["made names copied"]) == set(service.NAME_KINDS)
    assert all(rate >= 0.3 for rate in figures["made names copied"].values())
