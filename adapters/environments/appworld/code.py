"""Tool calls as the code that AppWorld executes: `print(apis.app.api(**{...}))`, and nothing else.

App and API come from the catalogue, never from the model. Arguments are parsed as JSON and written out as Python
literals, in ASCII, so that no text of a model can be anything but a string.
"""

import json
import math
from typing import Any

MOST_DEPTH = 50
"""Python's own parser gives up at 200 nested brackets."""
MOST_ARGUMENTS = 1 << 20
"""Characters of one call's arguments."""


def rendered(app: str, api: str, arguments: str) -> str:
    """The code of one call.

    Args:
        arguments: JSON text, as the model wrote it.

    Raises:
        ValueError: no JSON object, or one that cannot be a call's arguments; says to the model what is wrong.
    """
    if len(arguments) > MOST_ARGUMENTS:
        raise ValueError(f"the arguments have more than {MOST_ARGUMENTS} characters")
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("the arguments are not a JSON object")
    for name in parsed:
        # AppWorld's own switches ("_system_datetime", "raise_on_failure", "_app_name") are for its authors.
        if name.startswith("_") or name == "raise_on_failure":
            raise ValueError(f"there is no argument {name[:100]!r}")
    return f"print(apis.{app}.{api}(**{_literal(parsed, 0)}))"


def _literal(value: Any, depth: int) -> str:
    if depth > MOST_DEPTH:
        raise ValueError(f"the arguments are nested more than {MOST_DEPTH} deep")
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, str):
        # Half a surrogate pair would end AppWorld's request: it cannot be sent on, logged or stored.
        return ascii(value.encode("utf-8", "replace").decode())
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("the arguments hold a number that is not finite")
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, depth + 1) for item in value)}]"
    pairs = (f"{_literal(key, depth)}: {_literal(item, depth + 1)}" for key, item in value.items())
    return f"{{{', '.join(pairs)}}}"
