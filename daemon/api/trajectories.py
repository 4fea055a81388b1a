"""The control API's part for trajectories: the list, and one with everything that is known of it.

GET  /api/trajectories      newest first, a page (?source, ?outcome, ?tenant, ?q, ?version, ?limit, ?after)
GET  /api/trajectories/ID   one: steps with credit and tokens, experience used, what was reported, and its lineage
"""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.messages import (
    Attributed,
    Attribution,
    Experience,
    StepLabel,
    TokenRow,
    Trajectory,
    floats_array,
    ids_array,
    steps_array,
)  # fmt: skip
from actors.store import Store, StoreUnavailable
from actors.store.browsing import MOST, SOURCES, Outcome, Wanted, browse
from actors.store.run_story import RunStory, run_story
from daemon.errors import OrderRefused

_SHOWN = 256
"""Log-probs of a step that are told one by one."""
_LESSONS = 100
_UNJUDGED = StepLabel("ABSTAIN", 0.0, "")


class TrajectoryApi:
    """The routes; who may use them, `daemon.api.admin` says."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/trajectories", self._list), Route("/api/trajectories/{id}", self._one)]

    async def _list(self, request: Request) -> Response:
        wanted = _wanted(request.query_params)
        try:
            runs, place = await self._store.ask(browse, wanted)
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        after = None if place is None else f"{place[0]!r}:{place[1]}"
        return _json({"trajectories": runs, "after": after})

    async def _one(self, request: Request) -> Response:
        key = request.path_params["id"]
        try:
            found = await self._store.trajectory(key)
            if found is None:
                return _error(404, f"no trajectory {key}; it may have been forgotten")
            run = found.trajectory if isinstance(found, Attributed) else found
            lessons = [await self._lesson(one) for one in run.experience_ids[:_LESSONS]]
            story = await self._store.ask(run_story, key)
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        if not isinstance(story, RunStory):
            return _error(404, f"no trajectory {key}; it was forgotten meanwhile")
        attribution = found.attribution if isinstance(found, Attributed) else None
        return _json(
            {
                "id": run.id, "source": run.source, "tenant": run.tenant, "goal": run.goal, "outcome": run.outcome,
                "started": run.started, "ended": run.ended, "closed_by": run.closed_by,
                "min_version": run.min_version, "version": run.max_version, "trainable": run.trainable,
                "why_not": run.why_not, "stitching": run.confidence, "continues": run.continues,
                "task_id": run.task_id, "group": run.group, "origin": run.origin,
                "cluster": found.cluster if isinstance(found, Attributed) else "",
                "judged": None if attribution is None else _judged(attribution),
                "handoffs": run.handoffs,
                "experience": lessons,
                "feedback": [
                    {"at": said.received, "kind": said.kind, "outcome": said.outcome, "text": said.text}
                    for said in story.reports
                ],
                "steps": _steps(run, attribution),
                "lineage": {"came": story.came, "batch": story.order},
            }
        )  # fmt: skip

    async def _lesson(self, key: str) -> dict[str, Any]:
        revisions = await self._store.revisions_of(key)
        last: Experience | None = revisions[0] if revisions else None
        if last is None:
            return {"id": key, "known": False}
        return {"id": key, "known": True, "when_to_use": last.when_to_use, "content": last.content, "state": last.state}


def _judged(attribution: Attribution) -> dict[str, Any]:
    return {
        "judge": attribution.judge, "rubric": attribution.rubric, "weight": attribution.weight,
        "tokens": attribution.tokens, "cost": attribution.cost,
    }  # fmt: skip


def _steps(run: Trajectory, attribution: Attribution | None) -> list[dict[str, Any]]:
    labels: Sequence[StepLabel] = () if attribution is None else attribution.labels
    told: list[dict[str, Any]] = []
    for number, step in enumerate(run.steps):
        label = labels[number] if number < len(labels) else _UNJUDGED
        row = run.rows[step.row] if 0 <= step.row < len(run.rows) else None
        told.append(
            {
                **({"role": step.role} if run.handoffs else {}),
                "exchange_id": step.exchange_id,
                "text": step.text,
                "calls": [{"name": call.name, "arguments": call.arguments} for call in step.tool_calls],
                "observation": step.observation,
                "label": label.label,
                "confidence": label.confidence,
                "reason": label.reason,
                "tokens": None if row is None else tokens_of(row, number),
            }
        )
    return told


def tokens_of(row: TokenRow, step: int) -> dict[str, Any] | None:
    """The tokens in `row` that `step` sampled: how many, by which versions, and their log-probs in nats; None if the
    row's columns do not fit each other."""
    try:
        steps, logprobs, versions = steps_array(row.step), floats_array(row.logprobs), ids_array(row.versions)
    except ValueError:
        return None
    if not len(steps) == len(logprobs) == len(versions):
        return None
    own = steps == step
    values = logprobs[own].astype(np.float64)
    finite = values[np.isfinite(values)]
    return {
        "sampled": int(own.sum()),
        "row": len(steps),
        "experience": max(0, row.hint[1] - row.hint[0]),
        "versions": [int(version) for version in np.unique(versions[own])],
        "temperature": row.temperature,
        "mean_logprob": float(finite.mean()) if finite.size else None,
        "least_logprob": float(finite.min()) if finite.size else None,
        "logprobs": [round(float(value), 4) for value in finite[:_SHOWN]],
    }


def _wanted(given: Mapping[str, str]) -> Wanted:
    """
    Raises:
        OrderRefused: 422.
    """
    source, outcome = given.get("source", ""), given.get("outcome", "")
    if source and source not in SOURCES:
        raise OrderRefused(422, f"no source {source[:40]!r}; there are {', '.join(SOURCES)}")
    if outcome not in get_args(Outcome):
        raise OrderRefused(422, f"no outcome {outcome[:40]!r}; there are success, failure and unknown")
    version = given.get("version", "")
    return Wanted(
        source=source, outcome=outcome, tenant=given.get("tenant", ""), words=given.get("q", ""),  # type: ignore[arg-type]  # checked above
        version=_number(version, "version", 0) if version else None,
        limit=min(MOST, _number(given.get("limit", "25"), "limit", 1)), after=_after(given.get("after", "")),
    )  # fmt: skip


def _number(text: str, name: str, least: int) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) < least:
        raise OrderRefused(422, f"{name} is {text[:40]!r}; give a number from {least} on")
    return int(text)


def _after(text: str) -> tuple[float, str] | None:
    if not text:
        return None
    ended, colon, key = text.partition(":")
    try:
        place = float(ended)
    except ValueError:
        place = float("nan")
    if not colon or not np.isfinite(place):
        raise OrderRefused(422, f"after is {text[:60]!r}; give what the page before said in its `after`")
    return place, key


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)
