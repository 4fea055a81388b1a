"""The warm starts that ship: weights, vocabulary and template are those that the demo's agents and engines expect."""

import json
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
from tokenizers import Tokenizer  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from daemon.demo.worlds import WORLDS  # noqa: E402
from tests.warmstart import courses, tokenizer  # noqa: E402
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
