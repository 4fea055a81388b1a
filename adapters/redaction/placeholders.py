"""What stands where something was taken out: `[REDACTED:email]`, or `[REDACTED:email:1f0c9a3e]` with a key.

The digits are worth their place for who learns from the text: a desk that serves two customers in one conversation is a
puzzle once both are `[REDACTED:email]`. Without a key they would give the value away (there are few card numbers), so
without a key there are none.
"""

import hashlib
import hmac
import re

PLACEHOLDER = re.compile(r"\[REDACTED:[a-z0-9_]{1,32}(?::[0-9a-f]{8})?\]")


class Placeholders:
    """Makes them."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key

    def of(self, kind: str, value: str) -> str:
        """The same kind and value always give the same."""
        if not self._key:
            return f"[REDACTED:{kind}]"
        return f"[REDACTED:{kind}:{self.digest(kind, value, 8)}]"

    def digest(self, kind: str, value: str, digits: int) -> str:
        """So many hex digits of the HMAC; says nothing of `value` to whoever has no key."""
        message = f"{kind}\0{value}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:digits]
