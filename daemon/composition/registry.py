"""The adapters that the settings name, made, and what is wrong with them as a ConfigError."""

import contextlib
import difflib
import inspect
from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any

from actors.ports.errors import AdapterNotSetUp
from adapters.named import installed
from daemon.errors import ConfigError


def find(kind: str, name: str) -> Any:
    """The class or function that makes the adapter `name` of `kind`."""
    found = installed(kind)
    if name not in found:
        raise ConfigError(f"no {kind} adapter {name!r}; {_hint(name, found, 'installed')}")
    with making(f"{kind} adapter {name!r}"):
        return found[name].load()


def build(kind: str, name: str, options: Mapping[str, Any]) -> Any:
    """The adapter `name` of `kind` ("environment", "judge", "embedder", "extractor"), made with `options` as keyword
    arguments.
    """
    make, what = find(kind, name), f"{kind} adapter {name!r}"
    check_options(make, options, what)
    with making(what):
        return make(**options)


@contextlib.contextmanager
def making(what: str) -> Generator[None]:
    """What goes wrong inside, when `what` is found and made, as a ConfigError."""
    try:
        yield
    except AdapterNotSetUp as error:
        raise ConfigError(f"{what}: {error}") from error
    except ImportError as error:
        raise ConfigError(f"{what}: {error}; install what it needs (an extra: docs)") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}; check its options") from error


def check_options(make: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """See that `make` takes all of `options`. Raises ConfigError: names `what`, the option and the nearest one."""
    known = inspect.signature(make).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()):
        return  # it checks them itself
    for option in options:
        if option not in known:
            raise ConfigError(f"{what}: there is no option {option}; {_hint(option, known, 'known')}")


def _hint(name: str, there: Collection[str], are: str) -> str:
    near = difflib.get_close_matches(name, there, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"{are}: {', '.join(sorted(there)) or 'none'}"
