"""What a version does worse than those before it: what is found, and what is done about it."""

import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from actors.monitoring.monitor import Finding
from actors.tool_results.runs import RunSummary
from tests.support.behaviour import Behaviour, Watch, runs, stream

USUAL = Behaviour()


def changed(**fields: object) -> Behaviour:
    return msgspec.structs.replace(USUAL, **fields)


def found(before: Behaviour, after: Behaviour, seed: int = 0) -> list[tuple[int, Finding]]:
    """What is found of a swap, each with the runs since."""
    told = stream(seed, [(before, 200), (after, 256)], batch=8)
    return [(count, finding) for version, count, finding in told if version]


@pytest.mark.parametrize(
    ("cause", "after", "action", "within"),
    [
        ("", USUAL, "", 256),
        ("hacking", changed(good=(0.8, 0.99)), "rollback", 128),
        ("outcomes", changed(success=0.3), "rollback", 80),
        ("validity", changed(invalid=0.3), "rollback", 64),
        ("length", changed(length=80.0), "freeze", 64),
        ("questions", changed(asks=0.3), "freeze", 256),
        ("loops", changed(loops=0.3), "freeze", 96),
        ("steps", changed(steps=12.0), "freeze", 96),
    ],
)
def test_what_is_planted_is_found_and_nothing_else(cause: str, after: Behaviour, action: str, within: int) -> None:
    delays = []
    for seed in range(4):
        told = found(USUAL, after, seed)
        assert {finding.cause for _, finding in told} <= {cause}
        delays += [count for count, finding in told if finding.action == action][:1]
    assert len([one for one in delays if one <= within]) >= (3 if cause else 0)


SILENT = changed(outcomes=0.0)
POOR = changed(success=0.36)


@pytest.mark.parametrize(
    ("before", "after", "cause", "actions"),
    [
        (USUAL, changed(success=0.9, good=(0.5, 0.85)), "hacking", set()),  # a better version is no hacker
        (USUAL, changed(success=0.85, good=(0.85, 0.95)), "hacking", {"tell"}),  # nor if the judge is more pleased
        (USUAL, changed(success=0.95, length=90.0), "length", {"tell"}),  # length that pays
        (SILENT, changed(outcomes=0.0, asks=0.9), "questions", {"freeze"}),  # where no outcomes come none are awaited
        (POOR, changed(success=0.76, invalid=0.15), "validity", {"tell"}),  # shown to solve far more
        (POOR, changed(success=0.38, invalid=0.3), "validity", {"rollback"}),  # only seems to
    ],
)
def test_what_pays_is_told_and_what_does_not_is_not_excused(before, after, cause, actions) -> None:
    told = [one.action for seed in range(3) for _, one in found(before, after, seed) if one.cause == cause]
    assert set(told[-1:] if actions == {"rollback"} else told) == actions


def test_a_judge_who_is_pleased_while_success_falls_is_no_excuse() -> None:
    for seed in range(2):
        causes = {one.cause for _, one in found(USUAL, changed(good=(0.8, 0.99), success=0.4), seed)}
        assert {"hacking", "outcomes"} & causes


def test_a_change_of_manners_is_told_until_outcomes_say_whether_it_pays() -> None:
    (early, first), (late, second) = found(USUAL, changed(asks=0.9), 2)
    assert (first.action, second.action) == ("tell", "freeze")
    assert early < 48 <= late
    assert "too few outcomes" in first.reason


def test_a_trend_that_no_swap_shows_is_found_against_the_reference_and_freezes_at_most() -> None:
    chain = [(changed(length=40.0 * 1.2**step), 150) for step in range(6)]
    causes = [(finding.details["against"], finding.action) for _, _, finding in stream(3, chain, batch=8)]
    assert ("reference", "freeze") in causes
    assert not [action for against, action in causes if against == "previous"]


def as_it_is(run: RunSummary) -> dict[str, str]:
    return {}


