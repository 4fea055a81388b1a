"""The control API's part for policy versions: what `evolved history` and `evolved why` tell, for the dashboard.

GET  /api/versions      every version, newest first: parent, verdict, where it served, what went wrong (?limit)
GET  /api/versions/N    one: its line, batches, the learner's figures, every measurement, signatures, swaps

Digests of the weights are not looked at here, since that reads all of them: `evolved why N` does.
"""

from pathlib import Path
from typing import Any

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from actors.messages import MANIFEST, Serving, Verdict
from actors.messages.signing import PublicKeys, record_problem
from actors.store import Store, StoreUnavailable
from actors.store.stories import Version, history, numbers, why
from daemon.errors import OrderRefused

_MOST = 500
_HEADLINES = (
    "success", "low", "high", "tasks", "incumbent_success", "incumbent_difference", "incumbent_low", "incumbent_high",
)  # fmt: skip
"""Measurements that the list shows; there may be a hundred."""


class VersionApi:
    """The routes; who may use them, `daemon.api.admin` says."""

    def __init__(self, store: Store, keys: PublicKeys, versions: Path) -> None:
        """
        Args:
            keys: that verdicts must be signed with.
            versions: directory of the weights.
        """
        self._store, self._keys, self._versions = store, keys, versions

    def routes(self) -> list[Route]:
        """To be put among the control API's."""
        return [Route("/api/versions", self._list), Route("/api/versions/{version}", self._one)]

    async def _list(self, request: Request) -> Response:
        given = request.query_params.get("limit", "50")
        if not given.isascii() or not given.isdecimal() or len(given) > 18 or int(given) < 1:
            raise OrderRefused(422, f"limit is {given[:40]!r}; give a number from 1 on")
        limit = min(_MOST, int(given))
        try:
            found, known = await self._store.ask(lambda c: (history(c, limit), numbers(c)))
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        newest = [self._line(item) for item in reversed(found)]
        return _json({"versions": newest, "all": len(known)})

    def _line(self, item: Version) -> dict[str, Any]:
        last = item.verdicts[-1] if item.verdicts else None
        return {
            "version": item.version, "parent": item.parent, "trained": item.trained,
            "verdict": None if last is None else {
                **self._verdict(last),
                "measurements": {name: last.measurements[name] for name in _HEADLINES if name in last.measurements},
            },
            "served": item.served, "setbacks": item.setbacks, "swaps": [_swap(one) for one in item.swaps],
        }  # fmt: skip

    async def _one(self, request: Request) -> Response:
        given = request.path_params["version"]
        if not given.isascii() or not given.isdecimal() or len(given) > 9:
            return _error(404, f"no version {given[:40]!r}; versions are numbers")
        version = int(given)
        try:
            found = await self._store.ask(why, version)
        except StoreUnavailable as error:
            return _error(503, f"the store is away: {error}")
        if found is None:
            return _error(404, f"no version {version} in the store; `evolved history` lists them")
        item, candidate = found.history, found.candidate
        manifest = self._versions / f"v{version:06d}" / MANIFEST
        on_disk = await anyio.to_thread.run_sync(manifest.is_file)
        return _json(
            {
                "version": item.version, "parent": item.parent, "trained": item.trained,
                "manifest": item.manifest, "on_disk": on_disk,
                "verdicts": [self._verdict(verdict) for verdict in reversed(item.verdicts)],
                "served": item.served, "setbacks": item.setbacks,
                "swaps": [_swap(one) for one in item.swaps],
                "line": found.line,
                "batches": found.batches,
                "metrics": {} if candidate is None else candidate.metrics,
                "files": [] if candidate is None else candidate.files,
            }
        )  # fmt: skip

    def _verdict(self, verdict: Verdict) -> dict[str, Any]:
        return {
            "decision": verdict.decision, "reason": verdict.reason, "incumbent": verdict.incumbent,
            "created": verdict.created, "measurements": verdict.measurements,
            "signature_problem": record_problem(verdict, self._keys),
        }  # fmt: skip


def _swap(one: Serving) -> dict[str, Any]:
    return {
        "engine": one.engine, "result": one.result, "at": one.since, "previous": one.previous,
        "paused_seconds": one.paused_seconds, "total_seconds": one.total_seconds, "reason": one.reason,
    }  # fmt: skip


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)
