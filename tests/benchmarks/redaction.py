"""What redaction finds, what it takes by mistake, and what it costs.

Plants come in forms that the patterns were written for and, held out, in forms that they were not; ordinary traffic is
generated (seeded), and real prose and code of this repository and of Python's library, cut into messages.

    python -m tests.benchmarks.redaction --json build/redaction.json
    python -m tests.benchmarks.redaction --plants FILE --json FILE     somebody's own list: text, place, secret
"""

import base64
import binascii
import collections
import html
import json
import random
import re
import statistics
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from actors.messages import Feedback
from actors.messages.spool import RawExchange
from adapters.redaction import RedactionSettings, Redactor
from tests.benchmarks import report
from tests.support.plants import Plant, ordinary, plants

_ROOT = Path(__file__).parents[2]
_CHUNK = 1200
_EVENTS = 48
_PROSE = (
    "The customer wants to move the booking from Lisbon to Porto. I checked three offers; the cheapest leaves at 9:40"
    " and costs 120 EUR. Its change fee is 35 EUR. Shall I go ahead, or do you want to see the later trains as well? "
)


def raw(request: object, response: bytes, content_type: str = "application/json") -> RawExchange:
    """A call as the tap records it."""
    return RawExchange(
        id="0" * 32, path="/v1/chat/completions", request=json.dumps(request).encode(), status=200, response=response,
        content_type=content_type, received=1.0, finished=2.0, tokens_requested=True,
    )  # fmt: skip


def plain() -> RawExchange:
    """3 KB of request with a tool and a tool result, 1.5 KB of response; nothing to find."""
    tool = {
        "name": "search",
        "description": "Search offers.",
        "parameters": {
            "type": "object",
            "properties": {"origin": {"type": "string"}, "date": {"type": "string", "description": "ISO 8601"}},
            "required": ["origin"],
        },
    }
    call = {
        "id": "call_9aXk2LmPq0RsTuVwXyZ12345",
        "type": "function",
        "function": {"name": "search", "arguments": '{"origin": "LIS", "date": "2024-03-01"}'},
    }
    found = json.dumps(
        {"offers": [{"id": f"TR{n}", "price": 120.5 + n, "departs": "2024-03-01T09:40"} for n in range(6)]}
    )
    request = {"model": "desk", "temperature": 1.0, "tools": [{"type": "function", "function": tool}], "messages": [
        {"role": "system", "content": "You are a travel desk. " + _PROSE * 3},
        {"role": "user", "content": _PROSE * 3},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": found},
    ]}  # fmt: skip
    message = {"role": "assistant", "content": (_PROSE * 6)[:1250], "refusal": None, "tool_calls": []}
    response = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "object": "chat.completion", "created": 1700000000,
                "model": "desk", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 700, "completion_tokens": 300, "total_tokens": 1000}}  # fmt: skip
    return raw(request, json.dumps(response).encode())


def stream(pieces: list[str]) -> RawExchange:
    """The same request, answered in as many events, each with a token id and its log-prob."""
    events: list[bytes] = []
    for number, piece in enumerate(pieces):
        logprob = {"token": piece, "logprob": -0.25 - number / 100, "bytes": list(piece.encode()), "top_logprobs": []}
        choice = {"index": 0, "delta": {"content": piece}, "logprobs": {"content": [logprob]}, "finish_reason": None,
                  "token_ids": [1000 + number]}  # fmt: skip
        event = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "object": "chat.completion.chunk",
                 "created": 1700000000, "model": "desk", "choices": [choice]}  # fmt: skip
        events.append(b"data: " + json.dumps(event).encode() + b"\n\n")
    request = json.loads(plain().request) | {"stream": True}
    return raw(request, b"".join((*events, b"data: [DONE]\n\n")), "text/event-stream; charset=utf-8")


