"""References to secrets: `env:NAME` or `file:PATH` in a setting stands for what the variable or the file holds.

Settings, records and logs hold the reference; the secret itself is read when it is used, and scrubbed from what is
logged.
"""

import os
from collections.abc import Iterable, Mapping

from adapters.chat.keys import read_key

_ENV, _FILE = "env:", "file:"
HIDDEN = "[secret]"
"""What stands where a secret stood."""


def is_reference(value: str) -> bool:
    """Whether `value` names a secret instead of being one."""
    return value.startswith((_ENV, _FILE))


def resolved(value: str, environment: Mapping[str, str] = os.environ) -> str:
    """What `value` stands for: itself, if it is no reference.

    Raises:
        AdapterNotSetUp: there is no such variable or file, or it holds nothing usable.
    """
    if value.startswith(_ENV):
        return read_key(key_env=value.removeprefix(_ENV), environment=environment)
    if value.startswith(_FILE):
        return read_key(key_file=value.removeprefix(_FILE))
    return value


def without(text: str, secrets: Iterable[str]) -> str:
    """`text` with each of `secrets` replaced."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return text
