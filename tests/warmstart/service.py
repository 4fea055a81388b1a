"""What the service desk's warm start is made from and measured by; `courses` trains it.

Its vocabulary holds the words of the grammar's training half, all pairs of small letters and of digits, and single
bytes. A name that nobody has heard before falls into pairs, the same ones wherever it stands, and is copied pair by
pair: copying is trained on names of which none occurs twice.
"""

import random
import re
import string
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from actors.messages import ToolCall
from adapters.environments.service_desk import grammar
from adapters.environments.service_desk.agents import AGENTS, NO_DRIFT, ROLES, Agent, Drift
from adapters.environments.service_desk.desk import Desk
from adapters.environments.service_desk.environment import step
from tests.warmstart import chat
from tests.warmstart.service_demonstrations import (
    DRAWN,
    PURPOSES,
    SENTENCES,
    Demonstrator,
    Habits,
    hints,
)
from tests.warmstart.tool_names import NameKind, made_tool_name

if TYPE_CHECKING:
    from actors.ports.environments import Split
    from tests.warmstart.make import Made
    from tests.warmstart.sampler import Episode
    from tests.warmstart.train import Words

PARTS = tuple(sorted({part for name in ROLES for part in re.findall(r"[a-z]+|[A-Z][a-z]+", name)}))
"""The parts of the tool names without drift."""
FRAMES = (
    "system\n", "user\n", "assistant\n", "tool\n",
    '\n{"name": "', '", "arguments": {"', '"}}\n', '": "', '", "', '{"', '"}', "HTTP 200 ", "HTTP 40", ", ", ". ", ": ",
    "\n# Tools\n", "\nWhen to use: ", ". Content: ", " (", "@box.io", "@mail.com", "@post.net", "@work.org",
    *sorted({f"({','.join(parameters)})\n" for parameters in ROLES.values()}),
)  # fmt: skip
"""Recurring punctuation, of the chat format and of the tools' dialects."""
PAIRS = tuple(one + other for one in string.ascii_lowercase for other in string.ascii_lowercase)
DIGITS = tuple(one + other for one in string.digits for other in string.digits)
SAID = (
    "Which order? Which email? Done. It is in and", "no such tool", "bad arguments", "unknown", "refused",
    "done already", "ok yes", "Error", "amount parcel user email order city",
)  # fmt: skip
"""What agents and tools say."""
NAME_KINDS: tuple[NameKind, ...] = get_args(NameKind)
SIZES = {"width": 96, "layers": 3, "heads": 3, "inner": 256}
SETTINGS: dict[str, Any] = {"drill_steps": 300, "imitation_steps": 1800}
TURN_TOKENS = 96
"""Of a turn at most: two calls with long names."""
RECIPE: dict[str, Any] = {
    "habits": msgspec.to_builtins(Habits()),
    "saw": [
        "phrases of the grammar's training half; none of those held out",
        "tools with names made for one demonstration, and never again",
        "lessons in plain sentences and in those of the rules that draw lessons, in demonstrations with lessons only",
    ],
    "doubts": [
        "The sizes, the number of updates and the habits were chosen by looking at these figures; names and tasks of "
        "another --seed of --measure are fresh.",
        "The weights follow from the seed on the same torch build and kind of processor; elsewhere sums round "
        "differently.",
    ],
}


def vocabulary() -> tuple[str, ...]:
    """All pieces that are one token, single bytes aside.

    A word of three letters or more also has a piece with the space before it, unless a tool's name begins like it: a
    name has the same pieces behind a space, a quote and a line break.
    """
    texts = [agent.system for agent in AGENTS.values()] + [*grammar.AT_ORDER, *grammar.AT_ACCOUNT, *grammar.JOINS]
    texts += [grammar.NUDGE, *PURPOSES.values(), *grammar.CITIES, *SAID]
    texts += [sentence for kind in SENTENCES.values() for sentence in kind] + list(DRAWN.values())
    spoken = (grammar.OPENERS, grammar.REASONS, grammar.CLOSERS, grammar.AGAIN, grammar.COMPLAINTS, grammar.DETAILS)
    texts += [line for part in (*spoken, *grammar.WISHES.values()) for line in part["train"]]
    words = {word for text in texts for word in re.findall(r"[A-Za-z]+", re.sub(r"\{[a-z]+\}", "", text))}
    spaced = {
        f" {word}" for word in words if len(word) > 2 and not any(part.lower().startswith(word) for part in PARTS)
    }
    every = {*words, *spaced, *PARTS, *FRAMES, *PAIRS, *DIGITS}
    return tuple(sorted(piece for piece in every if len(piece) > 1))


def word_parts() -> "Words":
    """The pieces by their part in training: what calls are about counts more, and all of it is copied in the drill."""
    from tests.warmstart.train import Words

    copied = (*PAIRS, *DIGITS, *string.ascii_lowercase)
    return Words(entities=(*copied, *PARTS, *string.ascii_uppercase, *grammar.CITIES), names=copied, held_out=())


