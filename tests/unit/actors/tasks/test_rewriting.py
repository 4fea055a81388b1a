"""Tasks told more openly."""

import msgspec

from actors.messages import Task
from actors.ports.reference_calls import ReferenceCall, SyntheticTaskSpec
from actors.tasks.rewriting import easier

CALLS = (ReferenceCall("find_person", {"name": "Mia"}), ReferenceCall("finish", {"answer": "Z1"}))
SPEC = SyntheticTaskSpec(
    base={"seed": 1}, base_goal="Book a flight.", reference=CALLS, verifier="state", environment="travel",
    made_from=("run-1",),
)  # fmt: skip


def test_first_the_tools_are_told_then_the_calls_then_there_is_nothing_left_to_tell() -> None:
    spec = msgspec.to_builtins(SPEC)
    plain = Task(id="t", goal="Get them there.", environment="travel", origin="production", spec=spec)
    one = easier(plain)
    two = easier(one)
    assert one.goal == "Get them there.\n(It takes find_person, then finish.)"
    assert two.goal == 'Get them there.\n(It takes find_person {"name":"Mia"}, then finish {"answer":"Z1"}.)'
    assert easier(two) is None
    assert one.spec == {**spec, "told": 1}, "its world, reference and verifier are the plain one's"
    assert len({plain.id, one.id, two.id}) == 3
    assert plain.difficulty > one.difficulty > two.difficulty
