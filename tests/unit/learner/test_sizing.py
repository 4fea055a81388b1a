"""The formulas against transformers' own models, written files and terms counted by hand."""

import json
from pathlib import Path

import pytest

from daemon.processes.learner_settings import learner
from daemon.settings.reading import load
from learner.errors import ShapeUnknown
from learner.settings import LearnerSettings
from learner.sizing import (
    MODELS,
    Shape,
    Training,
    Work,
    activations,
    flops,
    memory,
    optimizer_bytes,
    read_shape,
    training,
    version_bytes,
)

SMALL = Shape(layers=2, hidden=8, intermediate=12, heads=4, key_value_heads=2, head_size=2, vocabulary=10)


def states(parts):
    words = ("weights", "gradients", "moments", "undo")
    return sum(size for what, size in parts.items() if any(word in what for word in words) and "layer's" not in what)


@pytest.mark.parametrize(("name", "published"), [
    ("0.5b", 494_032_768), ("1.5b", 1_543_714_304), ("3b", 3_085_938_688), ("7b", 7_615_616_512),
    ("14b", 14_770_033_664),
])  # fmt: skip
def test_qwen_s_sizes_have_the_parameters_that_were_published(name, published):
    assert MODELS[name].parameters == published


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Llama"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_config_tells_every_tensor_of_the_model_that_is_made_from_it(kind, tied, tmp_path):
    pytest.importorskip("torch")
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, tie_word_embeddings=tied,
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    config.save_pretrained(tmp_path)
    stored = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert read_shape(tmp_path).tensors() == stored


def test_a_shape_that_cannot_be_counted_is_told(tmp_path):
    with pytest.raises(ShapeUnknown, match="No such file"):
        read_shape(tmp_path)
    for kind, says in (("mamba", "'mamba'"), ("qwen2", "num_attention_heads")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with pytest.raises(ShapeUnknown, match=says):
            read_shape(tmp_path)


@pytest.mark.parametrize(("half", "width"), [(False, 4), (True, 2)])
def test_what_is_written_has_the_bytes_that_were_counted(half, width, warm_start, tmp_path):
    torch = pytest.importorskip("torch")
    from learner.trainers.files import load_tensors, save_tensors
    from learner.trainers.native import NativeTrainer
    from tests.unit.learner.maker import tiny_model

    directory = tiny_model(tmp_path / "model")
    if half:
        weights = load_tensors(directory / "model.safetensors")
        save_tensors({name: one.to(torch.bfloat16) for name, one in weights.items()}, directory / "model.safetensors")
    trainer = NativeTrainer(LearnerSettings(device="cpu", kl_coef=0.0), directory)
    for p in trainer.tensors():
        p.grad = torch.ones_like(p)
    trainer.step()
    trainer.save(tmp_path)
    trainer.save_state(tmp_path)
    shape = read_shape(directory)

    def content(name):
        return sum(one.nbytes for one in load_tensors(tmp_path / f"{name}.safetensors").values())

    assert content("model") == version_bytes(shape, width)
    counters = 4 * len(shape.tensors())  # a step of each parameter's, and what the rewarming knows
    assert 0 <= content("optimizer") - optimizer_bytes(shape) <= counters + 64


def test_saved_tensors_of_a_real_forward_are_the_activations(tmp_path):
    torch = pytest.importorskip("torch")
    from learner.trainers.micro import Layout
    from learner.trainers.model import Model
    from tests.benchmarks.learner import batch
    from tests.support.checkpoints import make

    make(tmp_path, layers=3, hidden=64, heads=4, vocabulary=256)
    model = Model(LearnerSettings(device="cpu", micro_tokens=256), tmp_path)
    layout = Layout(batch(4, 0, shortest=64, longest=64, vocabulary=256))
    micro = layout.micro_batches(layout.trained, 256)[0]
    weights = {p.untyped_storage().data_ptr() for p in model.module.parameters()}
    kept = {}

    def see(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor  # alive, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor):
        model.log_probs(micro)
    found = sum(one.untyped_storage().nbytes() for at, one in kept.items() if at not in weights)
    run = Training(tokens=len(micro.ids), trained=len(micro.target))
    expected = activations(read_shape(tmp_path), run) + 4 * len(micro.target) * 256
    assert found == pytest.approx(expected, rel=0.05)


def test_verl_s_states_are_sixteen_bytes_a_parameter_over_all_gpus():
    shape = MODELS["7b"]
    parts = memory(shape, Training(trainer="verl", gpus=8, tokens=32768, checkpointing=True, guard=False))
    assert states(parts) == 16 * shape.parameters / 8


def test_the_shipped_configuration_loads_and_is_estimated_to_fit():
    settings = learner(load(Path("ops/a100/7b.toml")))
    parts = memory(MODELS["7b"], training(settings, 8))
    assert settings.trainer == "verl"
    assert sum(parts.values()) < 72e9  # a tenth of 80 left for what formulas forget


def test_flops_are_six_a_weight_and_token_with_two_for_each_more_forward():
    run = Training(reference=False, guard=False)
    # One token a row, all of it trained: attention is next to nothing, the head is of the matrices.
    work = Work(rows=1000, length=1, trained=1.0)
    matrices = 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 12) + 8 * 10
    once = 6 * 1000 * (matrices + 2 * 8 / 1)
    assert flops(SMALL, run, work, 4) == once
    assert flops(SMALL, Training(guard=False, checkpointing=True), work, 4) == pytest.approx(once * 5 / 3)
    guarded = flops(SMALL, Training(reference=False), Work(rows=1000, length=1, trained=1.0, probe=250), 4)
    assert guarded == pytest.approx(once * (1 + 4 * 0.25 / 3))
