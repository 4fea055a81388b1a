"""A chat endpoint that models judges which can be talked to, by stated rules; real HTTP, no model.

It reads the prompt that it gets, whoever wrote that: sections `EVAL-STEP n` / `ACTION:` / `OBSERVATION:` as in a prompt
that pastes raw text, or lines with a mark and JSON strings as `adapters.judges.prompt` writes them. Without gullibility
it gives an honest opinion (`_opinion`). What makes it believe more is a set of traits, none of which asks who wrote the
prompt or knows what screening looks for:

* outside: obeys orders that stand outside of quotes.
* template: obeys what follows a special token or a role marker of a chat template, in quotes or not.
* copies: takes over verdicts in the form of an answer, in quotes or not.
* careless: reads \\n in quotes as a line break, and takes lines found so for structure, whatever mark they have.
* obedient: obeys orders anywhere, in any of the languages below, hidden ones included.
* impressed: takes an answer without content for a good one (arXiv 2507.08794).

`degree` is the chance that it believes what it could believe.
"""

import json
import random
import re
import unicodedata

import msgspec
from anyio.abc import ByteStream

from tests.support.engine import Asked, Engine, answer

Trait = str
PROFILES: dict[str, tuple[frozenset[Trait], float]] = {
    "careful": (frozenset(), 1.0),
    "outside": (frozenset({"outside"}), 1.0),
    "template": (frozenset({"outside", "template"}), 1.0),
    "copies": (frozenset({"outside", "copies"}), 1.0),
    "careless": (frozenset({"outside", "careless"}), 1.0),
    "impressed": (frozenset({"impressed"}), 1.0),
    "wavering": (frozenset({"outside", "template", "copies", "careless", "impressed", "obedient"}), 0.5),
    "obedient": (frozenset({"outside", "template", "copies", "careless", "impressed", "obedient"}), 1.0),
}

_SECTION = re.compile(r"^EVAL-STEP (\d+)\s*$", re.MULTILINE)
_MARKED = re.compile(r"^(\S+) (GOAL|OUTCOME|END|STEP (\d+) (TEXT|CALL|ARGUMENTS|RESULT|NEXT))\b ?(.*)$")
_SPECIAL = re.compile(
    r"<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>|(?:^|\n)\s*(?:#{2,4} ?)?"
    r"(?:system|instructions?|human|assistant)\s*:",
    re.IGNORECASE,
)
_COPIED = (
    re.compile(r"step\s*(\d+)\s*judge?ment\s*:\s*(good|bad)", re.IGNORECASE),
    re.compile(r"\"step\"\s*:\s*(\d+)[^{}]*\"label\"\s*:\s*\"(good|bad)\"", re.IGNORECASE),
)
_PRAISE = (
    "good", "correct", "right", "perfect", "helpful", "successful", "positive", "passed", "flawless", "useful",
    "gut", "richtig", "korrekt", "bien", "bon", "bonne", "bonnes", "correctes", "bueno", "buenos", "correctos",
    "buono", "corretti", "bom", "corretos", "хорош", "верн", "правильн", "好", "正确", "良い", "正しい", "좋",
    "올바", "جيد", "صحيح", "अच्छ", "सही", "iyi", "doğru", "dobre", "poprawn", "goed", "juist", "tốt", "đúng",
)  # fmt: skip
_SCOPE = (
    "all", "every", "each", "everything", "step", "steps", "this log", "verdict", "alle", "jeden", "schritt",
    "toutes", "tous", "étape", "todos", "cada", "paso", "tutti", "passo", "passi", "все", "кажд", "шаг", "所有",
    "全部", "步骤", "すべて", "全て", "ステップ", "모든", "단계", "جميع", "كل", "الخطوات", "सभी", "चरण", "tüm",
    "adım", "wszystkie", "krok", "stappen", "tất cả", "bước",
)  # fmt: skip
_OPENERS = ("thought process", "solution", "let's solve this problem step by step", "解", "かいせつ", "respuesta")
_VALUE = re.compile(r"\b[A-Z]+\d+\b")
_LOOK_ALIKES = str.maketrans("АВЕКМНОРСТХаеорсухіјѕԁɡ", "ABEKMHOPCTXaeopcyxijsdg")


class Read(msgspec.Struct):
    """A step as the judge understood it."""

    action: str = ""
    result: str | None = None


class Log(msgspec.Struct):
    """What the judge took for the log."""

    steps: dict[int, Read] = {}
    success: bool = False
    outside: list[str] = []
    """Text outside of quotes that came from the log."""
    quoted: list[str] = []
    mark: str = ""


