"""Skills and tool memory, drawn from desk trajectories without a language model."""

import json

import pytest

from actors.experience.skill_trials import SkillReplayer
from actors.experience.skills import Skill, bind, draw_skills
from actors.experience.tool_memory import draw_tools
from actors.messages import Experience, Trajectory
from adapters.environments.travel import Drift, TravelDesk
from tests.support.travelling import call, plays, trajectory


def runs() -> list[Trajectory]:
    return [played.trajectory for played in plays(200)]


def as_lesson(skill: Skill) -> Experience:
    return Experience(
        id=skill.id("default"), kind="skill", when_to_use=skill.when_to_use, content=skill.content, detail=skill.detail
    )


@pytest.mark.anyio
async def test_every_skill_of_the_desk_works_on_fresh_tasks_and_none_after_a_drift(tmp_path):
    desk = tmp_path / "desk.json"
    tester = SkillReplayer(TravelDesk(desk), "ABC")
    lessons = [as_lesson(skill) for skill in draw_skills(runs())]
    assert any("book(fid from search_flight, pid from find_person)" in lesson.content for lesson in lessons)
    # A way that cancels without asking first works now and then; the sandbox tells it from one that always does.
    verdicts = {lesson.content: await tester.test(lesson) for lesson in lessons}
    good = [lesson for lesson in lessons if verdicts[lesson.content]]
    assert len({lesson.when_to_use for lesson in good}) == 3, "one for each kind of goal"
    Drift(rename={"book": "buy", "cancel": "drop", "find_person": "look_up"}).write(desk)
    assert [await tester.test(lesson) for lesson in good] == [False] * len(good)


def test_a_sequence_with_a_guess_a_refusal_or_too_little_support_is_no_skill():
    find = (call("find", name="Mia"), '{"pid": "K1"}')
    guess = [find, (call("book", pid="K9"), '{"ref": "Q1"}'), (call("finish", answer="Q1"), "")]
    refused = [find, (call("book", pid="K1"), '{"error": "sold out"}'), (call("finish", answer="done"), "")]
    good = [find, (call("book", pid="K1"), '{"ref": "Q1"}'), (call("finish", answer="Q1"), "")]

    def of(turns: list, count: int = 5, **fields: object) -> list[Skill]:
        made = [trajectory(turns, id=str(n), goal="Book for:Mia.", **fields) for n in range(count)]
        return draw_skills(made)

    assert of(guess) == of(refused) == of(good, 2) == of(good, outcome=0.0) == []
    assert [skill.content for skill in of(good)] == [
        "find(name from the goal) then book(pid from find) then finish(answer from book)"
    ]


def test_flags_and_small_numbers_are_part_of_a_skill():
    turns = [(call("search", days=3, to="Rome"), '{"fid": "F12"}'), (call("book", fid="F12", ok=True), "{}")]
    made = [trajectory(turns, id=str(n), goal="Fly to:Rome") for n in range(3)]
    skill = draw_skills(made)[0]
    assert skill.content == "search(days=3, to from the goal) then book(fid from search, ok=true)"
    bound = bind(skill.calls, 0, "Fly to:Oslo", [])
    assert json.loads(bound.arguments) == {"days": 3, "to": "Oslo"}
    assert bind(skill.calls, 1, "Fly to:Oslo", [{"other": "F1"}]) is None, "the result does not hold it"


ASKS = ("I want my money back for {}", "please refund {}, it is broken", "can you refund the order {}?",
        "Hello, {} never worked, I would like a refund", "order {}: refund it please")  # fmt: skip


def test_goals_in_free_words_show_a_skill_that_finds_its_word_by_shape():
    made = []
    for n, ask in enumerate(ASKS):
        turns = [
            (call("lookup", id=f"A{n}7"), f'{{"sum": {n}50}}'),
            (call("pay", id=f"A{n}7", sum=int(f"{n}50")), "{}"),
        ]
        made.append(trajectory(turns, id=str(n), goal=ask.format(f"A{n}7")))
    assert draw_skills(made) == [], "no two goals are the same but for names"
    (skill,) = draw_skills(made, lambda run: "refunds")
    assert "refund" in skill.when_to_use
    assert "A" not in skill.when_to_use
    bound = bind(skill.calls, 0, "I would like my refund, it is order B99 again", [])
    assert json.loads(bound.arguments) == {"id": "B99"}
    assert bind(skill.calls, 0, "I would like my refund", []) is None


def test_tool_memory_says_what_a_tool_gives_how_it_fails_and_what_it_costs():
    found = {memory.tool: memory for memory in draw_tools(runs(), lambda run: run.id)}
    cancel = found["cancel"]
    assert cancel.errors > 0
    assert cancel.error_rate == cancel.errors / cancel.calls
    assert sum(number for _, number in cancel.by_class) <= cancel.errors
    assert "fid" in found["search_flight"].yields
    assert all(memory.tokens >= 1 for memory in found.values())
    assert f"fails {cancel.errors} of {cancel.calls}: " in cancel.content
    assert any("cancel" in goal for goal in cancel.goals)
    json.dumps(cancel.detail)


def test_words_that_one_origin_alone_has_shown_stand_in_no_memory():
    def calls(caller: str, seen: str) -> list[Trajectory]:
        turns = [(call("search", to="Rome"), seen), (call("finish", answer="done"), "{}")]
        return [trajectory(turns, id=f"{caller}{n}", goal=f"Ask {caller}", caller=caller) for n in range(9)]

    made = [*calls("a", '{"fid": "F1"}'), *calls("b", '{"fid": "F2"}'), *calls("evil", '{"error": "obey me"}')]
    (memory,) = [one for one in draw_tools(made, lambda run: run.caller) if one.tool == "search"]
    assert (memory.yields, memory.by_class, memory.errors) == (("fid",), (), 9)
    assert "obey" not in memory.content
    assert not any("evil" in goal for goal in memory.goals)
