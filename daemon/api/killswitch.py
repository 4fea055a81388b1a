"""The kill switch: while `<state>/FREEZE` exists, nothing is trained, promoted or swapped in. Its text is the reason.

    touch FREEZE  ->  [swapper, control API]  look for themselves, at once
                  ->  directive `freeze`      for everybody else; `thaw` when the file is gone

A file, because it needs no daemon that answers, no key and no tool of ours: whoever can write to the state directory
can stop it, also before the daemon is started. Going back stays possible.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import structlog

from actors.messages import Directive
from actors.store import Store
from actors.system.lifecycle import Lifecycle

log = structlog.get_logger(__name__)
FREEZE_FILE = "FREEZE"
ORIGIN = "kill-switch"
"""Of its directives."""
_TEXT = 500
_LOOK_SECONDS = 1.0
_DIRECTIVES = 1000


class KillSwitch:
    """Looks at the file."""

    def __init__(self, state: Path) -> None:
        self.path = state / FREEZE_FILE

    def reason(self) -> str:
        """Why everything is stopped; empty if it is not. A file that cannot be read stops as well."""
        try:
            with self.path.open("rb") as file:
                text = file.read(4 * _TEXT).decode(errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self.path} is there and cannot be read: {type(error).__name__}"
        return " ".join(text.split())[:_TEXT] or f"{self.path} is there"

    async def watch(
        self,
        lifecycle: Lifecycle,
        store: Store,
        order: Callable[[Literal["freeze", "thaw"], str], Awaitable[object]],
    ) -> None:
        """Tell everybody else, for as long as `lifecycle` goes on.

        Args:
            order: sends a directive of `ORIGIN`, with its reason.
        """
        lifecycle.ready()
        was: bool | None = None
        """Whether the file was there; None: an earlier daemon may have seen it."""
        while not lifecycle.draining.is_set():
            reason = self.reason()
            frozen = await store.frozen()
            if reason and not frozen:
                log.warning("kill_switch_on", reason=reason)
                await order("freeze", reason)
            elif not reason and frozen and was in (None, True) and await _ours(store):
                log.warning("kill_switch_off")
                await order("thaw", f"{self.path} is gone")
            was = bool(reason)
            lifecycle.beat()
            await lifecycle.pause(_LOOK_SECONDS)


async def _ours(store: Store) -> bool:
    """Whether the last word was ours: what an operator froze meanwhile stays frozen."""
    orders = [item for item in await store.newest(Directive, _DIRECTIVES) if item.kind in ("freeze", "thaw")]
    return bool(orders) and orders[0].origin == ORIGIN
