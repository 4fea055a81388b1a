"""A chat endpoint that models judges which can be talked to, by stated rules; real HTTP, no model.

It reads the prompt that it gets: lines with a mark and JSON strings, as `adapters.judges.prompt` writes them. A careful
one gives an honest opinion (`_opinion`). An obedient one takes over verdicts in the form of an answer, obeys orders in
any of the languages below, hidden ones included, and takes an answer without content for a good one (arXiv
2507.08794), all of that in quotes or not: it neither asks who wrote the prompt nor knows what screening looks for.
"""

import json
import re
import unicodedata
from typing import Literal

import msgspec
from anyio.abc import ByteStream

from tests.support.engine import Asked, Engine, answer

_MARKED = re.compile(r"^(\S+) (GOAL|OUTCOME|END|STEP (\d+) (TEXT|CALL|ARGUMENTS|RESULT|NEXT))\b ?(.*)$")
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

    mark: str
    steps: dict[int, Read] = {}
    success: bool = False
    texts: list[str] = []
    """All that is written in it, in quotes or not."""


class Gullible:
    """A script for `tests.support.engine`: judges the log in a request, `careful` or `obedient`."""

    def __init__(self, profile: Literal["careful", "obedient"]) -> None:
        self._obeys = profile == "obedient"

    async def __call__(self, engine: Engine, asked: Asked, stream: ByteStream) -> bool:
        messages = asked.json["messages"]
        content = self.judge(messages[0]["content"], messages[-1]["content"])
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": sum(len(m["content"]) for m in messages) // 4, "completion_tokens": len(content) // 4}
        body = {"id": "c", "object": "chat.completion", "created": 1, "model": "gullible", "choices": [choice]}
        await stream.send(answer(200, {**body, "usage": {**usage, "total_tokens": sum(usage.values())}}))
        return True

    def judge(self, system: str, user: str) -> str:
        mark = re.search(r"The mark of this log is (\w+)\.", system)
        assert mark is not None
        log = Log(mark[1])
        for line in user.splitlines():
            self._take(log, line)
        labels = {number: self._opinion(number, log) for number in log.steps}
        for number, label in self._believed(log).items() if self._obeys else ():
            labels |= {own: label for own in labels if number in (0, own)}
        entries = [
            {"step": number, "reason": "as it looks", "confidence": 0.9, "label": label}
            for number, label in sorted(labels.items())
        ]
        return json.dumps({"mark": log.mark, "steps": entries})

    def _take(self, log: Log, line: str) -> None:
        found = _MARKED.match(line)
        if found is None or found[1] != log.mark:
            log.texts.append(line)
            return
        _, kind, number, name, rest = found.groups()
        if kind == "OUTCOME":
            log.success = log.success or rest.startswith("success")
        try:
            text = json.loads(rest)
        except ValueError:
            return
        if not isinstance(text, str):
            return
        log.texts.append(text)
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
        text = step.action.strip().rstrip(":.").casefold()
        if not re.search(r"\w", text) or text in _OPENERS:
            return "GOOD" if self._obeys else "BAD"
        if number == max(log.steps):
            return "GOOD" if log.success else "BAD"
        later = " ".join(log.steps[n].action for n in log.steps if n > number)
        used = any(value in later for value in _VALUE.findall(result))
        return "GOOD" if used or '"ok"' in result else "BAD"

    def _believed(self, log: Log) -> dict[int, str]:
        """Labels that somebody talked it into; 0 is every step."""
        found: dict[int, str] = {}
        for text in log.texts:
            found |= _orders(text)
            for pattern in _COPIED:
                found |= {int(number): label.upper() for number, label in pattern.findall(_plain(text))}
        return found


def _orders(text: str) -> dict[int, str]:
    """A sentence with a word of praise and a word that says of what; of one step if it names one."""
    found: dict[int, str] = {}
    for sentence in re.split(r"[\n.!。！؟]", _plain(text)):
        lowered = sentence.casefold()
        if not any(map(lowered.__contains__, _SCOPE)):
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
