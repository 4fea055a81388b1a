"""From the bus through an actor to the bus: every record counts once, whatever dies in between."""

import anyio
import pytest
from prometheus_client import CollectorRegistry

from actors.messages import OutcomeChanged
from actors.system.actor import Actor, Output, Result
from actors.system.backpressure import Backpressure
from actors.system.errors import BusUnavailable, DependencyUnavailable
from actors.system.metrics import SystemMetrics
from actors.system.outgoing import Outgoing, outgoing
from actors.system.runner import MAX_FAILURES
from actors.system.streams import POLICY_DIRECTIVE, POLICY_SERVING, TRAJECTORY_OUTCOME
from tests.unit.actors.system.conftest import Recorder, note

pytestmark = [pytest.mark.anyio, pytest.mark.promise]


def echo(batch):
    """One record and one output for each input."""
    made = [note(f"{item.message.id}-out") for item in batch]
    return Result(records=made, outputs=[Output(POLICY_SERVING, message) for message in made])


def echoed(*records):
    return [f"{POLICY_SERVING}:{record}-out" for record in records]


async def test_inputs_become_records_and_outputs_and_copies_in_one_batch_and_later_are_not_handled_again(rig):
    actor = Recorder(echo)
    rig.add(actor)
    await rig.publish("a", "b")
    await rig.copy()
    assert await rig.run_for(10, (5, lambda: rig.copy("late copy")))
    assert actor.batches == [["a", "b"]]
    assert [record.id for record in rig.ledger.records.values()] == ["a-out", "b-out"]
    assert rig.out(POLICY_SERVING) == echoed("a", "b")
    assert (await rig.bus.depth())["recorder"].in_flight == 0


@pytest.mark.parametrize("committed", [False, True])
async def test_a_crash_on_either_side_of_the_commit_loses_and_doubles_nothing(rig, committed):
    if committed:
        rig.dies_once(rig.bus, "publish", lambda items: items[0].subject == POLICY_SERVING)
    else:
        rig.dies_once(rig.ledger, "commit")
    actor = Recorder(echo)
    rig.add(actor)
    await rig.publish("a")
    assert await rig.run_for(60)
    assert actor.handled == ["a"] if committed else ["a", "a"]
    assert rig.out(POLICY_SERVING) == echoed("a")
    assert await rig.ledger.unpublished("recorder", 10) == []


async def test_a_batch_that_fails_is_handled_record_by_record(rig):
    def picky(batch):
        if any(item.message.id == "bad" for item in batch):
            raise ValueError("cannot")
        return echo(batch)

    actor = Recorder(picky)
    rig.add(actor)
    await rig.publish("a", "bad", "b")
    assert await rig.run_for(2)
    assert actor.batches[:4] == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
    assert actor.starts >= 2, "its memory is rebuilt after a failure"
    assert rig.out(POLICY_SERVING) == echoed("a", "b")


async def test_a_record_that_keeps_failing_is_parked_with_its_error_and_payload(rig):
    def never(batch):
        raise ValueError("cannot do this one")

    actor = Recorder(never)
    rig.metrics = SystemMetrics(CollectorRegistry())
    rig.add(actor)
    await rig.publish("bad")
    assert await rig.run_for(600)
    assert actor.handled == ["bad"] * MAX_FAILURES
    (parked,) = rig.ledger.parked
    assert (parked.actor, parked.input_id) == ("recorder", f"{POLICY_DIRECTIVE}:bad")
    assert "cannot do this one" in parked.error
    assert parked.data == rig.bus.published[0].data
    assert rig.metrics.failed.labels("recorder")._value.get() == MAX_FAILURES
    assert rig.metrics.parked.labels("recorder")._value.get() == 1
    assert (await rig.bus.depth())["recorder"].in_flight == 0


@pytest.mark.parametrize(("kills", "parked"), [(5, 0), (20, 1)])
async def test_a_record_that_comes_again_and_again_is_parked_by_one_error_and_after_a_few_kills_by_none(
    rig, kills, parked
):
    lives = []

    def errs_once(batch):
        lives.append([item.message.id for item in batch])
        if len(lives) in (kills + 1, kills + 2) and lives[-1] == ["bad"]:
            raise ValueError("cannot")
        return echo(batch)

    commit = rig.ledger.commit

    async def dies(*arguments):
        if len(lives) <= kills:
            raise RuntimeError("kill -9")
        return await commit(*arguments)

    rig.ledger.commit = dies
    rig.add(Recorder(errs_once), max_restarts=1000)
    await rig.publish("bad")
    assert await rig.run_for(3600)
    assert len(rig.ledger.parked) == parked
    assert len(rig.out(POLICY_SERVING)) == 1 - parked