def fed(watch: Watch, version: int, how: Behaviour, first: int, count: int, change=as_it_is) -> list[Finding]:
    """What is found of `count` runs, of sixteen at a time, each with the fields that `change` makes of it."""
    found = runs(random.Random(f"0{version}{first}"), version, how, first, count)
    listed = [msgspec.structs.replace(run, **change(run)) for run in found]
    return [finding for at in range(0, count, 16) for finding in watch.add(listed[at : at + 16])]


EASY, HARD = (1.0,), (0.0, 1.0)


@pytest.mark.parametrize(
    ("before", "after", "change", "falls"),
    [
        ([(EASY, 0.95, 120)], [(EASY, 0.5, 160)], as_it_is, True),
        ([(EASY, 0.95, 120)], [(EASY, 0.5, 160)], lambda run: {"tools": f"desk {run.low}"}, False),
        ([(EASY, 0.95, 120)], [(HARD, 0.5, 160)], as_it_is, False),
        ([(EASY, 0.95, 120)], [(EASY, 0.5, 160)], lambda run: {"kind": run.id}, True),
        ([(EASY, 0.95, 90), (HARD, 0.3, 30)], [(EASY, 0.95, 40), (HARD, 0.3, 120)],
         lambda run: {"kind": run.id, "near": run.kind}, False),
    ],
    ids=["alike", "other tools", "harder", "free words", "harder in free words"],
)  # fmt: skip
def test_like_is_compared_with_like(before, after, change, falls) -> None:
    watch, at, told = Watch(), 0, list[Finding]()
    for version, parts in enumerate((before, after)):
        if version:
            watch.swap(version, float(at))
        for kinds, success, count in parts:
            made = changed(success=success, kinds=kinds)
            told += fed(watch, version, made, at, count, change)
            at += count
    assert bool({"outcomes", "hacking"} & {finding.cause for finding in told}) is falls


def test_outcomes_that_come_late_count_when_they_come() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.add(list(runs(rng, 0, changed(success=1.0), 0, 60)))
    watch.swap(1, 60.0)
    late = list(runs(rng, 1, changed(success=0.0, outcomes=0.0), 60, 40))
    assert watch.add(late) == []
    assert all(watch.history.outcome(run.id, 0.0) for run in late)
    (finding, *_) = watch.add(list(runs(rng, 1, changed(success=0.0), 100, 1)))
    assert (finding.cause, finding.action) == ("outcomes", "rollback")
    assert "100% -> 0%" in finding.reason


def test_runs_without_versions_are_sorted_by_time_even_if_the_swap_is_heard_of_later() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.add([*runs(rng, -1, changed(success=1.0), 0, 60), *runs(rng, -1, changed(success=0.0), 60, 60)])
    watch.swap(1, 60.0)
    (finding, *_) = watch.add(list(runs(rng, -1, changed(success=0.0), 120, 1)))
    assert (finding.cause, finding.details["to"]) == ("outcomes", "0")


def test_a_freeze_for_a_trend_does_not_stand_in_the_way_of_going_back() -> None:
    watch, rng = Watch(), random.Random(0)
    for version, how in enumerate((changed(success=0.9), changed(success=0.75), changed(success=0.1))):
        if version:
            watch.swap(version, 400.0 * version)
        # Few runs of the version before: the reference is sure first.
        told = watch.add(list(runs(rng, version, how, 400 * version, (400, 24, 14)[version])))
    assert [(finding.cause, finding.action) for finding in told] == [("outcomes", "freeze")]
    later = [finding for at in range(814, 900) for finding in watch.add(list(runs(rng, 2, how, at, 1)))]
    assert [(finding.cause, finding.action) for finding in later] == [("outcomes", "rollback")]


def test_going_back_is_not_watched() -> None:
    watch = Watch()
    for version, success in enumerate((0.2, 1.0)):
        watch.swap(version, 60.0 * version)
        fed(watch, version, changed(success=success), 60 * version, 60)
    watch.history.swapped(msgspec.structs.replace(watch.history.swap, version=0, previous=1, since=120.0))
    assert fed(watch, 0, changed(success=0.2), 120, 60) == []


