"""Blocks that are files: settings are ours, JSON parses, Python compiles, and every block says what it is."""

import ast
import importlib
import json
import tomllib

import pytest

from adapters.live.policy import PolicySettings
from daemon.settings import reading, toml
from daemon.settings.tables import ALLOW_HOSTS
from tests.docs.blocks import Block, blocks, blocks_of, pages

_LANGUAGES = {"sh", "toml", "json", "python", "text"}


def test_every_block_says_what_it_is() -> None:
    found = [block for page in pages() for block in blocks_of(page)]
    assert not [f"{block}: {block.language!r}" for block in found if block.language not in _LANGUAGES]


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_settings_are_taken_by_the_configuration(block: Block) -> None:
    table = tomllib.loads(block.text)
    if not block.foreign:
        config = reading.checked(reading.laid_over(reading.defaults(), table, str(block)), str(block))
        for name in config.apis.keys() - {ALLOW_HOSTS}:
            toml.convert(config.apis[name].get("policy", {}), PolicySettings, f"{block}: apis.{name}.policy")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_parses_as_one_document_or_line_by_line(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        for line in block.text.strip().splitlines():
            json.loads(line)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles_and_imports_what_exists(block: Block) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(block.text, str(block), "exec", flags=flags | ast.PyCF_ONLY_AST)
    compile(tree, str(block), "exec", flags=flags)
    assert isinstance(tree, ast.Module)
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and statement.module:
            module = importlib.import_module(statement.module)
            assert not [name.name for name in statement.names if not hasattr(module, name.name)]
        elif isinstance(statement, ast.Import):
            for name in statement.names:
                importlib.import_module(name.name)
