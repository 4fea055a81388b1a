"""`Scrubber`: takes secrets out of what an API says, before an agent, a record or a log sees it.

Two kinds: the values that the API itself is called with, in whatever form a server may give them back, and what looks
like a credential (`adapters.redaction` knows the forms). Personal data stays: an agent at work needs it, and what is
kept of its traffic is redacted on its own way in.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

from adapters.redaction import RedactionSettings
from adapters.redaction.finder import Finder
from adapters.redaction.walk import Walk

_KINDS = ("private_key", "jwt", "api_key", "bearer", "credentials", "secret")
_PLACEHOLDER = "[REDACTED:secret]"
_SHORTEST = 4
"""A shorter secret is part of too many words."""
_DEEPEST = 60


class Scrubber:
    """One API's.

    Args:
        known: the secrets that it holds now.
    """

    def __init__(self, known: Callable[[], frozenset[str]]) -> None:
        self._known = known
        self._seen: frozenset[str] = frozenset()
        self._forms: tuple[str, ...] = ()
        self._finder = Finder(RedactionSettings(kinds=_KINDS))
        self.finds: Counter[str] = Counter()
        """What was taken out, by kind; `held` for the API's own."""

    def text(self, text: str) -> str:
        """`text` without secrets."""
        self._refresh()
        return self._with(text, "", Walk(self._finder))

    def value(self, value: Any) -> Any:
        """A JSON value without secrets; what is nested beyond reason is left out."""
        self._refresh()
        return self._walk(value, "", Walk(self._finder), 0)

    def _walk(self, value: Any, key: str, walk: Walk, depth: int) -> Any:
        if depth > _DEEPEST:
            return None
        if isinstance(value, str):
            return self._with(value, key, walk)
        if isinstance(value, dict):
            return {
                self._with(str(name), "", walk): self._walk(inner, str(name), walk, depth + 1)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._walk(inner, key, walk, depth + 1) for inner in value]
        if isinstance(value, int) and not isinstance(value, bool):
            if str(value) in self._forms:
                self.finds["held"] += 1
                return _PLACEHOLDER
            return self._found(value, key, walk)
        return value

    def _with(self, text: str, key: str, walk: Walk) -> str:
        for form in self._forms:
            if form in text:
                self.finds["held"] += text.count(form)
                text = text.replace(form, _PLACEHOLDER)
        return self._found(text, key, walk)

    def _found(self, value: Any, key: str, walk: Walk) -> Any:
        before = dict(walk.finds)
        value = walk.value(value, key)
        self.finds.update({kind: count - before.get(kind, 0) for kind, count in walk.finds.items()})
        return value

    def _refresh(self) -> None:
        known = self._known()
        if known != self._seen:
            forms = {form for secret in known for form in _forms(secret)}
            # Longest first: a secret may be a part of another's form.
            self._forms = tuple(sorted((form for form in forms if len(form) >= _SHORTEST), key=len, reverse=True))
            self._seen = known


def _forms(secret: str) -> set[str]:
    """`secret` as it may stand in an answer: as it is, in a URL, in JSON, in base64."""
    inner = json.dumps(secret)[1:-1]
    html = inner.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")  # as Go writes JSON
    encoded = base64.b64encode(secret.encode()).decode()
    return {secret, inner, html, inner.replace("/", "\\/"), quote(secret), quote(secret, safe=""), quote_plus(secret),
            encoded, encoded.rstrip("=")}  # fmt: skip
