"""Which held-out runs the gate looks at: those of every agent of today, and of every party.

A group is an agent as far as it can be told: a tenant's tool list. The store fetches as many of the newest runs of
every party as there is room for (`parties.newest`); for prompts and tokens the groups then take turns, so that an agent
that is rarely asked is looked at too. A group is of today if it has a run among the newest: an agent that is gone
decides nothing.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from actors.messages import Attributed, Trajectory, floats_array
from actors.statistics.parties import in_turn, newest, party_of, thinned
from actors.store import Store
from actors.tool_results.runs import tool_names

_TODAY = 256
"""Newest held-out runs whose groups are those of today: one with a run in a hundred is so in nine cases of ten."""

_MAX_BYTES = 4 * 8192
"""Of a run's token ids, four bytes each: one that is longer takes as long to score as all others."""

Group = tuple[str, tuple[str, ...]]
"""Tenant and names of the tools."""


class HeldOut(msgspec.Struct, frozen=True):
    """A held-out run, with whose it is."""

    run: Trajectory
    group: Group
    party: str


async def reported_runs(store: Store, most: int) -> list[HeldOut]:
    """The newest runs with an outcome and usable tokens, of groups of today, thinned to each party's share, the newest
    first."""
    today = {one.group for one in _known(await store.exam(reported=False, limit=_TODAY))}
    found = _known(await store.exam(reported=True, limit=most))
    usable = [one for one in found if one.group in today and _usable(one.run)]
    return [usable[place] for place in thinned([one.party for one in usable])]


async def recent_runs(store: Store) -> list[HeldOut]:
    """The newest runs, with an outcome or without, the newest of every group first."""
    runs = _known(await store.exam(reported=False, limit=_TODAY))
    return [runs[place] for place in in_turn([one.group for one in runs])]


async def short_runs(store: Store, most: int) -> list[HeldOut]:
    """So many recent runs with tokens, of all groups and parties in turn."""
    runs = [one for one in await recent_runs(store) if 0 < sum(len(row.ids) for row in one.run.rows) <= _MAX_BYTES]
    return [runs[place] for place in newest([one.party for one in runs], most, len(runs))]


def _known(found: Sequence[Attributed]) -> list[HeldOut]:
    # Agents send the same list again and again: read once.
    names = {tools: tool_names(tools) for tools in {item.trajectory.tools for item in found}}
    runs = [item.trajectory for item in found]
    return [HeldOut(run, (run.tenant, names[run.tools]), party_of(run.tenant, run.caller)) for run in runs]


def _usable(run: Trajectory) -> bool:
    """Whether the tokens stand in prompts that the candidate would see, and are those of every step: how likely the
    candidate makes a run is not known of a part of it."""
    if not run.rows or run.experience_ids or not run.trainable or any(step.why_not for step in run.steps):
        return False
    return all(
        row.hint[0] == row.hint[1] and not row.redacted and np.isfinite(floats_array(row.logprobs)).all()
        for row in run.rows
    )
