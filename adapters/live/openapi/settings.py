"""`OpenApiSettings`: where an API's document is, where its server is, and which secrets it is called with."""

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
AuthKind = Literal["document", "header", "query", "cookie", "bearer", "basic", "password", "client_credentials"]


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Credentials for one security scheme of the document. The secret itself is in the environment or in a file."""

    kind: AuthKind = "document"
    """What the scheme is. `document`: as the document says; of OAuth 2 the `password` flow if there is one, else
    `client_credentials`. A scheme that the document does not have is sent with every call, and needs a kind."""
    name: str = ""
    """Name of the header, query parameter or cookie, where the document does not say it."""
    username: str = ""
    """User of `basic` and `password`; client id of `client_credentials`."""
    key_env: str = ""
    """Environment variable that holds the key, token, password or client secret."""
    key_file: str = ""
    """File that holds it."""
    token_url: str = ""
    """Where OAuth 2 tokens come from; empty: as the document says, which must be the server's own host."""
    scopes: tuple[str, ...] = ()
    """Asked for with a token."""
    client: Literal["header", "body"] = "header"
    """How a client id and secret are sent (RFC 6749, 2.3.1)."""


class OpenApiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One API that an OpenAPI 3.0 or 3.1 document describes."""

    document: str
    """Path or http(s) URL of the document, JSON or YAML."""
    server: str = ""
    """Base URL of the API; empty: the first of the document's."""
    auth: dict[str, AuthSettings] = {}
    """Credentials by the document's name of a security scheme."""
    include: tuple[str, ...] = ("*",)
    """Patterns of tool names; the others are left out."""
    exclude: tuple[str, ...] = ()
    """Patterns of tool names that are left out."""
    timeout: Positive = 30.0
    """Seconds for one call, a token and redirects included."""
    refresh: Positive = 3600.0
    """Seconds after which the document is read again when the tools are asked for."""
    max_operations: AtLeastOne = 5000
    """Operations beyond that are skipped."""
