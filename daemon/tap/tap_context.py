"""What all calls of a tap share."""

import time
from collections.abc import Callable

from daemon.tap.capture import Capture, RecordIds
from daemon.tap.held import Held
from daemon.tap.metrics import Counts
from daemon.tap.recorder import Recorder
from daemon.tap.reply import ReplyParser
from daemon.tap.response_filter import Hidden
from daemon.tap.router import Router
from daemon.tap.settings import TapSettings


class TapContext:
    """What all calls share."""

    def __init__(
        self,
        settings: TapSettings,
        router: Router,
        capture: Capture,
        recorder: Recorder,
        counts: Counts,
        held: Held,
    ) -> None:
        self.settings, self.router, self.capture = settings, router, capture
        self.recorder, self.counts, self.held = recorder, counts, held
        self.clock: Callable[[], float] = time.time
        self.nothing = ReplyParser()
        """The reply of a call that has not reached an engine."""
        self.record_ids = RecordIds()
        self._hidden: dict[tuple[str, ...], Hidden] = {}

    def hidden(self, added: tuple[str, ...]) -> Hidden:
        """How the fields of an answer are found that `added` has asked for."""
        found = self._hidden.get(added)
        if found is None:
            found = self._hidden[added] = Hidden(added)
        return found
