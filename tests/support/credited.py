"""Attributed trajectories with the fields that selection looks at."""

from typing import Any

from actors.messages import Attributed, Attribution, Candidate, Step, StepLabel, Trajectory


def attributed(key: str, *, cluster: str = "c", **fields: Any) -> Attributed:
    """One step, outcome 1, sampled by version 0, from production unless `fields` say otherwise."""
    values: dict[str, Any] = {
        "id": key, "goal": f"goal {key}", "steps": (Step(exchange_id=f"x-{key}", response_id=f"r-{key}"),),
        "outcome": 1.0, "started": 1.0, "ended": 2.0, "min_version": 0,
        "max_version": fields.get("min_version", 0),
    }  # fmt: skip
    run = Trajectory(**{**values, **fields})
    labels = tuple(StepLabel("GOOD") for _ in run.steps)
    return Attributed(
        id=key, trajectory=run, attribution=Attribution(labels=labels, judge="j", rubric="r"), cluster=cluster
    )


def group(name: str, outcomes: list[float | None], **fields: Any) -> list[Attributed]:
    """A sandbox group with one attempt for each of `outcomes`."""
    return [
        attributed(f"{name}-{number}", source="sandbox", group=name, outcome=outcome, **fields)
        for number, outcome in enumerate(outcomes)
    ]


def candidate(version: int, **fields: Any) -> Candidate:
    """What the learner made of the version before, without files."""
    values: dict[str, Any] = {"id": f"v{version}", "parent": version - 1, "path": "", "files": (), "manifest": ""}
    return Candidate(version=version, **{**values, **fields})
