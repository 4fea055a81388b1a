"""Packed rows: what is computed together is what would be computed apart, whatever the cut."""

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learner.errors import CheckpointUnsupported  # noqa: E402
from learner.trainers import native, packing  # noqa: E402
from learner.trainers.files import load_model  # noqa: E402
from learner.trainers.head import token_log_probs  # noqa: E402
from tests.unit.learner.maker import VOCABULARY, tiny_model  # noqa: E402
from tests.unit.learner.test_native import distance, random_batch, trainer, weights  # noqa: E402

pytestmark = pytest.mark.torch


def gradient(subject, batch):
    """The gradient of one mini-batch of all rows, by parameter name."""
    found = {}
    step = subject._optimizer.step
    subject._optimizer.step = lambda: found.update({name: p.grad.detach().clone() for name, p in subject._parameters()})
    subject.update(batch, seed=0)
    subject._optimizer.step = step
    return found


def test_accumulated_gradients_are_those_of_one_big_batch_to_the_last_digits_of_a_double(warm_start, monkeypatch):
    # No clipping: it would hide a gradient that is off by a factor.
    monkeypatch.setattr(native, "MAX_GRAD_NORM", 1e9)
    batch = msgspec.structs.replace(random_batch(rows=12), trajectory=np.arange(12, dtype=np.int32) // 2)
    found = []
    for budget in (10_000, 25, 1):
        subject = trainer(warm_start, micro_tokens=budget)
        subject._model.double()
        found.append(gradient(subject, batch))
    size = max(float(g.abs().max()) for g in found[0].values())
    assert distance(found[0], found[1]) < 1e-6 * size
    assert distance(found[0], found[2]) < 1e-6 * size


def test_a_sliding_window_ends_at_a_row_s_beginning_too(tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    tiny_model(tmp_path)
    config = AutoConfig.from_pretrained(
        tmp_path, use_sliding_window=True, sliding_window=3, max_window_layers=0, layer_types=None
    )
    config.layer_types = ["sliding_attention"] * config.num_hidden_layers
    model = AutoModelForCausalLM.from_pretrained(tmp_path, config=config, attn_implementation="sdpa").eval()
    ids = torch.arange(24) % VOCABULARY
    rows = ids.split([9, 15])
    with torch.no_grad():
        apart = torch.cat([model.base_model(input_ids=row[None])[0][0] for row in rows])
        assert packing.prepare(model)
        positions = torch.cat([torch.arange(len(row)) for row in rows])
        together = model.base_model(input_ids=ids[None], position_ids=positions[None], lengths=[9, 15])[0][0]
    assert torch.allclose(apart, together, atol=1e-5)


def test_a_model_whose_attention_cannot_stop_at_a_row_takes_rows_one_by_one(warm_start):
    model = load_model(warm_start, torch.float32, torch.device("cpu"))
    forward = model.base_model.forward

    def running(*args, **kwargs):
        """As linear attention would: a state that runs along the whole sequence."""
        kwargs.pop("lengths", None)
        out = forward(*args, **kwargs)
        out[0].add_(out[0].detach().cumsum(1))
        return out

    model.base_model.forward = running
    assert not packing.prepare(model)
    assert model.config._attn_implementation == "sdpa"


def test_a_model_that_scales_its_logits_is_refused(warm_start):
    model = load_model(warm_start, torch.float32, torch.device("cpu"))
    model.lm_head.register_forward_hook(lambda _module, inputs, out: out * (2.0 if inputs[0].ndim == 3 else 1.0))
    with pytest.raises(CheckpointUnsupported, match="logits"):
        packing.prepare(model)


def test_gradient_checkpointing_changes_no_bit(warm_start):
    kept, again = trainer(warm_start), trainer(warm_start, gradient_checkpointing=True)
    runs = []
    # Before, not after: computing again stops as soon as all that the gradient needs is there.
    again._model.base_model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
    for subject in (kept, again):
        subject.update(random_batch(), seed=0)
    assert len(runs) == 2, "once forward, once for the gradient"
    assert distance(weights(kept), weights(again)) == 0.0


@pytest.mark.parametrize(("kept", "chunk"), [(1 << 20, 1 << 20), (0, 1 << 20), (0, 150)])
@pytest.mark.parametrize("temperature", [None, 0.7])
def test_log_probs_and_their_gradients_are_those_of_the_plain_formula(kept, chunk, temperature):
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(6, 50, dtype=torch.float64)
    hidden = torch.randn(11, 6, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 50, (11,), generator=generator)
    slope = torch.randn(11, generator=generator, dtype=torch.float64)
    heat = None if temperature is None else torch.full((11,), temperature, dtype=torch.float64)

    def grads(log_probs_of):
        for p in head.parameters():
            p.grad = None
        h = hidden.clone().requires_grad_()
        out = log_probs_of(h)
        (out * slope).sum().backward()
        return [out.detach(), h.grad, *(p.grad.clone() for p in head.parameters())]

    ours = grads(lambda h: token_log_probs(h, head, target, heat, kept=kept, chunk=chunk))
    plain = grads(lambda h: torch.log_softmax(head(h) / (temperature or 1.0), -1).gather(1, target[:, None])[:, 0])
    for one, other in zip(ours, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-12)
