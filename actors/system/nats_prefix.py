"""Names on the wire: what two installations that share one NATS put before theirs. Nobody else knows of it."""

from collections.abc import Sequence

import msgspec

from actors.system.bus import Outgoing
from actors.system.streams import Stream


class Prefix:
    """Puts a prefix before stream names and subjects, and takes it off again; an empty one changes nothing."""

    def __init__(self, text: str) -> None:
        """
        Args:
            text: letters, digits, - and _.
        """
        self._name, self._subject = (f"{text}_", f"{text}.") if text else ("", "")

    def onto(self, subject: str) -> str:
        return self._subject + subject

    def off(self, subject: str) -> str:
        return subject.removeprefix(self._subject)

    def items(self, items: Sequence[Outgoing]) -> Sequence[Outgoing]:
        if not self._subject:
            return items
        return [msgspec.structs.replace(item, subject=self.onto(item.subject)) for item in items]

    def stream(self, stream: Stream) -> Stream:
        subjects = tuple(map(self.onto, stream.subjects))
        return msgspec.structs.replace(stream, name=self._name + stream.name, subjects=subjects)
