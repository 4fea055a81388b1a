"""`Credentials`: what authenticates a call, from secret references; and OAuth 2 tokens, fetched, kept and renewed.

Secrets are read when the API is set up, sent to its own server and to its token endpoint alone, and told to nobody but
the scrubber, which takes them out of what agents see. No message of an error holds what was sent or what came back.
"""

import base64
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import httpx
import msgspec

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from adapters.chat.keys import read_key
from adapters.live.openapi.document import DanglingReference, Document, RemoteReference
from adapters.live.openapi.settings import AuthKind, AuthSettings

_EARLY = 30.0
"""Seconds before its end that a token is renewed."""
_TOKEN_BYTES = 1 << 16
_SHORTEST = 4
"""A shorter secret could not be told from ordinary text, and would not be taken out of it."""
_LONGEST_LIFE = 86_400.0


class Proof(msgspec.Struct):
    """What is added to a request."""

    headers: dict[str, str] = {}
    query: list[tuple[str, str]] = []
    cookies: dict[str, str] = {}
    renewable: bool = False
    """It has a token in it that can be fetched anew, should it be refused."""


class _Scheme(msgspec.Struct, kw_only=True):
    """One scheme, resolved."""

    kind: AuthKind
    name: str
    settings: AuthSettings
    key: str
    token_url: str = ""


class _Token(msgspec.Struct):
    access: str
    until: float
    refresh: str = ""


Poster = Callable[[str, Mapping[str, str], Mapping[str, str], int], Awaitable[tuple[int, bytes]]]
"""Sends a form: URL, form, headers and the most bytes of an answer, to its status and body."""


