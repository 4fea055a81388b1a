"""The demo's own count: the response ids that the agents saw against the rows of the store.

Nothing here asks evolved how it thinks it did: the agents' journal is one side, a plain SQL query the other.
"""

import json
from collections import Counter
from pathlib import Path

import msgspec

from actors.messages import AnyMessage, Attributed, Trajectory, decode
from actors.store.archive import ask

_STORED = "SELECT response_id FROM exchanges WHERE response_id <> ''"
_RUNS = "SELECT body, outcome FROM trajectories WHERE source = 'production'"


class Accounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the agents saw and what the store has of it."""

    requests: int
    """Responses that the agents got."""
    failed: int
    """Calls that ended in an error for the agent."""
    lost: int
    """Response ids that an agent saw and the store does not have."""
    missing: tuple[str, ...] = ()
    """The first ten of them, to be looked for in the spool and the logs."""
    doubled: int
    """Response ids that stand in the store more than once, or in more than one trajectory."""
    episodes: int
    reported: int
    """Episodes whose outcome the agents told evolved."""
    outcomes: int
    """Episodes whose outcome reached a trajectory of the store."""
    feedback_failed: int


def read_journal(path: Path) -> list[dict[str, object]]:
    """The lines of the agents' journal; a last line that was torn by a kill is left out."""
    events: list[dict[str, object]] = []
    if not path.exists():
        return events
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def settle(journal: Path, store_url: str) -> Accounts:
    """Compare the journal with the store, read-only."""
    events = read_journal(journal)
    seen = {str(event["id"]) for event in events if event["event"] == "response"}
    ids, bodies = (
        ask(store_url, lambda connection, query=query: connection.exec_driver_sql(query).all())
        for query in (_STORED, _RUNS)
    )
    stored = Counter(row[0] for row in ids)
    rows = [(body, outcome) for body, outcome in bodies]
    runs = [trajectory_of(decode(body)) for body, _ in rows]
    steps = Counter(step.response_id for run in runs for step in run.steps)
    return Accounts(
        requests=len(seen),
        failed=sum(event["event"] == "failed" for event in events),
        lost=len(lost := sorted(seen - stored.keys())),
        missing=tuple(lost[:10]),
        doubled=sum(stored[key] > 1 or steps[key] > 1 for key in seen),
        episodes=sum(event["event"] == "episode" for event in events),
        reported=sum(event["event"] == "feedback" for event in events),
        outcomes=sum(outcome is not None for _, outcome in rows),
        feedback_failed=sum(event["event"] == "feedback_failed" for event in events),
    )


def trajectory_of(message: AnyMessage) -> Trajectory:
    """The trajectory in a row of the store, attributed or not yet."""
    if isinstance(message, Attributed):
        return message.trajectory
    if isinstance(message, Trajectory):
        return message
    raise TypeError(f"a trajectories row holds a {type(message).__name__}")
