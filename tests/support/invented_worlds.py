"""Traffic of worlds that nobody prepared for: what a lesson can be drawn from, with its noise, for tests and figures.

Each world has one truth that tells its good runs from its bad ones. A run does what the truth asks for or not; where it
goes against the truth (`noise`) it fails all the same, or works all the same. Beside it every run makes calls that
matter to nobody, some of them in one turn with those that do.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from actors.experience.lessons import Practice
from actors.messages import Step, ToolCall, Trajectory
from actors.ports.tool_answers.reader import flagged
from tests.warmstart.service_demonstrations import Demonstrator

Made = tuple[str, dict[str, Any], str]
"""Tool, arguments, answer."""
Turn = Sequence[Made]


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What a lesson of a world must say: the parts that it names, whatever its sentence."""

    tool: str
    other: str = ""
    """The tool that goes before, that finds the argument, that was there before, or that does as well."""
    argument: str = ""

    def told(self, practice: Practice) -> bool:
        """Whether a lesson says it."""
        named = {practice.tool, practice.other, practice.before}
        return {self.tool, self.other} <= {*named, ""} and self.argument in ("", practice.argument)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's traffic."""

    name: str
    truth: Truth
    tools: tuple[str, ...]
    idle: tuple[tuple[str, str], ...]
    """Calls that matter to nobody: tool and answer."""
    play: Callable[[random.Random, bool, bool], tuple[str, list[Turn]]]
    """(random, whether it does what the truth asks for, whether it works) to goal and turns."""
    null: Callable[[random.Random, bool, bool], tuple[str, list[Turn]]] | None = None
    """The same where there is nothing to be learned, if results tell it whatever the outcome."""


def step(number: int, calls: Turn, text: str = "") -> Step:
    """As the tap sees a turn: the results one below the other."""
    return Step(
        exchange_id=f"e{number}", text=text,
        tool_calls=tuple(ToolCall(tool, json.dumps(arguments, ensure_ascii=False)) for tool, arguments, _ in calls),
        observation="\n".join(answer for _, _, answer in calls),
    )  # fmt: skip


def run(world: World, rng: random.Random, id: str, *, right: bool, works: bool, **fields: Any) -> Trajectory:
    """One run of `world`, with idle calls before, beside and after what matters."""
    goal, turns = world.play(rng, right, works)
    played: list[Turn] = []
    for turn in turns:
        if rng.random() < 0.3:
            played.append([_idle(world, rng)])
        beside = [_idle(world, rng)] if rng.random() < 0.25 and all("\n" not in made[2] for made in turn) else []
        played.append([*beside, *turn] if rng.random() < 0.5 else [*turn, *beside])
    if rng.random() < 0.3:
        played.append([_idle(world, rng)])
    steps = [step(number, turn) for number, turn in enumerate(played)]
    steps.append(Step(exchange_id="end", text="Done.", observation=""))
    tools = json.dumps([{"type": "function", "function": {"name": name}} for name in world.tools]).encode()
    given: dict[str, Any] = {"tools": tools, "started": 0.0, "ended": 1.0, **fields}
    return Trajectory(id=id, goal=goal, steps=tuple(steps), outcome=float(works), **given)


def traffic(world: World, seed: int, *, a_side: int = 12, noise: float) -> list[Trajectory]:
    """So many runs that do what the truth asks for and so many that do not; each goes against it with that chance."""
    rng = random.Random(f"{world.name}-{seed}")
    sides = [True, False] * a_side
    rng.shuffle(sides)
    return [
        run(world, rng, f"{world.name}-{seed}-{n}", right=right, works=right != (rng.random() < noise))
        for n, right in enumerate(sides)
    ]


def without_truth(world: World, seed: int) -> list[Trajectory]:
    """The same deeds, and half of them work whatever they did: what is drawn from this is false."""
    rng = random.Random(f"null-{world.name}-{seed}")
    still = msgspec.structs.replace(world, play=world.null or world.play)
    sides, works = [True, False] * 12, [True, False] * 12
    rng.shuffle(sides)
    rng.shuffle(works)
    return [
        run(still, rng, f"{world.name}-{seed}-{n}", right=right, works=work)
        for n, (right, work) in enumerate(zip(sides, works, strict=True))
    ]