class Gullible:
    """A script for `tests.support.engine`: judges the log in a request.

    Args:
        profile: one of `PROFILES`.
        seed: of the chance to believe.
    """

    def __init__(self, profile: str, seed: int = 0) -> None:
        self.traits, self.degree = PROFILES[profile]
        self._rng = random.Random(seed)

    async def __call__(self, engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        messages = asked.json["messages"]
        content = self.judge(messages[0]["content"], messages[-1]["content"])
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": sum(len(m["content"]) for m in messages) // 4, "completion_tokens": len(content) // 4}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "gullible", "choices": [choice]}
        await stream.send(answer(200, {**body, "usage": {**usage, "total_tokens": sum(usage.values())}}))
        return True

    def judge(self, system: str, user: str) -> str:
        """The answer, in the form that the prompt asks for."""
        log = self._read(system, user)
        labels = {number: self._opinion(number, log) for number in log.steps}
        for number, label in self._believed(log).items():
            for own in labels if number == 0 else {number} & set(labels):
                if self._rng.random() < self.degree:
                    labels[own] = label
        if log.mark:
            entries = [
                {"step": number, "reason": "as it looks", "confidence": 0.9, "label": label}
                for number, label in sorted(labels.items())
            ]
            return json.dumps({"mark": log.mark, "steps": entries})
        return "\n".join(f"Step {number} Judgment: {label}" for number, label in sorted(labels.items()))

    def _read(self, system: str, user: str) -> Log:
        mark = re.search(r"The mark of this log is (\w+)\.", system)
        return self._read_marked(user, mark[1]) if mark else self._read_sections(user)

    def _read_sections(self, user: str) -> Log:
        """The first that looks like a step, or like its observation, counts as it."""
        log = Log(outside=[user], success="OUTCOME: success" in user.split("EVAL-STEP")[0])
        parts = _SECTION.split(user)
        for number, text in zip(map(int, parts[1::2]), parts[2::2], strict=True):
            action, _, result = text.partition("\nOBSERVATION:")
            log.steps.setdefault(number, Read(action, result.partition("\nOBSERVATION:")[0]))
        return log

    def _read_marked(self, user: str, mark: str) -> Log:
        log = Log(mark=mark)
        careless = "careless" in self.traits and self._rng.random() < self.degree
        for line in user.splitlines():
            found = _MARKED.match(line)
            if found is None or found[1] != mark:
                if not line.startswith(mark):
                    log.outside.append(line)
                continue
            self._take(log, found, careless)
        return log

    def _take(self, log: Log, found: re.Match[str], careless: bool) -> None:
        _, kind, number, name, rest = found.groups()
        if kind == "OUTCOME":
            log.success = log.success or rest.startswith("success")
        try:
            text = json.loads(rest)
        except ValueError:
            return
        if not isinstance(text, str):
            return
        log.quoted.append(text)
        if careless:
            for inner in map(_MARKED.match, text.split("\n")[1:]):
                if inner is not None:
                    self._take(log, inner, False)
        if not number:
            return
        step = log.steps.setdefault(int(number), Read())
        if name in ("RESULT", "NEXT"):
            step.result = text if step.result is None else step.result
        else:
            step.action += f" {text}"

    def _opinion(self, number: int, log: Log) -> str:
        """Honest: errors, repeats, useless calls, answers without content and the end of a failure are bad."""
        step = log.steps[number]
        result = step.result or ""
        if '"error"' in result:
            return "BAD"
        if number > 1 and any(log.steps[n] == step for n in log.steps if n < number):
            return "BAD"
        text = re.sub(r"^\s*ACTION:", "", step.action).strip().rstrip(":.").casefold()
        if not re.search(r"\w", text) or text in _OPENERS:
            return "GOOD" if "impressed" in self.traits and self._rng.random() < self.degree else "BAD"
        if number == max(log.steps):
            return "GOOD" if log.success else "BAD"
        later = " ".join(log.steps[n].action for n in log.steps if n > number)
        used = any(value in later for value in _VALUE.findall(result))
        return "GOOD" if used or '"ok"' in result else "BAD"

    def _believed(self, log: Log) -> dict[int, str]:
        """Labels that somebody talked it into; 0 is every step."""
        found: dict[int, str] = {}
        texts = [*log.outside, *log.quoted]
        if "outside" in self.traits:
            for text in log.outside:
                found |= _orders(text)
        if "template" in self.traits:
            for text in texts:
                for part in _SPECIAL.split(text)[1:]:
                    found |= _orders(part)
        if "copies" in self.traits:
            for text in texts:
                for pattern in _COPIED:
                    found |= {int(number): label.upper() for number, label in pattern.findall(_plain(text))}
        if "obedient" in self.traits:
            for text in texts:
                found |= _orders(text)
        return found


def _orders(text: str) -> dict[int, str]:
    """A sentence with a word of praise and a word that says of what; of one step if it names one."""
    found: dict[int, str] = {}
    for sentence in re.split(r"[\n.!。！؟]", _plain(text)):
        lowered = sentence.casefold()
        if _SECTION.match(sentence) or not any(map(lowered.__contains__, _SCOPE)):
            continue
        if any(re.search(rf"\b{word}" if word.isascii() else word, lowered) for word in _PRAISE):
            one = re.search(r"(?:step|schritt|paso|étape|шаг|步骤|ステップ)\s*(\d+)", lowered)
            found[int(one[1]) if one else 0] = "GOOD"
    return found


def _plain(text: str) -> str:
    """As a model reads it: hidden letters decoded, look-alikes as what they look like."""
    decoded = "".join(
        chr(ord(letter) - 0xE0000) if 0xE0020 <= ord(letter) < 0xE007F
        else chr(ord(letter) - 0xE0100 + 16) if 0xE0100 <= ord(letter) < 0xE01F0
        else letter
        for letter in text
    )  # fmt: skip
    normal = unicodedata.normalize("NFKC", decoded).translate(_LOOK_ALIKES)
    return "".join(letter for letter in normal if unicodedata.category(letter) not in ("Cf", "Mn"))
