"""The warm start: vocabulary, chat format, training, sampling, and the checkpoint that ships."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from actors.messages import ToolCall  # noqa: E402
from adapters.environments.made_names import made_tool_name  # noqa: E402
from adapters.environments.travel import words  # noqa: E402
from adapters.environments.travel.demonstrations import Demonstration, Demonstrator, Habits  # noqa: E402
from adapters.environments.travel.drift import BASE  # noqa: E402
from daemon.processes import service_warmstart as service  # noqa: E402
from daemon.processes.warmstart import (  # noqa: E402
    DEMO_DRIFT,
    FURTHER,
    Attempt,
    choose,
    digest,
    segments,
    vocabulary_texts,
    with_selection,
    word_parts,
)
from learner.warmstart import chat, checkpoint, model, tokenizer  # noqa: E402
from learner.warmstart.sampler import Sampler  # noqa: E402
from learner.warmstart.train import Progress, Settings, hidden_states, train  # noqa: E402

pytestmark = pytest.mark.torch
SHIPPED = Path(__file__).parents[3] / "daemon" / "demo" / "warmstart"


@pytest.fixture(scope="module")
def built() -> Tokenizer:
    parts = word_parts()
    return tokenizer.build(vocabulary_texts(), (*parts.entities, *parts.names, *parts.held_out))


@pytest.fixture(scope="module")
def shown() -> list[Demonstration]:
    demonstrator = Demonstrator(random.Random("chat"))
    return [demonstrator.demonstrate("ABCDL"[number % 5]) for number in range(200)]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Training is only reproducible on one thread, and so small a model is slower on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def as_messages(one: Demonstration) -> list[dict[str, Any]]:
    """A demonstration as chat messages, as an agent would send them."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": chat.SYSTEM + one.hint}] if one.hint else []
    messages.append({"role": "user", "content": one.goal})
    for number, (call, observation) in enumerate(one.turns):
        function = {"name": call.name, "arguments": call.arguments}
        identifier = f"call-{number}"
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": identifier, "type": "function", "function": function}],
            }
        )
        if number + 1 < len(one.turns):
            messages.append({"role": "tool", "tool_call_id": identifier, "content": observation})
    return messages


def as_text(one: Demonstration) -> list[str]:
    """A demonstration in the pieces that training uses."""
    pieces = [chat.opening(one.goal, one.tools, one.hint)]
    for number, (call, observation) in enumerate(one.turns):
        pieces.append(chat.action(call) + chat.END)
        if number + 1 < len(one.turns):
            pieces.append(chat.continuation(observation))
    return pieces


def test_every_word_is_one_token(built: Tokenizer) -> None:
    parts = word_parts()
    every = (*parts.entities, *parts.names, *parts.held_out)
    assert len(tokenizer.single(built, every)) == len(every)


def test_a_word_of_several_tokens_is_named(built: Tokenizer) -> None:
    with pytest.raises(ValueError, match="'order_seat' is 2 tokens"):
        tokenizer.single(built, ["order_seat"])


def test_pieces_tokenize_like_the_whole_and_decode_to_themselves(built: Tokenizer, shown: list[Demonstration]) -> None:
    for one in shown:
        pieces = as_text(one)
        ids = built.encode("".join(pieces)).ids
        assert ids == [token for piece in pieces for token in built.encode(piece).ids]
        assert built.decode(ids, skip_special_tokens=False) == "".join(pieces)


@pytest.mark.parametrize("kind", service.NAME_KINDS)
def test_a_made_name_has_the_same_pieces_wherever_it_stands(built: Tokenizer, kind: Any) -> None:
    rng = random.Random(kind)
    places = [
        ('<tool_call>\n{"name": "', '", "arguments": {"fid"'),
        ("\n", "(fid,pid)\n"),
        ("then book:", "."),
        ("before_cancel:", " then cancel:cancel."),
    ]
    for _ in range(500):
        name = made_tool_name(rng, kind)
        seen: set[tuple[int, ...]] = set()
        for before, after in places:
            ids, front, back = (built.encode(text).ids for text in (before + name + after, before, after))
            assert (ids[: len(front)], ids[len(ids) - len(back) :]) == (front, back)
            seen.add(tuple(ids[len(front) : len(ids) - len(back)]))
        assert len(seen) == 1
        assert 0 < len(seen.pop()) <= len(name)


