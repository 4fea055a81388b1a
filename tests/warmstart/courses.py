"""What each world's warm start is made from, and its making: vocabulary, model, training, HF files, recipe."""

import hashlib
import json
import platform
import random
import re
import string
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from adapters.environments.service_desk import grammar
from adapters.environments.service_desk.agents import AGENTS, ROLES
from adapters.environments.travel import words
from tests.warmstart import chat, model, service_demonstrations, tokenizer, travel_demonstrations, travel_words
from tests.warmstart.chat import Segment
from tests.warmstart.train import Settings, Words, train

BASE_PARTS = (
    "find", "search", "list", "check", "book", "cancel", "quote", "weather", "next", "finish",
    "_person", "_flight", "_orders", "_policy", "_ticket",
)  # fmt: skip
"""The parts of the travel desk's tool names without drift."""
ERRORS = (
    "bad call", "bad arguments", "no tool", "no person", "no flight", "no ticket", "bad pid", "bad fid", "bad oid",
    "refused", "gone", "search first", "not done", "over",
)  # fmt: skip
"""What the travel desk may answer; rare ones need not occur among the texts that the vocabulary is made from."""
VOCABULARY_TEXTS = 1500
SIGNS = 8
"""How often each single sign counts among the parts of names that the drill draws from."""
FURTHER = Settings(drill_steps=100, imitation_steps=450)
"""Of a training that goes on from a checkpoint."""
PAIRS = tuple(one + other for one in string.ascii_lowercase for other in string.ascii_lowercase)
DIGITS = tuple(one + other for one in string.digits for other in string.digits)
PARTS = tuple(sorted({part for name in ROLES for part in re.findall(r"[a-z]+|[A-Z][a-z]+", name)}))
"""The parts of the service desk's tool names without drift."""
FRAMES = (
    "system\n", "user\n", "assistant\n", "tool\n",
    '\n{"name": "', '", "arguments": {"', '"}}\n', '": "', '", "', '{"', '"}', "HTTP 200 ", "HTTP 40", ", ", ". ", ": ",
    "\n# Tools\n", "\nWhen to use: ", ". Content: ", " (", "@box.io", "@mail.com", "@post.net", "@work.org",
    *sorted({f"({','.join(parameters)})\n" for parameters in ROLES.values()}),
)  # fmt: skip
"""Recurring punctuation, of the chat format and of the service desk's dialects."""
SAID = (
    "Which order? Which email? Done. It is in and", "no such tool", "bad arguments", "unknown", "refused",
    "done already", "ok yes", "Error", "amount parcel user email order city",
)  # fmt: skip
"""What the service desk's agents and tools say."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    demonstrator: Callable[..., travel_demonstrations.Demonstrator | service_demonstrations.Demonstrator]
    words: Callable[[], Words]
    texts: Callable[[], list[str]] = list
    """What the vocabulary is made from, beside `words`."""
    pieces: Callable[[], tuple[str, ...]] = tuple
    """More of the vocabulary, as it is."""
    settings: Settings = Settings()
    habits: Any


def examples(demonstrator: Any) -> Iterator[list[Segment]]:
    """Endless demonstrations as text."""
    while True:
        yield demonstrator.demonstrate().segments()


def _travel_texts() -> list[str]:
    """The same for every seed, so that all warm starts share their ids; without made names, which would be words."""
    habits = travel_demonstrations.Habits(made=0.0)
    shown = examples(travel_demonstrations.Demonstrator(random.Random("vocabulary"), habits))
    texts = ["".join(text for text, _ in next(shown)) for _ in range(VOCABULARY_TEXTS)]
    return texts + [chat.continuation(json.dumps({"error": error})) for error in ERRORS]


def _travel_words() -> Words:
    """What is no word falls into pairs of letters and single signs, the same ones wherever it stands. The drill repeats
    the signs more often than pairs: there are few, and every other name has one."""
    records = (*words.PEOPLE, *words.CITIES, *words.RECORD_IDS)
    signs = (*string.ascii_letters, "_", ".")
    names = (*travel_words.VERBS, *travel_words.SUFFIXES, *PAIRS)
    return Words(
        entities=(*records, *names, *signs, *BASE_PARTS),
        names=(*names, *(SIGNS * signs)),
        held_out=travel_words.HELD_OUT,
    )


def _service_pieces() -> tuple[str, ...]:
    """The words of the grammar's training half, all pairs of small letters and of digits.

    A word of three letters or more also has a piece with the space before it, unless a tool's name begins like it: a
    name has the same pieces behind a space, a quote and a line break, and is copied pair by pair.
    """
    texts = [agent.system for agent in AGENTS.values()] + [*grammar.AT_ORDER, *grammar.AT_ACCOUNT, *grammar.JOINS]
    texts += [grammar.NUDGE, *service_demonstrations.PURPOSES.values(), *grammar.CITIES, *SAID]
    texts += [sentence for kind in service_demonstrations.SENTENCES.values() for sentence in kind]
    texts += service_demonstrations.DRAWN.values()
    spoken = (grammar.OPENERS, grammar.REASONS, grammar.CLOSERS, grammar.AGAIN, grammar.COMPLAINTS, grammar.DETAILS)
    texts += [line for part in (*spoken, *grammar.WISHES.values()) for line in part["train"]]
    found = {word for text in texts for word in re.findall(r"[A-Za-z]+", re.sub(r"\{[a-z]+\}", "", text))}
    spaced = {
        f" {word}" for word in found if len(word) > 2 and not any(part.lower().startswith(word) for part in PARTS)
    }
    return tuple(sorted(piece for piece in {*found, *spaced, *PARTS, *FRAMES, *PAIRS, *DIGITS} if len(piece) > 1))


def _service_words() -> Words:
    copied = (*PAIRS, *DIGITS, *string.ascii_lowercase)
    return Words(entities=(*copied, *PARTS, *string.ascii_uppercase, *grammar.CITIES), names=copied, held_out=())


COURSES = {
    "travel": Course(
        demonstrator=travel_demonstrations.Demonstrator,
        words=_travel_words,
        texts=_travel_texts,
        habits=travel_demonstrations.Habits(),
    ),
    "service": Course(
        demonstrator=service_demonstrations.Demonstrator,
        words=_service_words,
        pieces=_service_pieces,
        settings=Settings(drill_steps=300, imitation_steps=1800),
        habits=service_demonstrations.Habits(),
    ),
}


def run(
    out: Path,
    seed: int,
    progress: Callable[[str], None],
    settings: Settings | None = None,
    world: str = "travel",
    start: Path | None = None,
) -> dict[str, Any]:
    """Make the checkpoint of `seed` in the directory `out`, with its recipe.json; returns the recipe.

    Runs on one thread, and leaves torch set so: more threads add in another order, and the same seed would not give the
    same weights. With `start` it goes on from that checkpoint, whose vocabulary may be another, for `FURTHER`.
    """
    course = COURSES[world]
    settings = settings or (course.settings if start is None else FURTHER)
    torch.set_num_threads(1)
    parts = course.words()
    vocabulary = tokenizer.build(course.texts(), (*course.pieces(), *parts.entities, *parts.names, *parts.held_out))
    config = model.configuration(vocabulary.get_vocab_size())
    made = model.build(config, seed)
    if start is not None:
        old, before = load(start)
        model.take_over(made, vocabulary.get_vocab(), old, before.get_vocab())
    shown = examples(course.demonstrator(random.Random(f"demonstrations-{seed}")))
    seconds = train(made, vocabulary, shown, parts, settings=settings, seed=seed, progress=progress)
    _save(made, vocabulary, config, out)
    recipe: dict[str, Any] = {
        "command": f"python -m tests.warmstart --world {world} --out DIR --seed {seed}"
        + ("" if start is None else " --start OLD"),
        **({} if start is None else {"start": _ancestor(start)}),
        "seed": seed,
        "digest": digest(out),
        "settings": msgspec.to_builtins(settings),
        "habits": msgspec.to_builtins(course.habits),
        "cpu_seconds": round(seconds),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "transformers", "tokenizers", "safetensors")},
        },
        "machine": platform.machine(),
    }
    _write(out / "recipe.json", recipe)
    return recipe


def _ancestor(directory: Path) -> dict[str, Any]:
    """Which checkpoint a training went on from: enough of its recipe to make it again."""
    recipe = json.loads((directory / "recipe.json").read_text(encoding="utf-8"))
    return {name: recipe[name] for name in ("command", "seed", "digest", "settings", "start") if name in recipe}


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


def _save(made: Qwen2ForCausalLM, vocabulary: Tokenizer, config: dict[str, Any], directory: Path) -> None:
    """The head is written apart from the embeddings: engines refuse to reload a tied head in place."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in made.state_dict().items()}
    tensors["lm_head.weight"] = made.lm_head.weight.detach().clone().contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    _write(directory / "config.json", config)
    vocabulary.save(str(directory / "tokenizer.json"))
    _write(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": chat.END,
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": config["max_position_embeddings"],
            "chat_template": Path(__file__).with_name("template.jinja").read_text(encoding="utf-8"),
        },
    )


def load(directory: Path) -> tuple[Qwen2ForCausalLM, Tokenizer]:
    """The model (float32, CPU, not training) and the tokenizer of a checkpoint."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    made = Qwen2ForCausalLM(Qwen2Config(**config))
    made.load_state_dict(load_file(directory / "model.safetensors"))
    return made.eval(), Tokenizer.from_file(str(directory / "tokenizer.json"))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
