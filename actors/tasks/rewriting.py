"""Rewriting a task to another difficulty: the same world, reference and verifier, told more openly.

A task at which every attempt fails teaches nothing, however good it is. Told which calls it takes, and then with what,
some attempts succeed and others do not; the plain task waits and comes back when the policy may have come that far.
"""

import re

import msgspec

from actors.messages import Task, derived_id
from actors.ports.errors import EnvironmentFailed
from actors.tasks.reference_calls import ReferenceCall, SyntheticTaskSpec

MOST = 2
"""How often a goal is told more openly: the tools, then the calls."""
_HINT = re.compile(r"\n\(It takes .*\)\Z", re.S)
_MAX_CALL = 200
"""Characters of one call in a goal."""


def easier(task: Task) -> Task | None:
    """`task` told one step more openly; None where there is no reference to tell of, or nothing left to tell."""
    try:
        spec = SyntheticTaskSpec.of(task)
    except EnvironmentFailed:
        return None  # it is no task at all; whoever plays it says so
    if spec is None or not spec.reference or spec.told >= MOST:
        return None
    told = spec.told + 1
    calls = [_call(call) if told == MOST else call.name for call in spec.reference]
    goal = f"{_HINT.sub('', task.goal)}\n(It takes {', then '.join(calls)}.)"
    after = msgspec.structs.replace(spec, told=told)
    return msgspec.structs.replace(
        task,
        id=derived_id("easier", task.id),
        goal=goal,
        spec=msgspec.to_builtins(after),
        difficulty=task.difficulty / 2,
    )


def _call(call: ReferenceCall) -> str:
    arguments = msgspec.json.encode(call.arguments).decode()
    return f"{call.name} {arguments}" if len(arguments) <= _MAX_CALL else call.name
