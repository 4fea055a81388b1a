"""The warm starts that ship are those that their recipes make: weights, vocabulary and template."""

import json
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")
from tokenizers import Tokenizer

from daemon.demo.worlds import WORLDS
from tests.warmstart import chat, courses, tokenizer
from tests.warmstart.train import Settings

pytestmark = pytest.mark.torch
SHIPPED = {name: Path(world.warm_start) for name, world in WORLDS.items()}
SHIPPED_BYTES = 10 << 20


@pytest.mark.parametrize("world", SHIPPED)
def test_the_shipped_vocabulary_and_template_are_those_that_the_code_makes(world: str) -> None:
    course = courses.COURSES[world]
    parts = course.words()
    built = tokenizer.build(course.texts(), (*course.pieces(), *parts.entities, *parts.names, *parts.held_out))
    every = (*parts.entities, *parts.names, *parts.held_out)
    assert len(tokenizer.single(built, every)) == len(every)
    assert Tokenizer.from_file(str(SHIPPED[world] / "tokenizer.json")).to_str() == built.to_str()
    told = json.loads((SHIPPED[world] / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert told["chat_template"] == Path(chat.__file__).with_name("template.jinja").read_text()


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