class Credentials:
    """One API's.

    Args:
        settings: by name of scheme.
        environment: where `key_env` is looked up.
        post: for tokens.

    Raises:
        AdapterNotSetUp: a key is not there.
    """

    def __init__(
        self,
        settings: Mapping[str, AuthSettings],
        *,
        environment: Mapping[str, str],
        post: Poster,
        clock: Callable[[], float],
    ) -> None:
        self._post, self._clock = post, clock
        self._settings, self._keys = dict(settings), {}
        for name, one in settings.items():
            try:
                key = read_key(one.key_env, one.key_file, environment)
            except AdapterNotSetUp as error:
                raise AdapterNotSetUp(f"auth.{name}: {error}") from None
            if len(key) < _SHORTEST:
                raise AdapterNotSetUp(f"auth.{name}: key_env or key_file must name a secret of {_SHORTEST} characters")
            self._keys[name] = key
        self._schemes: dict[str, _Scheme] = {}
        self._everywhere: tuple[str, ...] = ()
        self._tokens: dict[str, _Token] = {}
        self._lock = anyio.Lock()

    def bind(self, document: Document, server: str) -> None:
        """Find out what each scheme is.

        Args:
            server: base URL; where a token may come from without being named in the settings.

        Raises:
            AdapterNotSetUp: a scheme that neither document nor settings describe, or a token endpoint elsewhere.
        """
        try:
            components = document.at(document.root.get("components") or {})
            declared = document.at(components.get("securitySchemes") or {})
        except (RemoteReference, DanglingReference):
            declared = {}
        schemes: dict[str, _Scheme] = {}
        paths = frozenset(document.root.get("paths") or {})
        for name, one in self._settings.items():
            try:
                described = document.at(declared[name]) if name in declared else {}
            except (RemoteReference, DanglingReference):
                described = {}
            if not described and one.kind == "document":
                there = ", ".join(map(str, declared)) or "none"
                raise AdapterNotSetUp(
                    f"auth.{name}: the document has no such security scheme (there are: {there[:300]}); give it a kind"
                    " if it is to be sent with every call"
                )
            schemes[name] = _scheme(name, one, described, self._keys[name], server, paths)
        self._schemes = schemes
        self._everywhere = tuple(name for name in self._settings if name not in declared)

    def provided(self) -> frozenset[tuple[str, str]]:
        """(place, name) of what is sent for the agent; headers in lower case."""
        places = {"header", "query", "cookie"}
        return frozenset(
            (scheme.kind, scheme.name.lower() if scheme.kind == "header" else scheme.name)
            for scheme in self._schemes.values()
            if scheme.kind in places
        )

    def secrets(self) -> frozenset[str]:
        """All that must not be shown, in the forms in which a server may give it back."""
        plain = {*self._keys.values()}
        for token in self._tokens.values():
            plain |= {token.access, token.refresh} - {""}
        basic = {
            _basic(scheme.settings.username, scheme.key)
            for scheme in self._schemes.values()
            if scheme.kind in ("basic", "client_credentials")
        }
        return frozenset(
            {*plain, *basic, *map(quote, plain), *map(quote_plus, plain), *(quote(one, safe="") for one in plain)}
        )

    def known(self, alternatives: tuple[tuple[str, ...], ...]) -> bool:
        """Whether a call that wants one of `alternatives` can be authenticated."""
        return not alternatives or any(all(name in self._schemes for name in one) for one in alternatives)

    async def prove(self, alternatives: tuple[tuple[str, ...], ...], *, anew: bool = False) -> Proof:
        """What to send with a call that wants one of `alternatives`; nothing if none of them is set up.

        Args:
            anew: a token that is held was refused.

        Raises:
            LiveApiUnavailable: the token endpoint does not answer.
            LiveApiRefused: it says no.
            LiveApiMalformed: its answer holds no token.
        """
        chosen = next((one for one in alternatives if all(name in self._schemes for name in one)), ())
        proof = Proof()
        for name in dict.fromkeys((*chosen, *self._everywhere)):
            scheme = self._schemes[name]
            if scheme.kind in ("password", "client_credentials"):
                proof.headers["authorization"] = f"Bearer {await self._token(name, scheme, anew)}"
                proof.renewable = True
            elif scheme.kind == "bearer":
                proof.headers["authorization"] = f"Bearer {scheme.key}"
            elif scheme.kind == "basic":
                proof.headers["authorization"] = f"Basic {_basic(scheme.settings.username, scheme.key)}"
            elif scheme.kind == "query":
                proof.query.append((scheme.name, scheme.key))
            elif scheme.kind == "cookie":
                proof.cookies[scheme.name] = scheme.key
            else:
                proof.headers[scheme.name] = scheme.key
        return proof

    async def _token(self, name: str, scheme: _Scheme, anew: bool) -> str:
        before = self._tokens.get(name)
        async with self._lock:
            held = self._tokens.get(name)
            # While this call waited, another may have fetched the one that it needs.
            fresh = held is not None and held.until > self._clock() and not (anew and held is before)
            if held is not None and fresh:
                return held.access
            if held is not None and held.refresh:
                try:
                    return await self._fetch(
                        name, scheme, {"grant_type": "refresh_token", "refresh_token": held.refresh}
                    )
                except (LiveApiRefused, LiveApiMalformed):
                    pass  # it has run out: ask with the password
            grant = {"grant_type": scheme.kind}
            if scheme.kind == "password":
                grant |= {"username": scheme.settings.username, "password": scheme.key}
            if scheme.settings.scopes:
                grant["scope"] = " ".join(scheme.settings.scopes)
            return await self._fetch(name, scheme, grant)

    async def _fetch(self, name: str, scheme: _Scheme, form: dict[str, str]) -> str:
        headers: dict[str, str] = {}
        if scheme.kind == "client_credentials" and scheme.settings.client == "header":
            headers["authorization"] = f"Basic {_basic(scheme.settings.username, scheme.key)}"
        elif scheme.kind == "client_credentials":
            form |= {"client_id": scheme.settings.username, "client_secret": scheme.key}
        status, data = await self._post(scheme.token_url, form, headers, _TOKEN_BYTES)
        if status in (408, 429) or status >= 500:
            raise LiveApiUnavailable(f"auth.{name}: the token endpoint answers with status {status}")
        if not 200 <= status < 300:
            self._tokens.pop(name, None)
            raise LiveApiRefused(f"auth.{name}: no token, status {status}; look at username and its key")
        token = _read_token(data, self._clock())
        if token is None:
            raise LiveApiMalformed(f"auth.{name}: the answer of the token endpoint holds no access_token")
        if not token.refresh and form["grant_type"] == "refresh_token":
            token.refresh = form["refresh_token"]  # RFC 6749, 6: the old one goes on
        self._tokens[name] = token
        return token.access


