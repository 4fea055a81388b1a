"""How a call was sampled where its request does not say: as the engine says that it samples."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from actors.messages import Sampling
from actors.messages.sampling import NUMBERS
from actors.ports.errors import EngineRejected, EngineUnavailable
from actors.store import Store
from actors.system.streams import TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK
from actors.trajectories.assembler import Assembler, AssemblerSettings
from actors.trajectories.engine_defaults import EngineDefaults
from tests.support.driving import Driver
from tests.support.traffic import exchange, feedback

pytestmark = pytest.mark.anyio
QWEN = Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
UNSAID = Sampling(unsaid=("temperature", *NUMBERS))


class Engine:
    def __init__(self, says: Sampling | Exception) -> None:
        self.says, self.asked = says, 0

    async def sampling_defaults(self) -> Sampling:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def call(sampling: Sampling = UNSAID, engine: str = "own", number: int = 0):
    return exchange("a", number, engine=engine, sampling=sampling)


class Bench:
    def __init__(self, says: Sampling | Exception) -> None:
        self.engine, self.now = Engine(says), 0.0
        self.defaults = EngineDefaults({"own": self.engine}, lambda: self.now)

    async def of(self, *calls) -> Sampling:
        await self.defaults.look(calls)
        return self.defaults.applied(calls[0]).sampling


async def test_what_a_request_says_goes_before_what_the_engine_does() -> None:
    bench = Bench(QWEN)
    assert await bench.of(call()) == QWEN
    said = Sampling(temperature=1.0, top_p=1.0, unsaid=NUMBERS[1:])
    assert await bench.of(call(said)) == Sampling(top_k=20, repetition_penalty=1.05)
    assert await bench.of(call(Sampling(top_p=0.9))) == Sampling(top_p=0.9)


async def test_an_engine_is_asked_once_a_minute_and_only_about_calls_that_need_it() -> None:
    bench = Bench(QWEN)
    await bench.of(call(), call(number=1), call(engine="other"))
    await bench.of(call(Sampling()))
    await bench.of(call())
    assert bench.engine.asked == 1
    bench.now, bench.engine.says = 61.0, Sampling()
    assert (await bench.of(call())).top_k == 0
    assert await Bench(QWEN).of(call(Sampling())) == Sampling()
    untold = msgspec.structs.replace(call(), response_ids=b"")
    other = Bench(QWEN)
    await other.of(untold)
    assert other.engine.asked == 0


async def test_an_engine_that_does_not_say_is_not_believed_to_do_nothing() -> None:
    for error in (EngineRejected("404"), EngineUnavailable("away")):
        bench = Bench(error)
        found = await bench.of(call())
        assert (found.forced, found.bent_by) == (True, "unknown sampling defaults")
        await bench.of(call())
        assert bench.engine.asked == 1
        bench.now, bench.engine.says = 11.0, QWEN
        assert await bench.of(call()) == QWEN
        bench.now, bench.engine.says = 80.0, error
        assert await bench.of(call()) == QWEN, "what it did a minute ago is the best guess"


async def test_a_grammar_that_the_engine_has_for_tools_is_known() -> None:
    strict = Sampling(forced=True, bent_by="strict tools")
    assert (await Bench(strict).of(call())).processing.grammar
    forced = msgspec.structs.replace(UNSAID, forced=True, bent_by="logit_bias")
    assert (await Bench(strict).of(call(forced))).bent_by == "logit_bias"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = Store(store_url, clock=lambda: 0.0)
    await store.open()
    yield store
    await store.aclose()


async def test_a_run_says_how_it_was_really_sampled(store: Store) -> None:
    now = 5000.0
    engine = Engine(QWEN)
    for name, why, rows in (("processed", "", [(0.7, QWEN.processing)]), ("raw", "temperature", [])):
        settings = AssemblerSettings(processed_logprobs=("processed",))
        assembler = Assembler(settings, store=store, clock=lambda: now, engines={name: engine})
        driver = Driver(assembler, store)
        await assembler.start()
        await driver.feed(TRAFFIC_EXCHANGE, exchange(name, 0, engine=name, sampling=UNSAID))
        await driver.feed(TRAFFIC_FEEDBACK, feedback(name, 0, 1.0))
        now += 10.0
        (run,) = await driver.tick()
        assert run.why_not == why
        assert [(row.temperature, row.processing) for row in run.rows] == rows