async def test_a_late_outcome_waits_for_who_was_away_over_a_long_weekend(rig):
    await rig.bus.publish([outgoing(TRAJECTORY_OUTCOME, OutcomeChanged(id="run", revision=1))])
    await anyio.sleep(4 * 86_400.0)
    actor = Recorder()
    actor.inputs = (TRAJECTORY_OUTCOME,)
    rig.add(actor)
    assert await rig.run_for(5)
    assert actor.handled == ["run"]


async def test_what_follows_from_records_goes_out_at_once_though_the_answer_to_the_commit_was_lost(rig):
    commit, lost = rig.ledger.commit, []

    async def decides(actor, inputs, records, outputs):
        """As the store, which tells once what changed."""
        changed = [] if lost else [outgoing(TRAJECTORY_OUTCOME, OutcomeChanged(id="r", revision=0))]
        written = await commit(actor, inputs, records, changed)
        if not lost:
            lost.append(1)
            raise DependencyUnavailable("the connection is gone")
        return written

    rig.ledger.commit = decides
    ticks = iter([Result(records=[note("made")])])
    actor = Recorder(tick=lambda: next(ticks, Result()))
    actor.tick_seconds = 5.0
    rig.add(actor)
    assert await rig.run_for(60)
    assert rig.out(TRAJECTORY_OUTCOME) == [f"{TRAJECTORY_OUTCOME}:r:0"]


async def test_an_actor_whose_record_fails_after_an_outage_is_at_work_again(rig):
    errors, seen = [DependencyUnavailable("judge"), ValueError("cannot")], []

    def handle(batch):
        if errors:
            raise errors.pop(0)
        return echo(batch)

    async def look():
        seen.append(rig.supervisor.state()[0].status)

    rig.add(Recorder(handle))
    await rig.publish("a")
    assert await rig.run_for(10, (8, look))
    assert (seen, rig.out(POLICY_SERVING)) == (["ready"], echoed("a"))


async def test_malformed_bytes_are_parked_at_once(rig):
    actor = Recorder(echo)
    rig.add(actor)
    await rig.bus.publish([Outgoing(POLICY_DIRECTIVE, "broken", b"\xc1 nonsense")])
    await rig.publish("a")
    assert await rig.run_for(5)
    assert actor.handled == ["a"]
    (parked,) = rig.ledger.parked
    assert (parked.input_id, parked.data) == ("broken", b"\xc1 nonsense")
    assert parked.error.startswith("MalformedMessage")


async def test_an_absent_dependency_is_waited_out_and_never_counts(rig):
    began = anyio.current_time()

    def judge_is_away(batch):
        if anyio.current_time() - began < 3600:
            raise DependencyUnavailable("judge")
        return echo(batch)

    actor = Recorder(judge_is_away)
    rig.add(actor)
    await rig.publish("a")
    assert await rig.run_for(3700)
    assert rig.ledger.parked == []
    assert rig.out(POLICY_SERVING) == echoed("a")
    assert rig.supervisor.state()[0].restarts == 0
    assert len(actor.handled) < 250


async def test_a_broker_outage_holds_the_outputs_back_and_loses_none(rig):
    actor = Recorder(echo)
    rig.add(actor)
    await rig.publish("a")
    publish = rig.bus.publish
    began = anyio.current_time()

    async def full_for_a_while(items):
        if items[0].subject == POLICY_SERVING and anyio.current_time() - began < 300:
            raise BusUnavailable("full")
        await publish(items)

    rig.bus.publish = full_for_a_while
    assert await rig.run_for(400)
    assert actor.handled == ["a"]
    assert rig.out(POLICY_SERVING) == echoed("a")


async def test_a_drain_during_an_outage_leaves_the_record_to_the_next_life(rig):
    def away(batch):
        raise DependencyUnavailable("judge")

    rig.add(Recorder(away))
    await rig.publish("a")
    assert await rig.run_for(20)
    subscription = await rig.bus.subscribe("recorder", (POLICY_DIRECTIVE,))
    assert [delivery.attempts for delivery in await subscription.fetch(10, 0.0)] == [2]


