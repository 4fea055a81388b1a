"""Context templates by name, and anything by class path."""

import importlib
import inspect
from typing import Any

from actors.rollout.context import ContextTemplate
from actors.rollout.context.managing import SelfManaging
from actors.rollout.context.reasoning import Reasoning
from actors.rollout.context.sliding import SlidingWindow

SHIPPED: dict[str, type[ContextTemplate]] = {
    "causal": ContextTemplate,
    "reasoning": Reasoning,
    "sliding": SlidingWindow,
    "self-managing": SelfManaging,
}


def by_path(path: str) -> type[Any]:
    """The class at `path`, "package.module:Class".

    Raises:
        ValueError: no such module or class; says which part is missing.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"{path!r} is no class path; write package.module:Class")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ValueError(f"{path!r}: {error}; is it on the Python path of the daemon?") from error
    except AttributeError as error:
        raise ValueError(f"{path!r}: {module} has no {name}") from error
    if not inspect.isclass(found):
        raise ValueError(f"{path!r} is a {type(found).__name__}, not a class")
    return found
