"""The model against transformers, and the batch: what leaves it or breaks in it changes nothing about the rest."""

import itertools
import random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from adapters.engines.checkpoint import validate  # noqa: E402
from adapters.engines.embedded.batching import Batch, Limits, Run  # noqa: E402
from adapters.engines.embedded.model import Chunk, Model, build_weights, read_config  # noqa: E402
from adapters.engines.embedded.sampling import Sampling, draw  # noqa: E402
from tests.support import checkpoints  # noqa: E402


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return checkpoints.write(tmp_path_factory.mktemp("batching") / "a", 1)


@pytest.fixture(scope="module")
def weights(directory):
    return build_weights(read_config(directory), validate(directory))


@pytest.fixture
def make(directory, weights):
    """Batches over the checkpoint."""

    def build(slots: int = 8, **options) -> Batch:
        model = Model(read_config(directory), weights, slots=slots, length=256)
        clock = itertools.count().__next__
        return Batch(model, "1", clock=clock, decode=lambda ids: "".join(chr(97 + i % 26) for i in ids), **options)

    return build


def run(prompt: list[int], count: int) -> Run:
    return Run(prompt, Sampling(temperature=0.0), Limits(max_tokens=count), random.Random(0))


def prompt(seed: int, length: int) -> list[int]:
    return random.Random(seed).choices(range(250), k=length)


def finish(batch: Batch, *runs: Run) -> None:
    for one in runs:
        batch.add(one)
    for _ in range(10_000):
        if not batch.busy:
            return
        batch.step()
    raise AssertionError("the batch never ends")


def test_logits_are_those_of_transformers(directory, weights):
    from transformers import Qwen2ForCausalLM

    theirs = Qwen2ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    ids = prompt(1, 100)
    model = Model(read_config(directory), weights, slots=3, length=128)
    with torch.inference_mode():
        wanted = theirs(torch.tensor([ids])).logits[0]
        whole = model.logits(model.forward([Chunk(0, 0, ids)]))
        # In chunks, and then token by token, beside other rows.
        pieces = [model.forward([Chunk(1, 0, [5] * 7), Chunk(2, 0, ids[:40])])[7:]]
        pieces.append(model.forward([Chunk(1, 7, [6]), Chunk(2, 40, ids[40:90])])[1:])
        pieces += [model.forward([Chunk(1, 8 + i, [7]), Chunk(2, 90 + i, [ids[90 + i]])])[1:] for i in range(10)]
        cached = model.logits(torch.cat(pieces))
    assert (whole - wanted).abs().max() < 2e-5
    assert (cached - wanted).abs().max() < 2e-5


@pytest.mark.parametrize("waiting", [True, False])
def test_a_run_that_is_aborted_leaves_the_others_as_they_were(make, waiting):
    batch = make(slots=2)
    runs = [run(prompt(i, 10), 20) for i in range(3)]
    for one in runs:
        batch.add(one)
    for _ in range(5):
        batch.step()
    gone = runs[2] if waiting else runs[0]
    batch.abort(gone)
    finish(batch)
    assert gone.finish == "abort"
    for i in {0, 1, 2} - {runs.index(gone)}:
        alone = run(prompt(i, 10), 20)
        finish(make(), alone)
        assert runs[i].answer == alone.answer


def test_numbers_that_overflow_end_their_run_and_leave_nothing_behind(make, weights):
    import msgspec

    broken = [msgspec.structs.replace(layer, qkv=layer.qkv * 3e38) for layer in weights.layers]
    batch = make()
    batch.replace_weights(msgspec.structs.replace(weights, layers=tuple(broken)))
    lost = [run(prompt(i, 40), 10) for i in range(3)]
    finish(batch, *lost)
    assert {one.finish for one in lost} == {"error"}
    batch.replace_weights(weights)
    runs = [run(prompt(i, 20 * i + 5), 10) for i in range(3)]
    finish(batch, *runs)
    alone = run(prompt(0, 5), 10)
    finish(make(), alone)
    assert runs[0].answer == alone.answer


def test_the_next_turn_finds_what_the_last_one_computed(make):
    batch = make()
    first = run(prompt(1, 40), 10)
    finish(batch, first)
    turn = run(first.ids + prompt(2, 10), 10)
    finish(batch, turn)
    assert turn.cached_tokens == 48  # of 49 tokens that have keys and values, the full blocks of 16
    cold = run(turn.ids[:60], 10)
    finish(make(prefix_tokens=0), cold)
    assert turn.answer == cold.answer
    assert turn.logprobs == pytest.approx(cold.logprobs, abs=1e-4)


def test_top_p_cuts_the_tail_and_temperature_sharpens():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2])).repeat(2000, 1)
    cut = draw(logits, [Sampling(top_p=0.6)] * 2000, [random.Random(2)] * 2000)
    assert set(cut.tokens) == {0, 1}
    assert cut.logprobs[cut.tokens.index(1)] == pytest.approx(-1.204, abs=1e-3)  # of the unscaled distribution
    cold = draw(logits, [Sampling(temperature=0.1)] * 2000, [random.Random(3)] * 2000)
    assert cold.tokens.count(0) > 1950
