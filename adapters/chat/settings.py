"""`EndpointSettings`: the options that every adapter has that asks a chat endpoint."""

import difflib
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from actors.ports.errors import AdapterNotSetUp
from adapters.chat.keys import checked_url

_S = TypeVar("_S", bound=msgspec.Struct)


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost, in whatever currency budgets are in."""

    input: float = 0.0
    output: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.input < math.inf and 0.0 <= self.output < math.inf):
            raise ValueError("price.input and price.output must be 0 or more")


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the model is and how long it is waited for."""

    url: str
    """Base URL with its /v1."""
    model: str
    key_env: str = ""
    """Environment variable that holds the endpoint's key; empty: none, or `key_file`."""
    key_file: str = ""
    """File that holds it."""
    timeout: float = 30.0
    """Seconds that one request may take as a whole."""
    attempts: int = 3
    """Times that a request is made that fails for reasons that pass: no connection, time-out, 429, 5xx."""
    backoff: float = 1.0
    """Seconds before the second attempt; doubles each time, jittered. `Retry-After` goes before it."""
    max_tokens: int = 4096
    """Most tokens of one answer."""
    temperature: float = 0.0
    omit: tuple[str, ...] = ()
    """Fields of the request that the endpoint will not have, such as "temperature"."""
    extra: dict[str, Any] = {}
    """Fields that it wants besides, such as max_completion_tokens."""
    price: Price = Price()

    def __post_init__(self) -> None:
        checked_url(self.url)
        if not self.model:
            raise ValueError("model is empty; name the model that the endpoint serves")
        if not (0 < self.timeout < math.inf) or not (0 <= self.backoff < math.inf):
            raise ValueError("timeout must be above 0 and backoff at least 0 seconds")
        if not 1 <= self.attempts <= 10 or self.max_tokens < 1:
            raise ValueError("attempts must be from 1 to 10, and max_tokens at least 1")


def settings_of(kind: type[_S], options: Mapping[str, Any]) -> _S:
    """`options` of an adapter as its settings.

    Raises:
        AdapterNotSetUp: says which option, and what to do.
    """
    for name in set(options) - set(kind.__struct_fields__):
        near = difflib.get_close_matches(name, kind.__struct_fields__, 1, 0.5)
        meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(kind.__struct_fields__)}"
        raise AdapterNotSetUp(f"there is no option {name}; {meant}")
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        raise AdapterNotSetUp(f"options: {error}") from error