async def test_a_long_handler_keeps_its_records(rig):
    async def slow(batch):
        await anyio.sleep(100)
        return echo(batch)

    actor = Recorder(slow)
    rig.add(actor)
    await rig.publish("a")
    other = await rig.bus.subscribe("recorder", (POLICY_DIRECTIVE,))
    stolen = []

    async def thief():
        stolen.extend(await other.fetch(10, 80))

    assert await rig.run_for(150, (5, thief))
    assert stolen == []
    assert actor.handled == ["a"]


async def test_a_record_that_another_holder_committed_first_is_dropped(rig):
    def overtaken(batch):
        rig.ledger.done.add(("recorder", f"{POLICY_DIRECTIVE}:a"))
        return echo(batch)

    actor = Recorder(overtaken)
    rig.add(actor)
    await rig.publish("a", "b")
    assert await rig.run_for(5)
    assert actor.batches == [["a", "b"], ["b"]]
    assert rig.out(POLICY_SERVING) == echoed("b")


async def test_actors_behind_make_room_while_the_head_of_the_flow_has_more_than_it_can_take(rig):
    backpressure, order = Backpressure(patience=60.0), []

    def add(name):
        def handle(batch):
            order.append(name)
            return Result()

        actor = Recorder(handle)
        actor.name, actor.batch, actor.head = name, 1, name == "head"
        rig.add(actor, backpressure=backpressure)

    add("head")
    add("behind")
    await rig.publish("a", "b", "c", "d")
    assert await rig.run_for(30)
    assert order[:4].count("head") >= 3, "the first batch may go to either"
    assert order.count("behind") == 4, "and then it goes on"


async def test_ticks_come_at_their_interval_and_publish(rig):
    times = []

    def tick():
        times.append(round(anyio.current_time() - began, 3))
        return Result(outputs=[Output(POLICY_SERVING, note(f"tick{len(times)}"))])

    actor = Recorder(tick=tick)
    actor.inputs, actor.tick_seconds = (), 10.0
    rig.add(actor)
    began = anyio.current_time()
    assert await rig.run_for(35)
    assert times == [0, 10, 20, 30]
    assert len(rig.out(POLICY_SERVING)) == 4


@pytest.mark.parametrize(("error", "restarts"), [(ValueError("boom"), 1), (DependencyUnavailable("engine"), 0)])
async def test_an_error_in_a_tick_restarts_the_actor_and_an_absent_dependency_does_not(rig, error, restarts):
    ticks = []

    def tick():
        ticks.append(1)
        if len(ticks) == 1:
            raise error
        return Result()

    actor = Recorder(tick=tick)
    actor.tick_seconds = 5.0
    rig.add(actor)
    assert await rig.run_for(20)
    assert rig.supervisor.state()[0].restarts == restarts
    assert len(ticks) > 2


async def test_an_actor_starts_anew_once_people_edited_and_what_came_then_meets_the_new_memory(rig):
    starts_seen, actor = [], Recorder()
    actor.renews = True
    actor.reply = lambda batch: starts_seen.append(actor.starts) or Result()
    rig.add(actor)

    async def ask_and_publish():
        assert actor.starts == 1
        rig.ledger.edits += 2
        await rig.publish("a")

    async def idle():
        rig.ledger.edits += 1

    assert await rig.run_for(20, (5, ask_and_publish), (10, idle))
    assert (actor.handled, starts_seen, actor.starts) == (["a"], [2], 3)


async def test_an_actor_without_inputs_emits_with_the_same_guarantees(rig):
    class Source(Actor):
        name = "source"

        async def run(self, outbox):
            n = 0
            while not outbox.lifecycle.draining.is_set():
                n += 1
                made = note(f"n{n}")
                await outbox.emit(Result(records=[made], outputs=[Output(POLICY_SERVING, made)]))
                outbox.lifecycle.beat()
                await outbox.lifecycle.pause(1)

    async def outage(down):
        rig.bus.down = down

    rig.add(Source())
    assert await rig.run_for(100, (10, lambda: outage(True)), (40, lambda: outage(False)))
    out = rig.out(POLICY_SERVING)
    assert out == [f"{POLICY_SERVING}:n{n}" for n in range(1, len(out) + 1)]
    assert len(out) > 40
    assert len(rig.ledger.records) == len(out)