def test_a_checkpoint_goes_on_with_a_larger_vocabulary_where_it_stood() -> None:
    small, large = tokenizer.build((), ("book", "cancel")), tokenizer.build((), ("ab", "book", "cancel", "zo"))
    old = model.build(model.configuration(small.get_vocab_size()), seed=1)
    new = model.build(model.configuration(large.get_vocab_size()), seed=2)
    model.take_over(new, large.get_vocab(), old, small.get_vocab())
    ours, theirs = large.get_vocab(), small.get_vocab()
    shared = sorted(theirs)
    said, before = (torch.tensor([[ids[piece] for piece in ("book", "cancel", "x")]]) for ids in (ours, theirs))
    with torch.no_grad():
        now = new(input_ids=said).logits[0][:, [ours[piece] for piece in shared]]
        then = old(input_ids=before).logits[0][:, [theirs[piece] for piece in shared]]
    assert torch.allclose(now, then, atol=1e-5)


def test_text_outside_the_vocabulary_survives(built: Tokenizer) -> None:
    text = "Grüße aus Köln: 3 × 4 = 12\t\n"
    assert built.decode(built.encode(text).ids, skip_special_tokens=False) == text


def test_parse_is_the_inverse_of_action() -> None:
    call = ToolCall("book", '{"fid":"K1","pid":"Q2"}')
    assert chat.parse(chat.action(call)) == call


@pytest.mark.parametrize(
    "text",
    [
        "",
        "done",
        "<tool_call>\n{}\n</tool_call>",
        '<tool_call>\n{"name": "book", "arguments": "K1"}\n</tool_call>',
        '<tool_call>\n{"name": "book", "arguments": {}}\n</tool_call> and more',
        '<tool_call>\n{"name": "book", "arguments": {}}\n</tool_call>\n<tool_call>\n{}\n</tool_call>',
    ],
)
def test_what_is_not_one_call_is_none(text: str) -> None:
    assert chat.parse(text) is None


def small(built: Tokenizer) -> tuple[Any, dict[str, Any]]:
    config = {
        **model.configuration(built.get_vocab_size()),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
    }
    return model.build(config, 0), config


def trained(built: Tokenizer, seed: int) -> tuple[Any, list[Progress]]:
    made, _ = small(built)
    seen: list[Progress] = []
    train(
        made,
        built,
        segments(Demonstrator(random.Random(seed))),
        word_parts(),
        settings=Settings(drill_steps=3, imitation_steps=4, drill_every=2, batch=2, drill_batch=4),
        seed=seed,
        progress=seen.append,
        report_every=1,
    )
    return made, seen


