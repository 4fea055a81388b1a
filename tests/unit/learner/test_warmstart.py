"""The warm starts that ship: weights, vocabulary and template are those that the demo's agents and engines expect."""

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from daemon.demo.worlds import WORLDS  # noqa: E402
from tests.warmstart import chat, courses, tokenizer  # noqa: E402
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


def messages(system: str, goal: str, turns: Any) -> Iterator[dict[str, Any]]:
    """A demonstration as chat messages."""
    yield from [{"role": "system", "content": system}] if system else []
    yield {"role": "user", "content": goal}
    for calls, text, following in turns:
        functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
        made = [{"id": "c", "type": "function", "function": function} for function in functions]
        yield {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}
        yield from following


def told(world: str) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Demonstrations as chat messages, and their tools."""
    maker = travel.Demonstrator if world == "travel" else desk.Demonstrator
    demonstrator = maker(random.Random("chat"))
    while True:
        one = demonstrator.demonstrate()
        turns: list[Any]
        if isinstance(one, desk.Demonstration):
            system, turns = one.system + one.hint, list(one.turns)
        else:
            system = chat.SYSTEM + one.hint if one.hint else ""
            turns = [((call,), None, [{"role": "tool", "content": seen}]) for call, seen in one.turns]
        turns[-1] = (*turns[-1][:2], ())
        yield list(messages(system, one.goal, turns)), one.tools


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_template_gives_the_ids_of_training(world: str) -> None:
    trained = courses.travel_examples(travel.Demonstrator(random.Random("chat")))
    if world == "service":
        trained = courses.service_examples(desk.Demonstrator(random.Random("chat")))
    loaded = AutoTokenizer.from_pretrained(SHIPPED[world])
    vocabulary = Tokenizer.from_file(str(SHIPPED[world] / "tokenizer.json"))
    for (said, tools), segments in islice(zip(told(world), trained, strict=True), 100):
        opening = next(at for at, one in enumerate(said) if one["role"] == "assistant")
        prompt = loaded.apply_chat_template(
            said[:opening], tools=tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert prompt == vocabulary.encode(segments[0][0]).ids
        whole = loaded.apply_chat_template(said, tools=tools, tokenize=True, return_dict=False)
        pieces = [token for text, _ in segments for token in vocabulary.encode(text).ids]
        assert whole == pieces + vocabulary.encode("\n").ids


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_checkpoint_loads_as_plain_qwen2_with_the_same_logits(world: str) -> None:
    made, vocabulary = courses.load(SHIPPED[world])
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
        first = first["start"]
    assert Settings(**first["settings"]) == courses.COURSES[world].settings
    assert msgspec.to_builtins(courses.COURSES[world].habits) == recipe["habits"]
    names = {"config.json", "model.safetensors", "recipe.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in SHIPPED[world].iterdir()} == names
    assert sum(path.stat().st_size for path in SHIPPED[world].iterdir()) < SHIPPED_BYTES