def _read_token(data: bytes, now: float) -> _Token | None:
    """RFC 6749, 5.1."""
    try:
        answer: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    access, refresh, life = answer.get("access_token"), answer.get("refresh_token"), answer.get("expires_in")
    if not isinstance(access, str) or not access.isascii() or not access.isprintable() or not access:
        return None
    if not isinstance(life, int | float) or not 0 < life < _LONGEST_LIFE:
        life = _LONGEST_LIFE
    return _Token(
        access, now + max(life - _EARLY, life / 2), refresh if isinstance(refresh, str) and refresh.isascii() else ""
    )


def _scheme(
    name: str, one: AuthSettings, described: dict[str, Any], key: str, server: str, paths: Collection[str]
) -> _Scheme:
    kind, told, token_url = one.kind, one.name, one.token_url
    flows = described.get("flows")
    flows = flows if isinstance(flows, dict) else {}
    if kind == "document":
        kind = _kind(name, described, flows)
    if kind in ("header", "query", "cookie"):
        told = told or str(described.get("name") or "")
        if not told or not told.isascii() or not told.isprintable():
            raise AdapterNotSetUp(f"auth.{name}.name: say which {kind} the key goes into")
    if kind in ("password", "client_credentials"):
        flow = flows.get("password" if kind == "password" else "clientCredentials")
        relative = str((flow if isinstance(flow, dict) else {}).get("tokenUrl") or "")
        if not token_url and not relative:
            raise AdapterNotSetUp(f"auth.{name}.token_url: the document names none; say where tokens come from")
        # One of the document's own operations is under its server (a mounted FastAPI writes `/token`); others are
        # relative to the base URL, which ends in a directory.
        inside = server.rstrip("/") + "/"
        declared = httpx.URL(inside + relative[1:]) if relative in paths else httpx.URL(inside).join(relative)
        url = httpx.URL(token_url) if token_url else declared
        if not token_url and origin(url) != origin(httpx.URL(server)):
            raise AdapterNotSetUp(
                f"auth.{name}.token_url: the document wants tokens from another host, {url.host}; name the URL if that"
                " is right"
            )
        token_url = str(url)
    if kind in ("basic", "password", "client_credentials") and not one.username:
        raise AdapterNotSetUp(f"auth.{name}.username: {kind} wants one")
    return _Scheme(kind=kind, name=told, settings=one, key=key, token_url=token_url)


def _kind(name: str, described: dict[str, Any], flows: dict[str, Any]) -> AuthKind:
    what = str(described.get("type") or "")
    if what == "apiKey" and described.get("in") in ("header", "query", "cookie"):
        return described["in"]
    if what == "http" and str(described.get("scheme")).lower() in ("bearer", "basic"):
        return "bearer" if str(described["scheme"]).lower() == "bearer" else "basic"
    if what == "oauth2" and isinstance(flows.get("password"), dict):
        return "password"
    if what == "oauth2" and isinstance(flows.get("clientCredentials"), dict):
        return "client_credentials"
    if what in ("oauth2", "openIdConnect"):
        return "bearer"  # a token that somebody else has fetched
    raise AdapterNotSetUp(f"auth.{name}.kind: the document does not say what this scheme is; name its kind")


def origin(url: httpx.URL) -> tuple[str, str, int]:
    """Scheme, host and port (RFC 6454)."""
    return url.scheme, url.host, url.port or {"https": 443, "http": 80}.get(url.scheme, 0)


def _basic(username: str, key: str) -> str:
    return base64.b64encode(f"{username}:{key}".encode()).decode()
