"""What the scripted model says, and in which tokens.

The name of the model is the name of the script, so that clients choose it without a header or a prompt of their own:

    tools      a tool call, then two at once, then an answer made of their results
    repeated   the same, and every answer numbers its calls call_0, call_1 as some engines do
    text       two user turns, no tools; every run gets the same words
    varied     two user turns, no tools; no two answers are alike
    handoff    who can transfer does; who cannot adds two numbers and says what came of it

The template is bytes with a few marks between them, and arguments are written in one way only, so that the prompt of
a later call begins with exactly the tokens of the earlier one and its answer, as long as the client told the story
truly.
"""

import json
import re

import msgspec

from tests.support.answers import Part

TOOLS, REPEATED, TEXT, VARIED = "tools", "repeated", "text", "varied"
SCRIPTS = (TOOLS, REPEATED, TEXT, VARIED)
HANDOFF = "handoff"
"""For programs of several agents."""
END, CALL = 256, 257
ROLES = {"system": 258, "developer": 258, "user": 259, "assistant": 260, "tool": 261}
FINAL_ANSWER = "final_answer"
"""smolagents ends a run with a call of this tool."""
SHELL = "bash"
"""The one tool of a coding agent."""
FORM = "Reply"
"""The form of an answer, as a tool that must be called."""
FIELDS = "[[ ## next_tool_name ## ]]"
"""In the system's words where DSPy asks for a step, which is text with marks."""


class Call(msgspec.Struct, frozen=True):
    """A tool call; `arguments` is JSON in text."""

    name: str
    arguments: str
    id: str = ""


class Said(msgspec.Struct, frozen=True):
    """A message of the conversation, whatever the dialect that it came in."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()


def reply(script: str, told: list[Said], tools: set[str], serial: str) -> Said:
    """The model's next message. `serial` is unique to this answer."""
    if script == HANDOFF:
        said = _team(told, tools)
    elif script in (TOOLS, REPEATED):
        said = _work(_turns(told), told)
    else:
        said = _chat(_turns(told), serial if script == VARIED else "")
    system = told[0].text if told else ""
    if "[[ ## " in system:
        said = _marked(system, told[-1].text)
    elif SHELL in tools:
        said = _shell(_turns(told))
    elif FORM in tools:
        said = Said("assistant", "", (Call(FORM, json.dumps({"answer": said.text or "The results are 5, 9, 42."})),))
    if FINAL_ANSWER in tools and not said.calls:
        said = Said("assistant", "", (Call(FINAL_ANSWER, json.dumps({"answer": said.text})),))
    identified = tuple(
        Call(call.name, call.arguments, f"call_{number}" if script == REPEATED else f"call_{serial}{number}")
        for number, call in enumerate(said.calls)
    )
    return Said("assistant", said.text, identified)


def parts(said: Said) -> list[Part]:
    """The pieces of an answer in which a stream brings it, with their token ids."""
    words = [(word, list(word.encode())) for word in re.findall(r"\S+\s*", said.text)]
    found = [Part("text", words)] if said.text else []
    for call in said.calls:
        ids, half = _written(call), len(call.arguments) // 2
        pieces = [("", [CALL, *ids[:12]]), (call.arguments[:half], ids[12:24]), (call.arguments[half:], ids[24:])]
        found.append(Part("call", pieces, call.name, call.id))
    return found


def prompt(told: list[Said]) -> list[int]:
    """The token ids of the conversation, up to where the model is to speak."""
    ids: list[int] = []
    for said in told:
        ids.append(ROLES[said.role])
        ids += said.text.encode()
        for call in said.calls:
            ids += [CALL, *_written(call)]
        ids.append(END)
    return [*ids, ROLES["assistant"]]


def _written(call: Call) -> list[int]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = call.arguments
    return list(json.dumps({"name": call.name, "arguments": arguments}).encode())


def _turns(told: list[Said]) -> int:
    """How often the model has spoken; a client may tell one answer in several messages."""
    roles = [said.role for said in told]
    return sum(role == "assistant" and roles[n - 1] != "assistant" for n, role in enumerate(roles))


def _work(turn: int, told: list[Said]) -> Said:
    if turn == 0:
        return Said("assistant", "", (_call("add", 2, 3),))
    if turn == 1:
        return Said("assistant", "", (_call("add", 4, 5), _call("multiply", 6, 7)))
    began = next(n for n, said in enumerate(told) if said.role == "assistant")
    results = [number for said in told[began:] if said.role != "assistant" for number in re.findall(r"\d+", said.text)]
    return Said("assistant", f"The results are {', '.join(results)}.")


def _team(told: list[Said], tools: set[str]) -> Said:
    transfers = sorted(name for name in tools if name.startswith("transfer_to_"))
    if transfers:
        return Said("assistant", "", (Call(transfers[0], "{}"),))
    sums = [said.text for said in told if said.text.strip() == "5"]
    return Said("assistant", f"It is {sums[0]}.") if sums else Said("assistant", "", (_call("add", 2, 3),))


def _shell(turn: int) -> Said:
    commands = ("echo $((2 + 3))", "echo $((4 + 5)) $((6 * 7))")
    if turn < len(commands):
        return Said("assistant", "Let me see. ", (Call(SHELL, json.dumps({"command": commands[turn]})),))
    last = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo The results are 5, 9, 42."
    return Said("assistant", "Done. ", (Call(SHELL, json.dumps({"command": last})),))


def _marked(system: str, user: str) -> Said:
    """An answer in DSPy's form: a step of its agent, or what it says in the end."""
    fields = {"reasoning": "I know all of them.", "answer": "The results are 5, 9, 42."}
    if FIELDS in system:
        steps = (("add", {"a": 2, "b": 3}), ("add", {"a": 4, "b": 5}), ("multiply", {"a": 6, "b": 7}), ("finish", {}))
        name, arguments = steps[min(len(re.findall(r"observation_\d", user)), len(steps) - 1)]
        thought = {"next_thought": "On with it.", "next_tool_name": name}
        fields = {**thought, "next_tool_args": json.dumps(arguments)}
    text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items())
    return Said("assistant", f"{text}\n\n[[ ## completed ## ]]")


def _chat(turn: int, serial: str) -> Said:
    words = "Good morning, this is the desk." if turn == 0 else "You are welcome, goodbye."
    return Said("assistant", f"{words} Ticket {serial}." if serial else words)


def _call(name: str, a: int, b: int) -> Call:
    return Call(name, json.dumps({"a": a, "b": b}))