def segments(demonstrator: Demonstrator) -> Iterator[list[tuple[str, bool]]]:
    """Endless demonstrations as weighted text."""
    while True:
        shown = demonstrator.demonstrate()
        conversation = [(chat.opening(shown.goal, shown.tools, shown.hint, shown.system), False)]
        for number, (calls, text, messages) in enumerate(shown.turns):
            conversation.append((chat.turn(calls, text) + chat.END, True))
            if number + 1 < len(shown.turns):
                conversation.append((_following(messages), False))
        yield conversation


def _following(messages: tuple[dict[str, Any], ...]) -> str:
    return chat.continuation(*(message["content"] for message in messages), role=messages[0]["role"])


class Attempt:
    """One attempt at a task, in the text form that the sampler plays."""

    def __init__(self, seed: int, letter: str, split: "Split", drift: Drift, hinted: bool) -> None:
        self._desk = Desk(f"measure-{seed}", letter, split, drift)
        hint = hints(random.Random(f"hint-{seed}"), self._desk) if hinted else ""
        self.opening = chat.opening(self._desk.goal, drift.tools(self._desk.agent), hint, self._desk.agent.system)
        self.solved = False

    def act(self, text: str) -> str | None:
        """Take the model's turn."""
        calls = [ToolCall(call.name, call.arguments, f"call-{at}") for at, call in enumerate(chat.parse_all(text))]
        seen = step(self._desk, calls, text)
        self.solved = self._desk.solved
        return None if seen.done else _following(seen.messages)


class Copying:
    """One call of a tool whose name was made for it: solved if the first turn calls it by that name.

    The request needs just one tool that no other goes before; its name is in a lesson and in the tool list, so it must
    be chosen by the lesson and copied in pieces.
    """

    def __init__(self, seed: int, kind: NameKind) -> None:
        rng = random.Random(f"copying-{kind}-{seed}")
        agent, role = rng.choice([(AGENTS["R"], "send_label"), (AGENTS["O"], "orders.move")])
        self._name = made_tool_name(rng, kind)
        drift = Drift(rename={role: self._name})
        wish = "label" if role == "send_label" else "move"
        desk = next(
            desk
            for number in range(10_000)
            if (desk := Desk(f"copying-{kind}-{seed}-{number}", agent.letter, "train", drift)).cases[0].wish == wish
            and desk.asked == len(desk.cases) == 1
            and desk.cases[0].told
        )
        tools = rng.sample(drift.tools(agent), len(agent.tools))
        self.opening = chat.opening(desk.goal, tools, hints(rng, desk, others=0.0), agent.system)
        self.solved = False

    def act(self, text: str) -> str | None:
        """Look at the first turn only."""
        self.solved = any(call.name == self._name for call in chat.parse_all(text))
        return None


def copy_rates(
    made: "Made", copying: "Callable[[int, NameKind], Episode]", attempts: int, first: int
) -> dict[str, float]:
    """How often a first call names a tool right whose name was made at run time, sampled at temperature 1.

    Args:
        copying: one attempt at a call, by its number.
    """
    from tests.warmstart.make import success

    def rate(kind: NameKind) -> float:
        tried = [copying(number, kind) for number in range(first, first + attempts)]
        return round(success(made, tried, greedy=False, turn_tokens=TURN_TOKENS), 3)

    return {kind: rate(kind) for kind in NAME_KINDS}


def measure(made: "Made", attempts: int, first: int) -> dict[str, Any]:
    """Success by agent on tasks that no demonstration showed: in training and held-out phrases, with lessons, with
    tools renamed to names made for the task; and the rate of copying."""
    from tests.warmstart.make import success

    def rate(
        agent: Agent, split: "Split" = "train", *, hinted: bool = False, drifts: bool = False, greedy: bool = False
    ) -> float:
        def attempt(number: int) -> Attempt:
            rename = {last_tool(agent): made_tool_name(random.Random(f"name-{number}"))}
            return Attempt(number, agent.letter, split, Drift(rename=rename) if drifts else NO_DRIFT, hinted)

        tried = [attempt(number) for number in range(first, first + attempts)]
        return round(success(made, tried, greedy=greedy, turn_tokens=TURN_TOKENS), 3)

    def by_agent(**how: Any) -> dict[str, float]:
        rates = {agent.letter: rate(agent, **how) for agent in AGENTS.values()}
        return {**rates, "ROA": round(sum(rates.values()) / len(rates), 3)}

    return {
        "sampled": by_agent(),
        "sampled, held-out phrases": by_agent(split="heldout"),
        "greedy, held-out phrases": by_agent(split="heldout", greedy=True),
        "sampled, held-out phrases, hinted": by_agent(split="heldout", hinted=True),
        "one tool renamed, held-out phrases": by_agent(split="heldout", drifts=True),
        "one tool renamed, held-out phrases, hinted": by_agent(split="heldout", drifts=True, hinted=True),
        "made names copied": copy_rates(made, Copying, attempts, first),
    }


def last_tool(agent: Agent) -> str:
    """The tool of `agent` that drifts in the measurements: the one most often called last."""
    return {"R": "create_refund", "O": "orders.cancel", "A": "resetPassword"}[agent.letter]