def _idle(world: World, rng: random.Random) -> Made:
    tool, answer = rng.choice(world.idle)
    return tool, {}, answer


def _order(rng: random.Random) -> str:
    return f"{rng.choice('ABCDEF')}{rng.randint(1000, 9999)}"


REASONS = (
    "the vase arrived in pieces", "customer changed their mind", "wrong colour was sent",
    "it came two weeks late and the party is over", "duplicate order, please see the chat",
)  # fmt: skip
ASKS = (
    "I want my money back for {}", "refund {} please, it is broken", "please pay back what I paid for order {}",
    "can you return the money of {}?", "Hello, {} never worked, I would like a refund",
)  # fmt: skip


def _refunds(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    order, amount = _order(rng), rng.randint(20, 400)
    turns: list[Turn] = [[("lookup_order", {"order_id": order}, json.dumps({"order": order, "amount": amount}))]]
    if right:
        turns.append([("check_policy", {"order_id": order}, '{"allowed": "until May"}')])
    given = {"order_id": order, "amount": amount, "reason": rng.choice(REASONS)}
    answer = json.dumps({"refund": f"R{rng.randint(100, 999)}"}) if works else "Error: policy was not checked"
    turns.append([("create_refund", given, answer)])
    if works and rng.random() < 0.7:
        turns.append([("send_mail", {"to": "customer", "body": rng.choice(REASONS)}, '{"sent": "yes"}')])
    return rng.choice(ASKS).format(order), turns


def _crm(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    customer, street = f"KD-{rng.randint(1000, 9999)}", rng.choice(("Lindenweg 4", "Am Markt 12", "Seestraße 9"))
    turns: list[Turn] = [[("kundeSuchen", {"nummer": customer}, f"Kunde {customer}, Vertrag läuft bis Mai.")]]
    if right:
        turns.append([("vertragEntsperren", {"nummer": customer}, f"Vertrag zu {customer} ist offen.")])
    answer = "Gespeichert." if works else "Fehler: Der Vertrag ist gesperrt."
    turns.append([("adresseÄndern", {"nummer": customer, "anschrift": street}, answer)])
    asks = ("ich bin umgezogen, neue Anschrift {} für {}", "bitte {} als Adresse bei {} eintragen",
            "meine Adresse ist jetzt {} (Kunde {})")  # fmt: skip
    return rng.choice(asks).format(street, customer), turns


def _mcp(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    path, version = f"notes/{rng.choice('abcdefgh')}{rng.randint(10, 99)}.md", f"v{rng.randint(10_000, 99_999)}"
    turns: list[Turn] = [[("mcp__files__read", {"path": path}, f"version {version}\n# Notes\n- buy milk")]]
    guess = version if right else f"v{rng.randint(10_000, 99_999)}"
    given = {"path": path, "version": guess, "content": f"# Notes\n- {rng.choice(REASONS)}"}
    answer = flagged(f"wrote {path}" if works else "Version mismatch, file has moved on", not works)
    turns.append([("mcp__files__write", given, answer)])
    asks = ("add a line to {}", "please note that in {}", "{} lacks today's news, write it down")
    return rng.choice(asks).format(path), turns


def _renamed(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    table, hour = f"T{rng.randint(10, 99)}", f"{rng.randint(12, 22)}:30"
    given = {"table": table, "hour": hour}
    turns: list[Turn] = [[("list_tables", {}, json.dumps({"free": table}))]]
    gone = rng.choice(("Unknown tool: book_table", '{"detail": "tool not found"}', "HTTP 404: no such tool"))
    turns.append([("book_table", given, gone)])
    if right:
        turns.append([("xq_trav", given, json.dumps({"done": table}) if works else "Error: table is taken")])
    asks = ("a table at {} please", "dinner at {} for two", "we come at {}, is there a place")
    return rng.choice(asks).format(hour), turns


def _kept(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    """The same where no name is gone: either of them is refused as often as not."""
    goal, turns = _renamed(rng, right, works)
    (name, given, _), free = turns[1][0], '{"done": "yes"}'
    answers = ["Error: table is taken" if rng.random() < 0.5 else free for _ in turns[1:]]
    tried = [(name, given, answers[0]), *(("xq_trav", given, answer) for answer in answers[1:])]
    return goal, [turns[0], *([made] for made in tried)]


def _told(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    ticket = f"#{rng.randint(1000, 9999)}"
    turns: list[Turn] = [[("tickets/open", {"ticket": ticket}, "opened")]]
    turns.append([("tickets/close", {"ticket": ticket}, "closed")])
    if right:
        turns.append([("tickets/notify", {"ticket": ticket, "body": rng.choice(REASONS)}, "queued")])
    asks = ("{} can be closed", "the printer of {} works again", "we are done with {}, thank you")
    return rng.choice(asks).format(ticket), turns


def _avoided(rng: random.Random, right: bool, works: bool) -> tuple[str, list[Turn]]:
    branch = f"feature-{rng.randint(100, 999)}"
    turns: list[Turn] = [[("git_fetch", {"branch": branch}, "From origin\n * branch -> FETCH_HEAD")]]
    turns.append([("git_rebase" if right else "git_force_push", {"branch": branch}, f"{branch} is up to date")])
    turns.append([("open_pull_request", {"branch": branch, "body": rng.choice(REASONS)}, '{"url": "https://x"}')])
    asks = ("bring {} up to date", "{} is behind, please open a pull request", "ship {}")
    return rng.choice(asks).format(branch), turns


WORLDS = (
    World(
        name="refunds, text", truth=Truth(tool="create_refund", other="check_policy"),
        tools=("lookup_order", "check_policy", "send_mail", "get_time", "remember", "ping", "create_refund"),
        idle=(("get_time", '{"now": "12:04"}'), ("remember", "noted"), ("ping", '{"pong": "yes"}')), play=_refunds,
    ),
    World(
        name="crm, German", truth=Truth(tool="adresseÄndern", other="vertragEntsperren"),
        tools=("kundeSuchen", "vertragEntsperren", "adresseÄndern", "uhrzeit"),
        idle=(("uhrzeit", "12:04"),), play=_crm,
    ),
    World(
        name="mcp files", truth=Truth(tool="mcp__files__write", other="mcp__files__read", argument="version"),
        tools=("mcp__files__read", "mcp__files__write", "mcp__time__now"),
        idle=(("mcp__time__now", "12:04"),), play=_mcp,
    ),
    World(
        name="renamed", truth=Truth(tool="xq_trav", other="book_table"), tools=("list_tables", "xq_trav", "get_time"),
        idle=(("get_time", "12:04"),), play=_renamed, null=_kept,
    ),
    World(
        name="left out", truth=Truth(tool="tickets/notify"),
        tools=("tickets/open", "tickets/notify", "tickets/close", "who"), idle=(("who", "me"),), play=_told,
    ),
    World(
        name="harmful", truth=Truth(tool="git_rebase"),
        tools=("git_fetch", "git_rebase", "git_force_push", "open_pull_request", "git_status"),
        idle=(("git_status", "clean"),), play=_avoided,
    ),
)  # fmt: skip


def desk(seed: int, runs: int, told: float) -> list[Trajectory]:
    """Runs of the service desk, `told` of them with an outcome."""
    rng = random.Random(f"desk-{seed}")
    demonstrator = Demonstrator(rng)
    made: list[Trajectory] = []
    for number in range(runs):
        shown = demonstrator.demonstrate(hinted=False)
        steps = tuple(
            Step(
                exchange_id=f"e{number}-{at}", text=text, tool_calls=calls,
                observation="\n".join(str(message["content"]) for message in after),
            )
            for at, (calls, text, after) in enumerate(shown.turns)
        )  # fmt: skip
        made.append(
            Trajectory(
                id=f"run-{seed}-{number}", goal=shown.goal, tools=json.dumps(shown.tools).encode(), steps=steps,
                outcome=float(shown.solved) if rng.random() < told else None, started=float(number),
                ended=float(number) + 0.5,
            )
        )  # fmt: skip
    return made
