"""The native trainer on a tiny random model: exactness, guards, and that it learns."""

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learner.errors import CheckpointUnsupported  # noqa: E402
from learner.settings import LearnerSettings  # noqa: E402
from learner.trainers.files import load_tensors, save_tensors  # noqa: E402
from learner.trainers.micro import Layout  # noqa: E402
from learner.trainers.native import NativeTrainer  # noqa: E402
from learner.trainers.rewarm import LEFT, STEPS  # noqa: E402
from tests.unit.learner.maker import VOCABULARY, tiny_model, token_batch  # noqa: E402

pytestmark = pytest.mark.torch
SETTINGS = LearnerSettings(
    device="cpu", lr=1e-3, kl_coef=0.0, mini_batches=1, weight_decay=0.0, kl_limit=0.0, micro_tokens=10_000
)


def trainer(directory, **changes):
    return NativeTrainer(msgspec.structs.replace(SETTINGS, **changes), directory)


def random_batch(rows=9, seed=0, *, guided=False, temperature=1.0):
    """Rows of 4 to 20 tokens, about half of them sampled."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 20, rows).astype(np.int64)
    n = int(lengths.sum())
    mask = (rng.random(n) < 0.5).astype(np.uint8)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    mask[first] = 0
    mask[first + 2] = 1
    return token_batch(
        lengths,
        mask,
        ids=rng.integers(2, VOCABULARY, n).astype(np.int32),
        advantages=(rng.normal(size=n) * mask).astype(np.float32),
        behaviour=(-3.0 * mask + 0.1 * rng.normal(size=n) * mask).astype(np.float32),
        guided=(np.arange(rows) % 2 if guided else np.zeros(rows)).astype(np.uint8),
        temperature=np.full(rows, temperature, np.float32),
    )


def on_policy(subject, batch):
    """`batch` with the trainer's own log-probs as behaviour."""
    behaviour = np.zeros(len(batch.ids), np.float32)
    behaviour[batch.mask > 0] = subject.log_probs(batch)
    return msgspec.structs.replace(batch, behaviour=behaviour)


def weights(subject):
    return {name: p.detach().clone() for name, p in subject._parameters()}


def distance(one, other):
    return max(float((one[name] - other[name]).detach().abs().max()) for name in one)


def test_an_update_is_that_of_a_loop_anyone_can_read(warm_start):
    from transformers import AutoModelForCausalLM

    batch, subject = random_batch(), trainer(warm_start)
    model = AutoModelForCausalLM.from_pretrained(warm_start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)
    loss = torch.zeros(())
    for start, end in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
        ids = torch.from_numpy(batch.ids[start:end].astype(np.int64))
        table = torch.log_softmax(model(ids[None]).logits[0], -1)
        for t in range(1, len(ids)):
            if batch.mask[start + t]:
                ratio = (table[t - 1, ids[t]] - float(batch.behaviour[start + t])).exp()
                advantage = float(batch.advantages[start + t])
                objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
                loss = loss - (objective.clamp(min=3 * advantage) if advantage < 0 else objective)
    (loss / batch.tokens).backward()
    loss = loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    report = subject.update(batch, seed=0)
    assert report.metrics["loss"] == pytest.approx(float(loss) / batch.tokens, abs=1e-5)
    assert distance(weights(subject), dict(model.named_parameters())) < 2e-5


def test_short_steps_go_on_after_a_restart_and_end(warm_start, tmp_path):
    straight, stopped = trainer(warm_start, mini_batches=3), trainer(warm_start, mini_batches=3)
    for subject in (straight, stopped):
        subject.restore(warm_start, None, rewarm=True)
    for n in range(3):
        directory = tmp_path / str(n)
        directory.mkdir()
        stopped.save(directory)
        stopped.save_state(directory)
        stopped = trainer(warm_start, mini_batches=3)
        stopped.restore(directory, directory if n else None, rewarm=not n)
        for subject in (straight, stopped):
            subject.update(random_batch(seed=n), seed=n)
            rate = subject._optimizer.param_groups[0]["lr"]
            assert rate == pytest.approx(SETTINGS.lr * min(1.0, 3 * (n + 1) / STEPS))
    assert distance(weights(straight), weights(stopped)) == 0.0
    stopped.save_state(tmp_path)
    assert LEFT not in load_tensors(tmp_path / "optimizer.safetensors"), "nothing is left of it"


