"""The service desk's warm start: names in pieces, the chat format with several calls and customers, what ships."""

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from actors.messages import ToolCall  # noqa: E402
from adapters.environments.made_names import made_tool_name  # noqa: E402
from adapters.environments.service_desk.agents import NO_DRIFT  # noqa: E402
from adapters.environments.service_desk.demonstrations import (  # noqa: E402
    Demonstration,
    Demonstrator,
    Habits,
)
from daemon.demo.worlds import WORLDS  # noqa: E402
from daemon.processes import service_warmstart as service  # noqa: E402
from daemon.processes.warmstart import digest, measured  # noqa: E402
from learner.warmstart import chat, tokenizer  # noqa: E402
from learner.warmstart.train import Settings  # noqa: E402

pytestmark = pytest.mark.torch
SHIPPED = WORLDS["service"].warm_start
SHIPPED_BYTES = 10 << 20


@pytest.fixture(scope="module")
def built() -> Tokenizer:
    parts = service.word_parts()
    return tokenizer.build((), (*service.vocabulary(), *parts.entities, *parts.names))


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    demonstrator = Demonstrator(random.Random("chat"))
    return [demonstrator.demonstrate("ROA"[number % 3]) for number in range(150)]


def pieces(built: Tokenizer, before: str, name: str, after: str) -> list[int]:
    """The ids of `name` where it stands, which must be whole tokens of its own."""
    ids, front, back = (built.encode(text).ids for text in (before + name + after, before, after))
    assert ids[: len(front)] == front
    assert ids[len(ids) - len(back) :] == back
    return ids[len(front) : len(ids) - len(back)]


@pytest.mark.parametrize("kind", service.NAME_KINDS)
def test_a_made_name_has_the_same_pieces_wherever_it_stands(built: Tokenizer, kind: Any) -> None:
    rng, alike = random.Random(kind), 0
    for _ in range(500):
        name = made_tool_name(rng, kind)
        called = pieces(built, '<tool_call>\n{"name": "', name, '", "arguments": {"')
        assert pieces(built, "\n", name, "(order)\n") == called
        with contextlib.suppress(AssertionError):  # " the" begins "thero", say
            alike += pieces(built, "Content: call ", name, ".") == called
    assert alike >= 490


def test_the_vocabulary_knows_no_phrase_of_the_evaluation_that_training_has_not(built: Tokenizer) -> None:
    assert built.get_vocab_size() < 2000
    assert built.decode(built.encode("Grüße: zokári_99\t€").ids, skip_special_tokens=False) == "Grüße: zokári_99\t€"


def test_several_calls_of_a_turn_are_read_back() -> None:
    calls = [ToolCall("orders.hold", '{"order":"K1"}'), ToolCall("orders.track", '{"parcel":"P2"}')]
    assert chat.parse_all(chat.turn(calls)) == calls
    assert chat.parse_all(chat.turn(calls) + " and more") == []
    assert chat.parse_all(chat.turn(calls).replace("P2", 'P"2')) == []
    assert chat.parse(chat.turn(calls)) is None


def as_messages(one: Demonstration) -> list[dict[str, Any]]:
    """A demonstration as chat messages, as an agent would send them."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": one.system + one.hint},
        {"role": "user", "content": one.goal},
    ]
    for number, (calls, text, following) in enumerate(one.turns):
        made = [
            {"id": "c", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
        messages.append({"role": "assistant", "content": text, **({"tool_calls": made} if made else {})})
        if number + 1 < len(one.turns):
            messages += following
    return messages


def test_the_shipped_template_gives_the_ids_of_training(shown: list[Demonstration]) -> None:
    loaded = AutoTokenizer.from_pretrained(SHIPPED)
    vocabulary = Tokenizer.from_file(str(SHIPPED / "tokenizer.json"))
    for one in shown:
        segments = next(service.segments(_Again(one)))
        messages = as_messages(one)
        prompt = loaded.apply_chat_template(
            messages[:2], tools=one.tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert prompt == vocabulary.encode(segments[0][0]).ids
        whole = loaded.apply_chat_template(messages, tools=one.tools, tokenize=True, return_dict=False)
        assert whole == [token for text, _ in segments for token in vocabulary.encode(text).ids] + (
            vocabulary.encode("\n").ids
        )


class _Again(Demonstrator):
    """Shows one demonstration for ever."""

    def __init__(self, one: Demonstration) -> None:
        super().__init__(random.Random(0))
        self._one = one

    def demonstrate(self, letter: str | None = None, hinted: bool | None = None) -> Demonstration:
        return self._one


def test_the_shipped_vocabulary_is_the_one_that_the_code_makes(built: Tokenizer) -> None:
    assert Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).to_str() == built.to_str()


def test_the_recipe_says_how_the_shipped_checkpoint_was_made() -> None:
    recipe = json.loads((SHIPPED / "recipe.json").read_text(encoding="utf-8"))
    assert recipe["digest"] == digest(SHIPPED)
    # Two trainings: the second goes on from the first.
    assert Settings(**recipe["start"]["settings"]) == Settings(**service.SETTINGS)
    assert Settings(**recipe["settings"]).imitation_steps > 0
    assert Habits(**recipe["habits"]) == Habits()
    assert recipe["saw"] == service.RECIPE["saw"]
    assert 0.3 <= recipe["success"]["sampled, held-out phrases"]["ROA"] <= 0.65
    # Lessons are worded as the rules word them as well: 62 to 69 % of these for the model of before, too.
    assert min(recipe["success"]["made names copied"].values()) > 0.55
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < SHIPPED_BYTES


def test_a_checkpoint_is_measured_on_fresh_names_without_training() -> None:
    figures = measured(SHIPPED, "service", attempts=6, seed=3)
    assert figures["digest"] == digest(SHIPPED)
    assert set(figures["made names copied"]) == set(service.NAME_KINDS)
    assert all(rate >= 0.3 for rate in figures["made names copied"].values())


def test_an_attempt_by_the_right_turns_is_solved() -> None:
    attempt = service.Attempt(2, "R", "heldout", NO_DRIFT, hinted=False)
    assert attempt.act("Which order?") is not None
    while (following := attempt.act("Done.")) is not None:
        assert following.startswith("\n<|im_start|>user\n")
    assert not attempt.solved


def test_the_shipped_files_are_those_of_a_checkpoint() -> None:
    names = {"config.json", "model.safetensors", "recipe.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in Path(SHIPPED).iterdir()} == names
