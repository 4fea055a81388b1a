"""`QuestionerState`: all that the questioner knows and has made, as one JSON document: result and checkpoint in one."""

from pathlib import Path
from typing import Literal

import msgspec

from actors.messages import Task
from actors.messages.files import write_whole
from actors.tasks.questioner.errors import TaskFileMalformed
from actors.tasks.questioner.filters import Dropped, Entry
from actors.tasks.questioner.goal_templates import Template
from actors.tasks.questioner.model import EnvironmentModel
from actors.tasks.questioner.programs import Program

_DROPPED, _PROGRAMS, _TEMPLATES = 2000, 256, 64


class Known(msgspec.Struct, kw_only=True):
    """A program that was found."""

    program: Program
    aims: tuple[str, ...]
    """What it is for: descriptions of the operations that change something, or of the last one."""
    writes: bool
    closed: bool = False
    """Its last operation ends the episode."""
    performed: int = 0
    failed: int = 0
    """Worlds and values with which it did not run through."""
    in_a_row: int = 0
    """Of these, the last ones without one that did."""
    kept: int = 0


class QuestionerState(msgspec.Struct, kw_only=True):
    """Where the questioner is."""

    format: Literal[1] = 1
    environment: str
    options: str
    """Digest of seed and settings: another run's state is not continued by mistake."""
    seed: int = 0
    round: int = 0
    """Worlds looked at so far."""
    barren: int = 0
    """The last so many of them gave no task."""
    ended: str = ""
    """Why it was over; empty while it is not."""
    model: EnvironmentModel = msgspec.field(default_factory=EnvironmentModel)
    library: dict[str, Known] = {}
    """By the program's shape."""
    templates: list[Template] = []
    entries: list[Entry] = []
    """What the filters remember."""
    tasks: list[Task] = []
    dropped: list[Dropped] = []
    """The last of them, with why."""
    counts: dict[str, int] = {}
    """proposed, kept, and dropped.REASON; replays and replayed; instances, steps, lost; wording.REASON."""

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + by

    def drop(self, dropped: Dropped) -> None:
        """A task was not kept."""
        self.count(f"dropped.{dropped.reason}")
        self.dropped.append(dropped)
        del self.dropped[:-_DROPPED]

    def learn(self, known: Known) -> bool:
        """Put a program into the library; False if it is there, or there is no room."""
        shape = known.program.shape
        if shape in self.library or len(self.library) >= _PROGRAMS:
            return False
        self.library[shape] = known
        return True

    def teach(self, template: Template) -> None:
        """Take in how the environment words what a program does."""
        if len(self.templates) < _TEMPLATES:
            self.templates.append(template)

    @property
    def reasons(self) -> dict[str, int]:
        """Dropped tasks by reason, the most frequent first."""
        found = {name.partition(".")[2]: n for name, n in self.counts.items() if name.startswith("dropped.")}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def write(state: QuestionerState, path: Path) -> None:
    """Replace `path` by `state`, all or nothing, whenever the process dies."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(state), indent=1))


def read(path: Path) -> QuestionerState:
    """What `write` wrote.

    Raises:
        TaskFileMalformed: it cannot be read, or holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=QuestionerState)
    except OSError as error:
        raise TaskFileMalformed(f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise TaskFileMalformed(f"{path} is no file of tasks: {error}") from error
