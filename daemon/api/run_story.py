"""The control API's part for one run, and `evolved why RUN` in words: what was reported, and what it came to.

GET  /api/why/NAME      a run, by its id, a call's, a response's, an id of its caller's, or a report's
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.store import Store, StoreUnavailable
from actors.store.outcomes import CORRECTIONS, NONE, ORDERED, PROVISIONAL, TRAINED
from actors.store.run_story import Came, Next, Report, Revision, RunStory, StillOpen, run_story
from daemon.api.why import when

_WORDS = {
    "told": "was the first word on the run",
    "correction": "corrected it",
    "equal": "said the same again",
    "outdated": "came after a newer one had, and changed nothing",
    "not_final": "is an opinion or not final, and does not correct an outcome",
    "capped": f"changed nothing: a run's outcome is corrected {CORRECTIONS} times at most",
    "not_a_number": "is not a number, and changed nothing",
}
_CUT = {"length": "cut off at a limit of tokens", "context": "the last that fitted into the context"}
_EFFECTS = {
    ("kinds", "weighs"): "weighs in what is known of its kind of goal",
    ("lessons", "window"): "is contrasted with others for lessons",
    ("tasks", "urged"): "raised the weight of its kind of task in the sandbox",
    ("tasks", "own"): "had the environment's own tasks of its kind offered",
    ("tasks", "made"): "had tasks made of it",
    ("gate", "exam"): "is evidence of the gate, and so never trained on",
}


class RunStoryApi:
    """The route; who may use it, `daemon.api.admin` says."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/why/{name}", self._one)]

    async def _one(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            found = await self._store.ask(lambda connection: run_story(connection, name))
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        if not isinstance(found, RunStory):
            return _error(404, unknown(name, found))
        return Response(msgspec.json.encode(found), media_type="application/json")


def unknown(name: str, found: StillOpen | None) -> str:
    """Why there is nothing to tell."""
    if found is not None:
        return f"{name[:80]!r}: {found.what}; a run closes on final feedback or runs.idle_minutes after its last call"
    return (
        f"no run {name[:80]!r} in the store; name it by its id (dashboard, export), a response's or call's, your own "
        "(x-evolved-id, x-evolved-trajectory), or a report's"
    )


def lines(story: RunStory) -> list[str]:
    """`story` for people."""
    versions = f"v{story.min_version}" + (f" to v{story.max_version}" if story.max_version > story.min_version else "")
    told = [
        f"run        {story.trajectory_id}, {story.source}, {when(story.started)} to {when(story.ended)} UTC, "
        f"closed by {story.closed_by}",
        f"of         {story.party}, sampled by {versions if story.min_version >= 0 else 'unknown weights'}",
    ]
    if story.others:
        told.append(f"           {story.others} older runs have that name too")
    if story.side_of:
        told.append(f"           beside the main line of {story.side_of}: nothing learns from it")
    if story.why_not:
        told.append(f"           its tokens cannot be trained on: {story.why_not}")
    if story.cut_off:
        told.append(f"           not trained on: its last answer was {_CUT[story.cut_off]}, and its outcome is neither")
        told.append("           reported nor verified by an execution")
    if not story.revisions:
        told.append(f"outcome    {_without(story)}")
    for revision in story.revisions:
        told += _revision(revision, story)
    for report in story.reports:
        told.append(_report(report))
    if story.next is not None:
        told += _next(story.next)
    for name, items in (("lessons", story.lessons), ("tasks", story.tasks)):
        if items:
            told.append(f"{name:<10} that name it as a source: {', '.join(items)}")
    return told


def _next(found: Next) -> list[str]:
    """What happened next, and what it did."""
    said = [
        f"{name.replace('_', ' ')} ({'well' if value > 0 else 'badly'}"
        f"{', not listened to' if name in found.quarantined else ''})"
        for name, value in found.signals.items()
    ]
    told = [f"next       {', '.join(said) or 'nothing that a signal can read'}"]
    if found.chance is None:
        return [*told, "           there is no outcome model yet: it takes 30 reported outcomes"]
    counts = (
        f"counts by {found.weight:.2f} where nobody reports"
        if found.weight
        else "does not count: its skill is not sure"
    )
    return [*told, f"           model {found.model} gives it a chance of {found.chance:.2f}, which {counts}"]


def _without(story: RunStory) -> str:
    if story.source != "production":
        return "measured where it was played; nobody reports those"
    return "nobody has said yet how it went" + (f", and it was dropped: {story.dropped}" if story.dropped else "")


def _revision(revision: Revision, story: RunStory) -> list[str]:
    late = "when it closed" if revision.late is None else f"{_ago(revision.late)} after its end"
    number = f"correction {revision.revision}: " if revision.revision else ""
    if revision.rank == PROVISIONAL:
        late = "when it was ordered; nobody had reported it"
    by = f" by report {revision.feedback_id}" if revision.feedback_id else ""
    told = [f"outcome    {number}{revision.outcome:g}, {revision.rank} {when(revision.received)} UTC, {late}{by}"]
    told += [f"           {_came(one)}" for one in revision.effects]
    if not any(one.channel == "training" for one in revision.effects):
        told.append(f"           {_waits(revision, story)}")
    return told


def _waits(revision: Revision, story: RunStory) -> str:
    if not story.attributed:
        return "waits for its credit before it can be trained on"
    if revision.revision and story.orders:
        return "waits to be trained on with the difference, while its run is fresh"
    return "may still be trained on"


def _came(one: Came) -> str:
    if one.channel == "training":
        if one.effect == TRAINED:
            return f"trained into v{one.version}, by order {one.order_id}"
        if one.effect == ORDERED:
            return f"in order {one.order_id}, which the learner has not answered yet"
        where = f" (order {one.order_id})" if one.order_id else ""
        return f"not trained on: {one.detail}{where}"
    if one.effect == NONE:
        return f"without effect on {one.channel}: {one.detail}"
    return _EFFECTS.get((one.channel, one.effect), f"{one.channel}: {one.effect}")


def _report(report: Report) -> str:
    about = "words alone" if report.outcome is None else f"{report.outcome:g}"
    if report.kind == "step" or report.step is not None:
        about += f" of {'one step' if report.step is None else f'step {report.step}'}"
    did = f", {_WORDS[report.did]}" if report.did in _WORDS else ""
    return f"report     {report.id}, {when(report.received)} UTC: {report.kind}, {about}{did}"


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def told(story: RunStory) -> dict[str, Any]:
    """`story` as JSON knows it."""
    return dict(msgspec.to_builtins(story))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)
