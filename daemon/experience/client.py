"""The experience pool from a program: `ExperienceClient`. It blocks: async programs call it in a thread.

    with ExperienceClient.from_environment() as pool:
        for found in pool.search("book a flight to Oslo", tenant="acme"):
            print(found["score"], found["lesson"]["when_to_use"], found["lesson"]["content"])

Needs httpx alone, and a daemon whose control API it can reach. Answers are dictionaries as in the control API
(`daemon.api.experience`). Every call has a deadline; none is repeated here.
"""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import httpx

from daemon.errors import ControlUnreachable, OrderRefused
from daemon.settings.secret import secret

URL, KEY, KEY_FILE, TENANT = "EVOLVED_URL", "EVOLVED_KEY", "EVOLVED_KEY_FILE", "EVOLVED_TENANT"
"""Environment: the control API's address, an admin key or the file that holds it, and whose experience."""
DEFAULT_URL = "http://127.0.0.1:8090"
_BASE = "/api/experience"


class Call(NamedTuple):
    """A request to the control API."""

    method: str
    path: str
    params: Mapping[str, str] = {}
    body: Mapping[str, Any] | None = None
    timeout: float | None = None
    """Seconds, if not the client's."""


def listing(*, tenant: str = "", state: str = "", kind: str = "", q: str = "", limit: int = 100) -> Call:
    """Lessons, last changed first."""
    given = {"tenant": tenant, "state": state, "kind": kind, "q": q}
    return Call("GET", _BASE, {name: value for name, value in given.items() if value} | {"limit": str(limit)})


def lesson(experience_id: str) -> Call:
    """One lesson with its revisions and sources."""
    return Call("GET", f"{_BASE}/{quote(experience_id, safe='')}")


def searching(text: str, *, tenant: str, k: int, kinds: Sequence[str] | None, states: Sequence[str] | None) -> Call:
    """Lessons that fit `text`."""
    body = {"text": text, "tenant": tenant, "k": k, "kinds": kinds, "states": states}
    return Call("POST", f"{_BASE}/search", body=body)


def changing(experience_id: str, change: str, reason: str) -> Call:
    """Activate, retire or release a lesson."""
    path = f"{_BASE}/{quote(experience_id, safe='')}/state"
    return Call("POST", path, body={"change": change, "reason": reason})


def connection_from_environment() -> tuple[str, str]:
    """URL and admin key, the latter empty if none is given.

    Raises:
        ConfigError: a key file that cannot be read.
    """
    key, path = os.environ.get(KEY, "").strip(), os.environ.get(KEY_FILE, "").strip()
    key = key or secret(path, KEY_FILE, "give a file that holds an admin key alone")
    return os.environ.get(URL, "").strip() or DEFAULT_URL, key


class ExperienceClient:
    """The pool at the control API's `url`, with an admin key if there is one.

    Every method may raise `ControlUnreachable` (nobody answers in time) and `OrderRefused` (what was asked cannot be
    done; `status` is the HTTP status, 503 means that it can a little later).
    """

    def __init__(
        self, url: str = DEFAULT_URL, key: str = "", timeout: float = 10.0, *, client: httpx.Client | None = None
    ) -> None:
        self.url, self._timeout = url.rstrip("/"), timeout
        self._headers = {"x-evolved-key": key} if key else {}
        self._client = client or httpx.Client()

    @classmethod
    def from_environment(cls, *, timeout: float = 10.0) -> Self:
        """Connected as EVOLVED_URL and EVOLVED_KEY (or EVOLVED_KEY_FILE) say.

        Raises:
            ConfigError: a key file that cannot be read.
        """
        return cls(*connection_from_environment(), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def call(self, call: Call) -> Any:
        """The answer to `call`: what JSON says, or text."""
        try:
            answer = self._client.request(**self._request(call), headers=self._headers)
        except httpx.HTTPError as error:
            raise self._away(error) from error
        return self._answer(answer)

    def search(
        self,
        text: str,
        *,
        tenant: str = "default",
        k: int = 5,
        kinds: Sequence[str] | None = None,
        states: Sequence[str] | None = ("active",),
    ) -> list[dict[str, Any]]:
        """Lessons that fit `text`, best first: each {"lesson": {...}, "score": ...}.

        Args:
            kinds: of these alone.
            states: in these alone; None for any.
        """
        return list(self.call(searching(text, tenant=tenant, k=k, kinds=kinds, states=states)))

    def lesson(self, experience_id: str) -> dict[str, Any]:
        """One lesson with its revisions and sources."""
        return dict(self.call(lesson(experience_id)))

    def lessons(self, **filters: Any) -> list[dict[str, Any]]:
        """Lessons, last changed first; `tenant`, `state`, `kind`, `q` and `limit` narrow it."""
        return list(self.call(listing(**filters)))

    def _request(self, call: Call) -> dict[str, Any]:
        given: dict[str, Any] = {"method": call.method, "url": self.url + call.path, "params": dict(call.params)}
        given |= {"timeout": call.timeout or self._timeout}
        return given | ({"json": dict(call.body)} if call.body is not None else {})

    def _away(self, error: Exception) -> ControlUnreachable:
        return ControlUnreachable(
            f"no daemon at {self.url} ({error}); start it with `evolved run`, or name its address in {URL}"
        )

    def _answer(self, answer: httpx.Response) -> Any:
        """
        Raises:
            OrderRefused: with the status and what the daemon says.
            ControlUnreachable: that was no daemon.
        """
        if answer.is_success:
            if answer.headers.get("content-type", "").split(";")[0] != "application/json":
                return answer.text
            try:
                return answer.json()
            except ValueError as error:
                raise self._away(error) from error
        if answer.status_code == 401:
            how = f"put one into a file and name it: {KEY_FILE}=FILE"
            raise OrderRefused(401, f"{self.url} takes an admin key: {how}")
        try:
            said = str(answer.json()["error"]["message"])
        except (ValueError, KeyError, TypeError):
            said = f"{self.url}: {answer.status_code} {answer.text[:300]}"
        raise OrderRefused(answer.status_code, said)