def test_training_follows_from_its_seed(built: Tokenizer) -> None:
    one, seen = trained(built, 0)
    again, _ = trained(built, 0)
    other, _ = trained(built, 1)
    weights = one.model.embed_tokens.weight
    assert torch.equal(weights, again.model.embed_tokens.weight)
    assert not torch.equal(weights, other.model.embed_tokens.weight)
    assert [now.step for now in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert math.isnan(seen[0].entity_loss)
    assert math.isfinite(seen[-1].entity_loss)


def test_the_drill_teaches_copying_within_a_hundred_updates(built: Tokenizer) -> None:
    made = model.build(model.configuration(built.get_vocab_size()), 0)
    seen: list[Progress] = []
    train(
        made,
        built,
        segments(Demonstrator(random.Random(0))),
        word_parts(),
        settings=Settings(
            drill_steps=90, imitation_steps=1, batch=1, drill_batch=16, muon_lr=0.02, adamw_lr=0.01, warmup=20
        ),
        seed=0,
        progress=seen.append,
    )
    assert seen[-1].drill_loss < 5.2  # untrained: 7.2


def test_a_checkpoint_is_untied_and_loads_as_it_was(built: Tokenizer, tmp_path: Path) -> None:
    made, config = small(built)
    checkpoint.save(made, built, config, tmp_path)
    loaded, same = checkpoint.load(tmp_path)
    assert not loaded.config.tie_word_embeddings
    ids = torch.tensor([built.encode("find_person to:Oslo").ids])
    assert ids.tolist() == [same.encode("find_person to:Oslo").ids]
    with torch.no_grad():
        assert torch.equal(made.lm_head(hidden_states(made, ids)), loaded.lm_head(hidden_states(loaded, ids)))


def shipped_attempts() -> list[Attempt]:
    return [Attempt(number, "ABC"[number % 3], BASE, hinted=False) for number in range(6)]


class Recorded:
    """An attempt that keeps what the model said."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self.opening = attempt.opening
        self.turns: list[str] = []

    @property
    def solved(self) -> bool:
        return self._attempt.solved

    def act(self, text: str) -> str | None:
        self.turns.append(text)
        return self._attempt.act(text)


def test_episodes_in_a_batch_go_as_they_would_alone() -> None:
    made, vocabulary = checkpoint.load(SHIPPED)
    sampler = Sampler(made, vocabulary, generator=None)
    together = [Recorded(attempt) for attempt in shipped_attempts()]
    sampler.play(together)
    alone = [Recorded(attempt) for attempt in shipped_attempts()]
    for attempt in alone:
        sampler.play([attempt])
    assert [one.turns for one in together] == [one.turns for one in alone]


def test_greedy_turns_are_those_of_transformers_generate() -> None:
    made, vocabulary = checkpoint.load(SHIPPED)
    attempt = Recorded(shipped_attempts()[2])
    Sampler(made, vocabulary, generator=None).play([attempt])
    prompt = torch.tensor([vocabulary.encode(attempt.opening).ids])
    full = made.generate(prompt, max_new_tokens=32, do_sample=False, eos_token_id=2, pad_token_id=0)
    turn = vocabulary.decode(full[0, prompt.shape[1] :].tolist(), skip_special_tokens=False)
    assert turn == attempt.turns[0] + chat.END


def test_the_shipped_template_gives_the_ids_of_training(shown: list[Demonstration]) -> None:
    vocabulary = checkpoint.load(SHIPPED)[1]
    loaded = AutoTokenizer.from_pretrained(SHIPPED)
    for one in shown:
        messages, pieces = as_messages(one), as_text(one)
        opening = messages[: 2 if one.hint else 1]
        prompt = loaded.apply_chat_template(
            opening, tools=one.tools, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert prompt == vocabulary.encode(pieces[0]).ids
        whole = loaded.apply_chat_template(messages, tools=one.tools, tokenize=True, return_dict=False)
        assert whole == vocabulary.encode("".join(pieces) + "\n").ids


def test_the_shipped_checkpoint_loads_as_plain_qwen2_with_the_same_logits() -> None:
    made, vocabulary = checkpoint.load(SHIPPED)
    plain = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32).eval()
    assert type(plain).__name__ == "Qwen2ForCausalLM"
    assert plain.lm_head.weight.data_ptr() != plain.model.embed_tokens.weight.data_ptr()
    ids = torch.tensor([vocabulary.encode(shipped_attempts()[0].opening).ids])
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, made(ids).logits)


def test_the_shipped_vocabulary_is_the_one_that_the_code_makes(built: Tokenizer) -> None:
    assert Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).to_str() == built.to_str()


def test_the_recipe_says_how_the_shipped_checkpoint_was_made() -> None:
    recipe = json.loads((SHIPPED / "recipe.json").read_text(encoding="utf-8"))
    assert recipe["digest"] == digest(SHIPPED)
    assert Settings(**recipe["settings"]) == Settings(**FURTHER)
    assert Settings(**recipe["start"]["settings"]) == Settings(**FURTHER)
    assert Settings(**recipe["start"]["start"]["settings"]) == Settings()
    assert Habits(**recipe["habits"]) == Habits()
    assert min(recipe["success"]["made names copied"].values()) > 0.8
    assert recipe["held_out_names"] == [*words.HELD_OUT, *words.HELD_OUT_PAIRS]
    assert 0.30 <= recipe["success"]["sampled"]["ABC"] <= 0.45
    assert all(recipe["success"]["sampled"][family] > 0.10 for family in "ABCL")


def recipe_with(score: float) -> dict[str, Any]:
    figures = {family: {"hinted": score, "unhinted": 0.0} for family in "AC"}
    return {"success": {"sampled": {"ABC": 0.4}, "drifts": {DEMO_DRIFT: figures}}}


def test_of_several_candidates_the_best_across_the_demos_drift_is_kept_and_the_others_are_told() -> None:
    recipes = {0: recipe_with(0.5), 1: recipe_with(0.7), 2: recipe_with(0.6)}
    best = choose(recipes)
    assert best == 1
    selection = with_selection(recipes, best)["selection"]
    assert {seed: candidate["score"] for seed, candidate in selection["candidates"].items()} == {
        "0": 0.5,
        "1": 0.7,
        "2": 0.6,
    }
