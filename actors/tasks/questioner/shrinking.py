"""Shortest references: calls are left out as long as what is left still does it, each time in a fresh instance.

Delta debugging (Zeller and Hildebrandt 2002) with one more condition: no value may be used that nobody has told or
found, or the shortest way to close with a record's number would be to know it.
"""

from collections.abc import Callable, Sequence

from actors.messages import Task
from actors.tasks.questioner.instance_pool import Execution, InstancePool, Made
from actors.tasks.questioner.programs import program_of
from actors.tasks.questioner.values import leaves


async def shrink(
    instances: InstancePool, base: Task, made: Sequence[Made], keeps: Callable[[Execution], bool]
) -> Execution | None:
    """The execution of as few of `made` as do it; the last one always stays.

    Args:
        keeps: whether an execution still does what it should.

    Returns:
        None if not even all of them do it again.

    Raises:
        WorldLost, BudgetSpent, NotProbeable
    """
    made = [one for one in made if not one.refused]
    # What the last call's values come from is tried first: usually nothing else is needed.
    ancestors = _ancestors(made)
    found = await _try(instances, base, ancestors, keeps)
    if found is not None:
        made = ancestors
    else:
        found = await _try(instances, base, made, keeps)
        if found is None:
            return None
    size = max(1, (len(made) - 1) // 2)
    while True:
        start, before = 0, len(made)
        while start < len(made) - 1:
            fewer = [one for at, one in enumerate(made) if not start <= at < min(start + size, len(made) - 1)]
            shorter = await _try(instances, base, fewer, keeps) if _knowable(made, fewer) else None
            if shorter is None:
                start += size
            else:
                made, found = fewer, shorter
        if size == 1 and len(made) == before:
            # A whole pass left nothing out: each call that is left is needed.
            return found
        size = max(1, size // 2)


async def missing_step(instances: InstancePool, base: Task, made: Sequence[Made], without: int) -> str:
    """The tool that is refused if call number `without` of a shortest reference is left out; empty if none is.

    Raises:
        WorldLost, BudgetSpent, NotProbeable
    """
    calls = [one.call for at, one in enumerate(made) if at != without]
    execution = await instances.execute(base, calls)
    return next((one.call.name for one in execution.made if one.refused), "")


async def _try(
    instances: InstancePool, base: Task, made: Sequence[Made], keeps: Callable[[Execution], bool]
) -> Execution | None:
    execution = await instances.execute(base, [one.call for one in made])
    whole = len(execution.made) == len(made) and execution.clean
    return execution if whole and keeps(execution) else None


def _ancestors(made: Sequence[Made]) -> list[Made]:
    program = program_of(made)
    needed, open_ = {len(made) - 1}, [len(made) - 1]
    while open_:
        for one in program.operations[open_.pop()].arguments:
            if one.origin >= 0 and one.origin not in needed:
                needed.add(one.origin)
                open_.append(one.origin)
    return [one for at, one in enumerate(made) if at in needed]


def _knowable(made: Sequence[Made], fewer: Sequence[Made]) -> bool:
    """Whether each value that was a result is still one."""
    program = program_of(made)
    number = {id(one): at for at, one in enumerate(made)}
    seen: set[tuple[type, object]] = set()
    for one in fewer:
        for argument in program.operations[number[id(one)]].arguments:
            if argument.origin >= 0 and (type(argument.value), argument.value) not in seen:
                return False
        seen |= {(type(leaf.value), leaf.value) for leaf in leaves(one.answer)}
    return True
