"""`evolved plan`: figures that follow from one another, and each says what it is from."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.planning import USED, Given, plan
from daemon.settings.reading import load
from daemon.settings.tables import Config
from learner.sizing import MODELS
from tests.unit.daemon.cli.conftest import Evolved


def figures(config: Config | None = None, **given: Any) -> dict[str, float]:
    return {one.key: one.value for one in plan("7b", MODELS["7b"], Given(**given), config or load(None)).figures}


def test_seven_billion_on_a_node_fits_with_what_it_names(evolved: Evolved) -> None:
    found = evolved.json("plan --model 7b --gpus 8 --runs-per-hour 2000")
    values = {one["key"]: one["value"] for one in found["figures"]}
    assert found["fits"]
    assert found["changed"] == ["train.gradient_checkpointing = true"]
    assert values["memory_gb"] < 80
    assert values["update_gb"] == pytest.approx((2 + 12 / 8) * 7.615616512)  # bf16; every eighth masters and moments
    assert all(one["told"] and one["basis"] for one in found["figures"])


def test_what_no_setting_makes_fit_ends_with_one_and_the_remedies(evolved: Evolved) -> None:
    told = evolved("plan --model 14b --gpus 1", 1).out
    for words in ("does NOT fit", "such GPUs with train.trainer", "memory of each GPU", "assumed", "counted"):
        assert words in told


def test_a_directory_with_a_config_is_a_model(tmp_path: Path, evolved: Evolved) -> None:
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": True,
    }))  # fmt: skip
    assert evolved.json(f"plan --model {tmp_path} --gpus 0 --machine-memory 4")["parameters"] < 1e6


def test_updates_follow_from_outcomes_until_the_learner_is_the_slower():
    few = figures(runs_per_hour=2000, reported=0.05)
    assert few["updates_day"] == pytest.approx(2000 * 24 * 0.05 * USED / load(None).train.runs)
    many = figures(runs_per_hour=200_000, reported=1.0)
    assert many["updates_day"] == pytest.approx(86400 / (many["update_seconds"] + many["write_seconds"]))


def test_figures_move_as_what_they_follow_from():
    whole, train = figures(), load(None).train
    assert figures(gpus=16)["update_seconds"] == pytest.approx(whole["update_seconds"] / 2)
    assert figures(gpu="H100")["update_seconds"] < whole["update_seconds"]
    soon, late = figures(delay_minutes=1.0), figures(delay_minutes=120.0)
    assert late["staleness_minutes"] - soon["staleness_minutes"] == pytest.approx(119)
    assert late["staleness_versions"] > soon["staleness_versions"]
    tenth = figures(load(None, ["judge.share=0.1"]))
    assert tenth["judge_tokens_day"] == pytest.approx(whole["judge_tokens_day"] / 10)
    played = figures(load(None, ["sandbox.environment=travel"]))
    rollouts = whole["updates_day"] * train.groups * train.group_size
    assert played["shadow_tokens_day"] - whole["shadow_tokens_day"] == pytest.approx(rollouts * Given().tokens)
