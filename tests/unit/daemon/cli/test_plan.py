"""`evolved plan`: figures that follow from one another, and each says what it is from."""

import json

import msgspec
import pytest

from daemon.cli.main import main
from daemon.cli.planning import USED, Given, plan
from daemon.settings.config import Config
from learner.sizing import MODELS


def figures(model="7b", config=None, **changes):
    found = plan(model, MODELS[model], Given(**changes), config or Config())
    return found, {one.key: one.value for one in found.figures}


def test_seven_billion_on_a_node_fits_with_what_it_names(capsys):
    assert main(["plan", "--model", "7b", "--gpus", "8", "--runs-per-hour", "2000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    values = {one["key"]: one["value"] for one in found["figures"]}
    assert found["fits"]
    assert found["changed"] == ["learner.gradient_checkpointing = true"]
    assert values["memory_gb"] < 80
    assert values["update_gb"] == pytest.approx((2 + 12 / 8) * 7.615616512)  # bf16; every eighth masters and moments
    assert all(one["told"] and one["basis"] for one in found["figures"])


def test_the_table_says_of_every_figure_what_it_is_from(capsys):
    assert main(["plan", "--model", "0.5b", "--gpus", "1"]) == 0
    told = capsys.readouterr().out
    for word in ("memory of each GPU", "computing an update", "updates a day", "assumed", "formula", "counted"):
        assert word in told


def test_what_no_setting_makes_fit_ends_with_one_and_the_remedies(capsys):
    assert main(["plan", "--model", "14b", "--gpus", "1"]) == 1
    told = capsys.readouterr().out
    assert "does NOT fit" in told
    assert "such GPUs with learner.trainer" in told


def test_a_directory_with_a_config_is_a_model(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": True,
    }))  # fmt: skip
    assert main(["plan", "--model", str(tmp_path), "--gpus", "0", "--machine-memory", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] < 1e6


def test_updates_follow_from_outcomes_until_the_learner_is_the_slower():
    _, few = figures(runs_per_hour=2000, reported=0.05)
    assert few["updates_day"] == pytest.approx(2000 * 24 * 0.05 * USED / Config().curator.production_per_batch)
    _, many = figures(runs_per_hour=200_000, reported=1.0)
    assert many["updates_day"] == pytest.approx(86400 / (many["update_seconds"] + many["write_seconds"]))


def test_the_real_installation_s_batches_were_within_a_third_of_the_formula():
    """docs/results/standstill-hour.json: 62 minutes, 634 reported runs, 38 batches, 22 minutes of them at a stop."""
    predicted = 634 * USED / 8
    assert predicted == pytest.approx(38, rel=0.33)


def test_twice_the_gpus_take_half_the_seconds_and_a_faster_one_fewer():
    _, eight = figures(gpus=8)
    _, sixteen = figures(gpus=16)
    assert sixteen["update_seconds"] == pytest.approx(eight["update_seconds"] / 2)
    assert figures(gpu="H100")[1]["update_seconds"] < eight["update_seconds"]


def test_outcomes_that_come_late_are_older_in_minutes_and_versions():
    _, soon = figures(delay_minutes=1.0)
    _, late = figures(delay_minutes=120.0)
    assert late["staleness_minutes"] - soon["staleness_minutes"] == pytest.approx(119)
    assert late["staleness_versions"] > soon["staleness_versions"]


def test_the_judge_s_tokens_follow_its_share_and_the_shadow_s_the_sandbox():
    whole, settings = figures()[1], Config()
    sampling = msgspec.structs.replace(settings.attributor.sampling, share=0.1)
    attributor = msgspec.structs.replace(settings.attributor, sampling=sampling)
    _, tenth = figures(config=msgspec.structs.replace(settings, attributor=attributor))
    assert tenth["judge_tokens_day"] == pytest.approx(whole["judge_tokens_day"] / 10)
    sandbox = msgspec.structs.replace(settings.sandbox, environment="travel")
    _, played = figures(config=msgspec.structs.replace(settings, sandbox=sandbox))
    assert played["shadow_tokens_day"] - whole["shadow_tokens_day"] == pytest.approx(
        whole["updates_day"] * 64 * Given().tokens
    )
