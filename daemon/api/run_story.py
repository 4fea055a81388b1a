"""The control API's part for one run, and `evolved why RUN` in words: what was reported, and what came of it.

GET  /api/why/NAME      a run, by its id, a call's, a response's, an id of its caller's, or a report's
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.store import Store, StoreUnavailable
from actors.store.agents import LEARNED
from actors.store.outcomes import CORRECTIONS
from actors.store.run_story import Report, RunStory, run_story
from actors.store.stories import Order
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
_USES = {
    "curator": "weighs in what is known of its kind of goal",
    "experiencer": "is contrasted with others for lessons",
    "failures": "was taken up as a failure, to make tasks of its kind",
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
            found = await self._store.ask(run_story, name)
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        if not isinstance(found, RunStory):
            return _error(404, unknown(name, found))
        return Response(msgspec.json.encode(found), media_type="application/json")


def unknown(name: str, found: str | None) -> str:
    """Why there is nothing to tell."""
    if found is not None:
        return (
            f"{name[:80]!r}: its run is still open, or was never seen; a run closes on final feedback or "
            "runs.idle_minutes after its last call"
        )
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
    if story.why_not:
        told.append(f"           its tokens cannot be trained on: {story.why_not}")
    if story.cut_off:
        told.append(f"           not trained on: its last answer was {_CUT[story.cut_off]}, and its outcome is neither")
        told.append("           reported nor verified by an execution")
    told += [f"outcome    {_outcome(story)}", *(f"           {one}" for one in _came(story))]
    told += [_report(report, story.ended) for report in story.reports]
    for name, items in (("lessons", story.lessons), ("tasks", story.tasks)):
        if items:
            told.append(f"{name:<10} that name it as a source: {', '.join(items)}")
    return told


def _outcome(story: RunStory) -> str:
    if story.outcome is None:
        return "nobody has said yet how it went"
    if story.source != "production":
        return f"{story.outcome:g}, measured where it was played; nobody reports those"
    number = f"correction {story.revision}: " if story.revision else ""
    when_told = "when it closed" if story.told is None else f"{when(story.told)} UTC, {_late(story.told, story.ended)}"
    return f"{number}{story.outcome:g}, reported {when_told}"


def _came(story: RunStory) -> list[str]:
    """What became of the run in training, and of its outcome elsewhere."""
    told: list[str] = []
    order = story.order
    if story.guessed is not None:
        told.append(f"ordered with a provisional outcome of {story.guessed:.2f}: nobody had reported it")
    if order is not None:
        told.append(_in_order(story, order))
        if story.told is not None and story.told > (order.created or 0.0):
            told.append("reported when it was in that order: it is not trained on again")
    elif story.came == "held out":
        told.append("is evidence of the gate, and so never trained on")
    elif story.came:
        late = story.came == "no outcome" and story.outcome is not None
        told.append(f"not trained on: {'its outcome came too late' if late else story.came}")
    else:
        told.append("may still be trained on" if story.attributed else "waits for its credit before it is trained on")
    return [*told, *(words for actor, words in _USES.items() if actor in story.used)]


def _in_order(story: RunStory, order: Order) -> str:
    if not story.came:
        return f"in order {order.batch_id}, which the learner has not answered yet"
    if story.came != LEARNED:
        return f"not trained on: {story.came} (order {order.batch_id})"
    into = ", ".join(f"v{line.version}" for line in order.versions)
    return f"trained into {into}, by order {order.batch_id}"


def _report(report: Report, ended: float) -> str:
    about = "words alone" if report.outcome is None else f"{report.outcome:g}"
    if report.kind == "step" or report.step is not None:
        about += f" of {'one step' if report.step is None else f'step {report.step}'}"
    did = f", {_WORDS[report.did]}" if report.did in _WORDS else ""
    late = _late(report.received, ended)
    return f"report     {report.id}, {when(report.received)} UTC, {late}: {report.kind}, {about}{did}"


def _late(at: float, ended: float) -> str:
    seconds = max(0.0, at - ended)
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} after its end"
    return f"{seconds:.0f} seconds after its end"


def told(story: RunStory) -> dict[str, Any]:
    """`story` as JSON knows it."""
    return dict(msgspec.to_builtins(story))


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)
