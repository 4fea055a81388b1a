"""How a call was sampled where its request does not say: as the engine says that it samples."""

import msgspec
import pytest

from actors.messages import Sampling
from actors.messages.sampling import NUMBERS
from actors.ports.errors import EngineRejected, EngineUnavailable
from actors.trajectories.engine_defaults import EngineDefaults
from tests.support.traffic import exchange, feedback
from tests.unit.actors.trajectories.made import Bench

pytestmark = pytest.mark.anyio
QWEN = Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
UNSAID = Sampling(unsaid=("temperature", *NUMBERS))
STRICT = Sampling(bent_by="strict tools")


class Engine:
    """One that says how it samples, and what is known of it at `now`."""

    def __init__(self, says: Sampling | Exception) -> None:
        self.says, self.asked, self.now = says, 0, 0.0
        self.known = EngineDefaults({"own": self.sampling_defaults}, lambda: self.now)

    async def sampling_defaults(self) -> Sampling:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    async def of(self, said: Sampling = UNSAID, **fields) -> Sampling:
        call = exchange("a", 0, **({"engine": "own", "sampling": said} | fields))
        await self.known.look([call])
        return self.known.applied(call).sampling


@pytest.mark.parametrize(
    ("engine", "said", "sampled"),
    [
        (QWEN, UNSAID, QWEN),
        (QWEN, Sampling(temperature=1.0, unsaid=NUMBERS[1:]), Sampling(top_k=20, repetition_penalty=1.05)),
        (QWEN, Sampling(top_p=0.9), Sampling(top_p=0.9)),
        (STRICT, UNSAID, STRICT),
        (STRICT, msgspec.structs.replace(UNSAID, bent_by="logit_bias"),
         Sampling(bent_by="logit_bias")),
    ],
)  # fmt: skip
async def test_what_a_request_says_goes_before_what_the_engine_does(
    engine: Sampling, said: Sampling, sampled: Sampling
) -> None:
    assert await Engine(engine).of(said) == sampled


async def test_an_engine_is_asked_once_a_minute_and_only_about_calls_that_need_it() -> None:
    engine = Engine(QWEN)
    for fields in ({"engine": "other"}, {"said": Sampling()}, {"response_ids": b""}):
        await engine.of(**fields)
    assert engine.asked == 0
    await engine.of()
    await engine.of()
    assert engine.asked == 1
    engine.now, engine.says = 61.0, Sampling()
    assert (await engine.of()).top_k == 0


@pytest.mark.parametrize("error", [EngineRejected("404"), EngineUnavailable("away")])
async def test_an_engine_that_does_not_say_is_not_believed_to_do_nothing(error: Exception) -> None:
    engine = Engine(error)
    found = await engine.of()
    assert found.bent_by == "unknown sampling defaults"
    await engine.of()
    assert engine.asked == 1
    engine.now, engine.says = 11.0, QWEN
    assert await engine.of() == QWEN
    engine.now, engine.says = 80.0, error
    assert await engine.of() == QWEN, "what it did a minute ago is the best guess"


async def test_a_run_says_how_it_was_really_sampled(bench: Bench) -> None:
    for name, why, rows in (("processed", "", [(0.7, QWEN.processing)]), ("raw", "temperature", [])):
        await bench.restart(processed_logprobs=("processed",), engines={name: Engine(QWEN).sampling_defaults})
        await bench.see(exchange(name, 0, engine=name, sampling=UNSAID), feedback(name, 0, 1.0))
        (run,) = await bench.later()
        assert run.why_not == why
        assert [(row.temperature, row.processing) for row in run.rows] == rows