def test_looks_go_on_where_they_were_after_a_restart() -> None:
    watch, again = Watch(), Watch()
    for version in (0, 1):
        watch.swap(version, 200.0 * version)
        fed(watch, version, USUAL, 200 * version, 200)
    for monitor, fresh in zip(watch.monitors, again.monitors, strict=True):
        fresh.restore(monitor.save())
        assert fresh.save() == monitor.save()
        assert fresh.readings() == monitor.readings()


HONEST = tuple(f"k{number}" for number in range(8))


def watching(*causes: str) -> Watch:
    """Those that speak of outcomes: the others take most of the time."""
    watch = Watch()
    watch.monitors = [monitor for monitor in watch.monitors if monitor.name in causes]
    return watch


def shared(rng: random.Random, version: int, success: float, first: int, count: int, lies, share: float) -> Iterator:
    """Runs of eight honest parties, `share` of them a liar's, who says `lies[version]` of his."""
    for run in runs(rng, version, Behaviour(success=success), first, count):
        if rng.random() < share:
            yield msgspec.structs.replace(run, party="liar", outcome=lies[version])
        else:
            yield msgspec.structs.replace(run, party=rng.choice(HONEST))


@pytest.mark.parametrize(
    ("before", "after", "lies", "share", "first", "count", "action"),
    [
        (0.9, 0.9, (1.0, 0.0), 0.2, 400, 1000, "tell"),
        (0.9, 0.6, (1.0, 1.0), 0.2, 400, 1000, "rollback"),
        (0.8, 0.5, (1.0, 1.0), 0.9, 2000, 2000, "rollback"),
    ],
    ids=["makes up a fall", "hides a fall", "floods with successes"],
)
@pytest.mark.parametrize("seed", range(2))
def test_one_party_decides_nothing_and_hides_nothing(seed, before, after, lies, share, first, count, action) -> None:
    watch, rng, told = watching("outcomes", "hacking", "agents"), random.Random(seed), list[Finding]()
    watch.add(list(shared(rng, 0, before, 0, first, lies, share)))
    watch.swap(1, float(first))
    for at in range(first, first + count, 20):
        told += watch.add(list(shared(rng, 1, after, at, 20, lies, share)))
    assert action in {one.action for one in told}
    if action == "tell":
        assert {one.action for one in told} == {"tell"}
        assert {one.details["party"] for one in told if one.cause == "outcomes"} == {"liar"}
        assert "liar" in told[0].reason


def test_below_four_parties_one_word_is_enough() -> None:
    watch, rng = Watch(), random.Random(0)
    watch.add([msgspec.structs.replace(run, party="a") for run in runs(rng, 0, Behaviour(success=0.9), 0, 100)])
    watch.swap(1, 100.0)
    after = [msgspec.structs.replace(run, party="a") for run in runs(rng, 1, Behaviour(success=0.1), 100, 40)]
    assert [(finding.cause, finding.action) for finding in watch.add(after)] == [("outcomes", "rollback")]


def chain(
    fallen: Sequence[float], length: int, *, gap: float = 6.0, parties: int = 6, seed: int = 0,
    all_of_them: bool = False, watch: Watch | None = None, away: range = range(0),
) -> list[Finding]:  # fmt: skip
    """What is said of outcomes while versions serve `length` runs each, of ten agents, one in `gap` seconds.

    The success of the first agent is `fallen`.

    Args:
        parties: each uses all agents, or, with ten, one for itself.
        all_of_them: it is of all agents.
        away: runs of the first agent that fail whatever the version.
    """
    watch, rng, told = watch or watching("outcomes", "agents"), random.Random(seed), list[Finding]()
    for version, success in enumerate(fallen):
        first, how = version * length, Behaviour(success=success if all_of_them else 0.9)
        watch.swap(version, first * gap)
        for at in range(first, first + length, 25):
            batch, one = list[RunSummary](), 0.0 if at in away else success
            for run in runs(rng, version, how, at, min(25, first + length - at)):
                number = rng.randrange(10)
                run.outcome = float(rng.random() < one) if number == 0 else run.outcome
                run.party = str(number if parties == 10 else rng.randrange(parties))
                run.agent, run.tools = f"t/a#{number}", f"t{number}"
                run.started, run.ended = run.started * gap, run.ended * gap
                batch.append(run)
            told += watch.add(batch)
    return [finding for finding in told if finding.cause == "outcomes"]