def microseconds(redactor: Redactor, exchange: RawExchange, rounds: int) -> float:
    """Median of one call."""
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        redactor.exchange(exchange)
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def survives(redactor: Redactor, plant: Plant) -> bool:
    """Whether the planted value is still there, sent as a user message and as an answer in pieces of three."""
    asked = raw({"messages": [{"role": "user", "content": plant.text}]}, b"")
    kept = json.dumps(json.loads(redactor.exchange(asked).request), ensure_ascii=False)
    if plant.value in kept or json.dumps(plant.value, ensure_ascii=False)[1:-1] in kept:
        return True
    pieces = [plant.text[at : at + 3] for at in range(0, len(plant.text), 3)]
    answered = redactor.exchange(stream(pieces)).response
    return plant.value in "".join(
        json.loads(line[6:])["choices"][0]["delta"]["content"] for line in answered.split(b"\n\n") if line[6:7] == b"{"
    )


def recorded(redactor: Redactor, text: str, place: str) -> str:
    """What is kept of `text`, sent where `place` says."""
    place = place.lower()
    if "feedback" in place:
        return redactor.feedback(Feedback(id="0" * 32, received=1.0, text=text)).text
    if "header" in place:
        return ""  # none is kept
    if any(word in place for word in ("stream", "chunk", "split", "sse")):
        answered = redactor.exchange(stream([text[at : at + 3] for at in range(0, len(text), 3)])).response
        events = [json.loads(line[6:]) for line in answered.split(b"\n\n") if line[6:7] == b"{"]
        return "".join(one["choices"][0]["delta"].get("content") or "" for one in events)
    if "argument" in place or "call" in place:
        try:
            named = isinstance(json.loads(text), dict)
        except ValueError:
            named = False
        arguments = text if named else json.dumps({"text": text}, ensure_ascii=False)
        call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
        messages: list[dict[str, object]] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    elif "tool" in place or "result" in place:
        messages = [{"role": "tool", "tool_call_id": "call_1", "content": text}]
    elif "answer" in place or "assistant" in place or "response" in place:
        body = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        answered = redactor.exchange(raw({"messages": []}, json.dumps(body).encode())).response
        return str(json.loads(answered)["choices"][0]["message"]["content"])
    else:
        messages = [{"role": "system" if "system" in place else "user", "content": text}]
    kept = json.loads(redactor.exchange(raw({"messages": messages}, b"")).request)["messages"][0]
    if kept["content"] is None:
        return str(kept["tool_calls"][0]["function"]["arguments"])
    return str(kept["content"])


