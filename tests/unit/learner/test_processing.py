"""The learner scores what was sampled: log-probs of the logits that penalties, temperature and cuts left."""

import math

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from actors.messages import Processing  # noqa: E402
from learner.trainers import processing  # noqa: E402
from learner.trainers.micro import Layout, Processed  # noqa: E402
from learner.trainers.staleness import FREE, Columns, prepare  # noqa: E402
from tests.unit.learner.maker import row  # noqa: E402
from tests.unit.learner.test_batch import LIMITS, built, pair  # noqa: E402
from tests.unit.learner.test_native import distance, random_batch, trainer, weights  # noqa: E402

pytestmark = pytest.mark.torch
PLAIN = row([5, 6, 7], [-1, 0, 1], version=3)
EVERY = [
    Processing(top_p=0.8),
    Processing(top_k=3),
    Processing(min_p=0.6),
    Processing(repetition_penalty=1.3),
    Processing(presence_penalty=0.7),
    Processing(frequency_penalty=0.4),
    Processing(top_p=0.9, top_k=9, min_p=0.05, repetition_penalty=1.05, presence_penalty=0.3, frequency_penalty=0.2),
]


def by_hand(logits, prompt, answer, temperature, by):
    """Number by number: the weight of every token, and of those that could have been drawn."""
    z = [float(value) for value in logits]
    for seen in set(prompt) | set(answer):
        z[seen] = z[seen] / by.repetition_penalty if z[seen] > 0 else z[seen] * by.repetition_penalty
    for said in set(answer):
        z[said] -= by.frequency_penalty * answer.count(said) + by.presence_penalty
    every = {i: math.exp(value / temperature) for i, value in enumerate(z)}
    p = {i: value for i, value in every.items() if value >= by.min_p * max(every.values())}
    if by.top_k:
        least = sorted(p.values())[-min(by.top_k, len(p))]
        p = {i: value for i, value in p.items() if value >= least}
    below, total, kept = 0.0, sum(p.values()), dict(p)
    for i in sorted(p, key=lambda i: p[i])[:-1]:
        below += p[i] / total
        if by.top_p < 1 and below <= 1 - by.top_p:
            del kept[i]
    return every, kept


@pytest.mark.parametrize("by", [Processing(), *EVERY])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 1.5])
def test_log_probs_are_those_of_the_distribution_that_was_sampled_from(warm_start, by, temperature) -> None:
    subject = trainer(warm_start)
    batch = msgspec.structs.replace(random_batch(rows=4, temperature=temperature), processing=(by,) * 4)
    expected = []
    for b in range(4):
        ids, mask = (column[batch.offsets[b] : batch.offsets[b + 1]] for column in (batch.ids, batch.mask))
        ids, begin = ids.tolist(), int(np.argmax(mask))
        with torch.no_grad():
            logits = subject._model(input_ids=torch.tensor([ids])).logits[0]
        for at in np.flatnonzero(mask).tolist():
            every, kept = by_hand(logits[at - 1].tolist(), ids[:begin], ids[begin:at], temperature, by)
            # The sampled token is always inside: these are random, and not all could have been drawn.
            kept[ids[at]] = every[ids[at]]
            expected.append(math.log(every[ids[at]] / sum(kept.values())))
    assert subject.log_probs(batch) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("by", EVERY)
def test_the_gradient_is_that_of_the_expected_advantage_over_what_could_be_drawn(by) -> None:
    """Brute force: the sum over what could be drawn of p(token) A(token), differentiated by torch."""
    ids = [3, 5, 5, 7, 0]
    z = torch.randn(1, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    about = Processed(by, np.array([0]), np.array(ids), within=np.array([4]), answer=np.array([2]))
    head = torch.nn.Linear(24, 24, bias=False, dtype=torch.float64)
    head.weight.data = torch.eye(24, dtype=torch.float64)
    kept = sorted(by_hand(z[0].tolist(), ids[:2], ids[2:4], 0.7, by)[1])
    advantage = torch.arange(24, dtype=torch.float64).sin()
    expected = torch.zeros(24, dtype=torch.float64)
    for token in kept:
        found = processing.processed_log_probs(z, head, torch.tensor([token]), 0.7, about)
        (slope,) = torch.autograd.grad(found.sum(), z)
        expected += found.exp().item() * advantage[token] * slope[0]
    p = (processing.penalised(z, about, slice(0, 1), torch.tensor(ids)) / 0.7)[0, kept].softmax(-1)
    (exact,) = torch.autograd.grad((p * advantage[kept]).sum(), z)
    assert expected.tolist() == pytest.approx(exact[0].tolist(), abs=1e-12)


def scored(batch, now):
    """Columns after `prepare`, with `now` as the present weights' log-probs of the trained tokens."""
    layout = Layout(batch)
    columns = Columns(batch, layout, torch.device("cpu"))
    values = torch.tensor(now, dtype=torch.float32)
    metrics = prepare(columns, layout, lambda rows: values[torch.from_numpy(layout.columns(rows))])
    return columns, metrics


def test_a_token_that_a_grammar_chose_is_told_from_one_that_it_let_be() -> None:
    batch = msgspec.structs.replace(random_batch(rows=2), processing=(Processing(grammar=True), Processing()))
    layout = Layout(batch)
    recorded = batch.behaviour[batch.mask > 0]
    now = recorded.copy()
    now[0] -= 2 * FREE  # the mask took away what was more than that
    now[-1] -= 2 * FREE  # of the plain row: the weights have moved
    columns, metrics = scored(batch, now)
    assert columns.bound is not None
    assert np.flatnonzero(columns.bound.numpy()).tolist() == [0]
    assert metrics == {"grammar_tokens": float((layout.row == 0).sum()), "grammar_bound": 1.0}
    # Where it chose there is no ratio; elsewhere it is to what was recorded.
    assert columns.old.tolist() == pytest.approx([now[0], *recorded[1:]])


def test_what_a_grammar_chose_moves_no_weight(warm_start) -> None:
    def moved(chosen: float) -> float:
        subject = trainer(warm_start)
        batch = msgspec.structs.replace(random_batch(rows=4), processing=(Processing(grammar=True),) * 4)
        behaviour = np.zeros(len(batch.ids), np.float32)
        behaviour[batch.mask > 0] = np.minimum(subject.log_probs(batch) + chosen, 0.0)
        report = subject.update(msgspec.structs.replace(batch, behaviour=behaviour), seed=1)
        assert report.metrics["grammar_bound"] == (batch.tokens if chosen else 0)
        return distance(weights(subject), weights(trainer(warm_start)))

    assert moved(1.0) == 0.0
    assert moved(0.0) > 0.0


def test_a_trainer_that_cannot_process_leaves_such_rows_out_and_says_so() -> None:
    limits = msgspec.structs.replace(LIMITS, processes=False)
    for by, kept in ((Processing(top_p=0.9), False), (Processing(grammar=True), True)):
        result = built(*pair(msgspec.structs.replace(PLAIN, processing=by)), limits=limits)
        assert result.dropped == ({} if kept else {"processing": 1})