@pytest.mark.parametrize(("parties", "action"), [(1, "rollback"), (6, "rollback"), (10, "tell")])
def test_a_fall_of_one_agent_of_ten_is_found_and_acted_on_unless_one_party_alone_shows_it(parties, action) -> None:
    told = chain((0.9, 0.4), 2000, parties=parties)
    assert action in {finding.action for finding in told}
    assert any(finding.details.get("agent") == "t/a#0" or finding.action == "rollback" for finding in told)
    if action == "tell":
        assert {finding.details["party"] for finding in told} == {"0"}


@pytest.mark.parametrize(
    ("fallen", "length", "more"),
    [
        ((0.9, 0.9), 2000, {}),
        ([0.9] * 8, 150, {}),
        ((0.9, 0.9), 2000, {"away": range(2200, 2500)}),
        ([0.7] * 24, 10, {"gap": 300.0, "all_of_them": True}),
    ],
    ids=["as it was", "many versions", "half an hour without a tool", "versions of a few runs"],
)
def test_agents_that_are_as_they_were_are_not_accused(fallen, length, more) -> None:
    assert [one for one in chain(fallen, length, **more) if one.details.get("agent") or "away" not in more] == []


def test_a_fall_whose_version_is_gone_before_it_showed_is_told_once_with_that_version() -> None:
    told = chain((0.9, 0.9, 0.9, *[0.1] * 9), 150)
    assert [(one.action, one.details["agent"]) for one in told] == [("tell", "t/a#0")]
    assert int(told[0].details["version"]) in (3, 4, 5), "the version that brought it, or one soon after it"
    assert "has not mended it" in told[0].reason
    assert "to" not in told[0].details


@pytest.mark.parametrize("seed", range(2))
def test_at_low_rates_a_fall_needs_no_further_wait(seed: int) -> None:
    # A run a minute, of which the agent has a tenth: what is found has lasted for hours already.
    told = next(one for one in chain((0.9, 0.1), 600, gap=60.0, seed=seed) if "agent" in one.details)
    assert (told.action, told.details["version"]) == ("rollback", "1")


@pytest.mark.parametrize("seed", range(2))
def test_a_fall_of_all_agents_over_versions_that_each_serve_too_short_goes_back_to_before_it(seed: int) -> None:
    told = chain((*[0.8] * 8, *[0.4] * 10), 10, gap=300.0, seed=seed, all_of_them=True)
    back = next(one for one in told if one.action == "rollback")
    since, version, to = (int(back.details[key]) for key in ("since", "version", "to"))
    assert 6 <= since <= 10
    assert since < version, "what serves has not brought it"
    assert (to, "agent" in back.details) == (since - 1, False)


def test_a_drift_forgets_an_agent_and_a_flood_of_agents_pushes_out_none_that_is_heard_of_often() -> None:
    watch = watching("outcomes", "agents")
    chain((0.9, 0.9, 0.9, 0.1), 300, watch=watch)
    (monitor,) = (one for one in watch.monitors if one.name == "agents")

    def kept() -> dict[str, list]:
        return msgspec.msgpack.decode(monitor.save())["runs"]

    for number, run in enumerate(runs(random.Random(1), 3, Behaviour(), 2000, 500)):
        watch.history.add(msgspec.structs.replace(run, agent=f"t/flood#{number}", ended=12_000.0 + number))
    monitor.look(watch.history, 14_000.0)
    before = kept()
    assert monitor.readings()["agents"] == len(before) == 16
    assert sum(name.startswith("t/a#") for name in before) == 10
    assert all(len(listed) <= 192 for listed in before.values())
    monitor.forget("t/a#0")  # type: ignore[attr-defined]
    assert before.keys() - kept().keys() == {"t/a#0"}