def readable(text: str) -> list[str]:
    """`text`, and what anybody reads in it: JSON's and HTML's escapes, percent signs, base64."""
    forms = [
        text,
        unquote(text),
        html.unescape(text),
        re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text),
    ]
    forms.append(text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
    for found in re.findall(r"[A-Za-z0-9+/_-]{8,}={0,2}", text):
        try:
            forms.append(base64.b64decode(found.rstrip("=") + "=" * (-len(found.rstrip("=")) % 4), b"-_").decode())
        except (binascii.Error, ValueError):
            continue
    return forms


def kept_of(redactor: Redactor, text: str, place: str, secret: str) -> bool:
    """Whether the secret can still be read where it was sent."""
    return any(secret in form for form in readable(recorded(redactor, text, place)))


def of_a_list(redactor: Redactor, path: Path) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """The figures of a list of plants, and (place, text) of those that stay."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    stayed = [
        (str(one["place"]), str(one["text"]))
        for one in lines
        if kept_of(redactor, str(one["text"]), str(one["place"]), str(one["secret"]))
    ]
    return {"planted": len(lines), "redacted": len(lines) - len(stayed)}, stayed


def real_texts(rng: random.Random, count: int) -> list[str]:
    """Pieces of our own prose and code, and of Python's library, as an agent's tools would return them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted([*_ROOT.glob("*.md"), *_ROOT.glob("docs/*.md"), *_ROOT.glob("a*/**/*.py"), *library.glob("*.py")])
    texts: list[str] = []
    while len(texts) < count:
        text = rng.choice(files).read_text(encoding="utf-8", errors="replace")
        at = rng.randrange(max(1, len(text) - _CHUNK))
        texts.append(text[at : at + _CHUNK])
    return texts


def tool_results() -> list[str]:
    """Real answers of tools, of many repositories, labelled for another purpose (tests/data/tool_results)."""
    files = sorted((_ROOT / "tests/data/tool_results").glob("*.jsonl"))
    return [json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def by_kind(texts: list[str], redact: Callable[[str], tuple[str, dict[str, int]]]) -> tuple[int, dict[str, int]]:
    """Messages with a find, and finds by kind."""
    hit, kinds = 0, collections.Counter[str]()
    for text in texts:
        found = redact(text)[1]
        hit += bool(found)
        kinds.update(found)
    return hit, dict(kinds)


def main() -> None:
    parser = report.arguments(__doc__ or "")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20, help="plants of each form (20)")
    parser.add_argument("--ordinary", type=int, default=5000, help="ordinary messages (5000)")
    parser.add_argument("--plants", type=Path, help="a list of plants instead: JSON objects with text, place, secret")
    options = parser.parse_args()
    redactor = Redactor(RedactionSettings())
    if options.plants is not None:
        figures, stayed = of_a_list(redactor, options.plants)
        report.table("Plants that stayed", ("place", "text"), [(place, text[:120]) for place, text in stayed])
        print(f"planted {figures['planted']:.0f}, redacted {figures['redacted']:.0f}")
        report.write(options.json, "redaction", figures, [])
        return
    planted, gone = collections.Counter[tuple[str, bool]](), collections.Counter[tuple[str, bool]]()
    for plant in plants(options.seed, options.rounds):
        planted[plant.kind, plant.held_out] += 1
        gone[plant.kind, plant.held_out] += not survives(redactor, plant)
    figures: dict[str, float] = {}
    rows: list[tuple[object, ...]] = []
    for kind in sorted({kind for kind, _ in planted}):
        shares = [100 * gone[kind, held] / planted[kind, held] for held in (False, True)]
        figures |= {f"{kind}_redacted": shares[0] / 100, f"{kind}_held_out_redacted": shares[1] / 100}
        rows.append((kind, planted[kind, False], shares[0], planted[kind, True], shares[1]))
    totals = [sum(planted[key] for key in planted if key[1] is held) for held in (False, True)]
    whole = [100 * sum(gone[key] for key in gone if key[1] is held) / totals[held] for held in (False, True)]
    figures |= {"all_redacted": whole[0] / 100, "all_held_out_redacted": whole[1] / 100}
    rows.append(("all", totals[0], whole[0], totals[1], whole[1]))
    report.table("Plants redacted, %", ("kind", "known forms", "%", "held-out forms", "%"), rows)

    rng = random.Random(options.seed)
    rows = []
    for name, texts in (
        ("generated", ordinary(options.seed, options.ordinary)),
        ("real", real_texts(rng, 2000)),
        ("tool_results", tool_results()),
    ):
        hit, kinds = by_kind(texts, redactor.text)
        figures[f"false_positives_{name}_per_1000"] = 1000 * hit / len(texts)
        rows.append((name, len(texts), 1000 * hit / len(texts), ", ".join(f"{k} {n}" for k, n in kinds.items()) or "-"))
    report.table("Ordinary messages with a find, per 1,000", ("", "messages", "per 1,000", "finds"), rows)

    text = (_PROSE * 3)[: 6 * _EVENTS]
    clean = stream([text[at : at + 6] for at in range(0, len(text), 6)])
    dirty = stream([*clean.request.decode()[:0], *[text[at : at + 6] for at in range(0, 240, 6)], *"a.b@example.com"])
    costs = {
        "plain_us": (plain(), "plain, nothing found"),
        "stream_us": (clean, f"{_EVENTS} events with ids, nothing found"),
        "stream_found_us": (dirty, "stream with an address in 15 pieces"),
    }
    rows = []
    for key, (exchange, name) in costs.items():
        microseconds(redactor, exchange, 200)
        figures[key] = microseconds(redactor, exchange, 1000)
        rows.append((name, len(exchange.request), len(exchange.response), figures[key]))
    report.table("Cost of one exchange", ("", "request bytes", "response bytes", "median us"), rows)
    report.write(options.json, "redaction", figures, [options.seed])


if __name__ == "__main__":
    main()