@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (3, 1), (4, 2), (7, 3), (8, 4), (64, 4)])
def test_a_small_batch_makes_no_more_steps_than_it_has_pairs_of_trajectories(warm_start, rows, steps):
    report = trainer(warm_start, mini_batches=4).update(random_batch(rows=rows), seed=0)
    assert report.steps == steps
    assert report.untrained == {}


def test_guided_rows_take_their_old_log_probs_from_the_stripped_context(warm_start):
    batch = random_batch(guided=True)
    report = trainer(warm_start).update(batch, seed=0)
    # Recomputed just before the only step: ratio 1 on guided tokens, whatever was recorded.
    absurd = np.where(batch.guided[Layout(batch).row] > 0, -15.0, batch.behaviour[batch.mask > 0])
    behaviour = np.zeros(len(batch.ids), np.float32)
    behaviour[batch.mask > 0] = absurd
    other = trainer(warm_start).update(msgspec.structs.replace(batch, behaviour=behaviour), seed=0)
    assert other.metrics["loss"] == pytest.approx(report.metrics["loss"], abs=1e-6)
    assert other.metrics["guided_log_ratio"] == pytest.approx(report.metrics["guided_log_ratio"] + 12, abs=0.2)
    assert report.metrics["clipped_guided"] == 0.0


def test_the_kl_penalty_pulls_to_the_reference(warm_start, tmp_path):
    other = tiny_model(tmp_path, seed=1)
    idle = msgspec.structs.replace(random_batch(), advantages=np.zeros_like(random_batch().advantages))
    subject = NativeTrainer(msgspec.structs.replace(SETTINGS, kl_coef=1.0), warm_start, reference=other)
    first = subject.update(idle, seed=0).metrics["kl_reference"]
    for _ in range(10):
        last = subject.update(idle, seed=0).metrics["kl_reference"]
    assert 0 < last < 0.7 * first


def test_the_kl_guard_shortens_a_runaway_step(warm_start):
    free, held = trainer(warm_start, lr=0.03), trainer(warm_start, lr=0.03, kl_limit=0.005)
    batch = on_policy(free, random_batch(rows=30))
    before = free.log_probs(batch)
    free.update(batch, seed=0)
    report = held.update(batch, seed=0)
    assert report.metrics["steps_shrunk"] == 1
    assert report.steps == 1
    kl = [float((np.exp(d) - d - 1).mean()) for d in (free.log_probs(batch) - before, held.log_probs(batch) - before)]
    assert kl[0] > 0.03
    assert kl[1] < 0.01


def test_after_a_shortened_step_the_rest_of_the_update_is_left_out(warm_start):
    held = trainer(warm_start, lr=0.03, kl_limit=1e-3, mini_batches=4)
    report = held.update(random_batch(rows=30), seed=0)
    assert report.metrics["steps_shrunk"] == 1
    assert report.steps < 4
    assert set(report.untrained.values()) == {"update_limit"}
    assert 0 < len(report.untrained) < 30, "the rows of the steps that were kept are not named"


def test_the_kl_guard_undoes_what_it_cannot_shorten(warm_start):
    held = trainer(warm_start, lr=10.0, kl_limit=1e-4)
    before = weights(held)
    report = held.update(random_batch(), seed=0)
    assert (report.steps, report.metrics["steps_undone"]) == (0, 1)
    assert len(report.untrained) == random_batch().rows
    assert distance(before, weights(held)) == 0.0


def test_a_gradient_that_is_not_finite_is_thrown_away(warm_start):
    subject = trainer(warm_start, mini_batches=3)
    batch = random_batch()
    advantages = batch.advantages.copy()
    advantages[np.flatnonzero(batch.mask)[0]] = np.inf
    report = subject.update(msgspec.structs.replace(batch, advantages=advantages), seed=0)
    assert (report.metrics["steps_nonfinite"], report.steps) == (1, 2)
    assert all(bool(torch.isfinite(w).all()) for w in weights(subject).values())


def test_a_checkpoint_of_other_names_is_refused(warm_start, tmp_path):
    (tmp_path / "config.json").write_bytes((warm_start / "config.json").read_bytes())
    tensors = load_tensors(warm_start / "model.safetensors")
    save_tensors({**tensors, "extra": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointUnsupported, match="extra"):
        trainer(tmp_path)
