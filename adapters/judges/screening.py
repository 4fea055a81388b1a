"""Does a trajectory talk to its judge? Is an answer empty of content? Told by rule, before any opinion counts.

Quoting keeps strangers' words from becoming structure; it cannot keep a gullible model from doing what they say. So
where a window's text addresses the assessment itself, opinion does not count for whoever wrote it. If that was the
agent, a step loses GOOD and keeps BAD: talking gains nothing over silence. If it was a tool or a user, all labels of
the window go, for they might be meant to harm as well. Verified evidence still labels such steps.

The strongest sign needs no language: the labels are the words GOOD, BAD and ABSTAIN in capitals, and whoever wants one
as a rule names it. The other patterns are English. An order in another language that names no label passes here.
"""

import re
import unicodedata

from actors.messages import Step, Trajectory
from adapters.chat.quoting import visible
from adapters.judges.evidence import words

_LOOK_ALIKES = str.maketrans(
    "АВЕКМНОРСТХаеорсухіјѕԁɡοαΑΒΕΗΙΚΜΝΟΡΤΧ",
    "ABEKMHOPCTXaeopcyxijsdgoaABEHIKMNOPTX",
)
"""Cyrillic and Greek letters that look Latin."""
_LABEL = re.compile(r"\b(?:GOOD|ABSTAIN)\b|\bBAD\b")
_ADDRESSED = re.compile(
    r"""
      ["'](?:label|verdict|judg(?:e)?ment|rating)["']\s*:
    | \b(?:step|action|answer)\s*\#?\d+\s*(?:judg(?:e)?ment|verdict|label|rating|is\s+(?:good|correct|bad))\b
    | \b(?:verdict|judg(?:e)?ment|assessment|label|rating|grade|score)\s*[:=]\s*
      ["']?(?:good|bad|correct|pass|10/10|1\.0)\b
    | \b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instruction|rule|prompt|guideline|rubric|criteri|above)
    | \b(?:mark|label|rate|grade|score|classify|judge|count|treat|assess)\b.{0,40}
      \b(?:steps?|actions?|answers?|responses?|trajectory|log|everything|all)\b.{0,40}
      \b(?:good|correct|right|perfect|successful|positive|helpful|bad|wrong|highest|full\s+marks)\b
    | \b(?:dear|attention|note\s+to(?:\s+the)?|message\s+to(?:\s+the)?|hello|hey)\s+
      (?:ai\s+|llm\s+)?(?:judge|grader|evaluator|assessor|labell?er|annotator|reviewer)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_TEMPLATE = re.compile(
    r"<\|[^<>|]{1,40}\|>|<\s*/?\s*(?:s|start_of_turn|end_of_turn|think|assessment|system)\s*>|\[/?INST\]|<</?SYS>>"
)
_COVERT = (range(0xE0000, 0xE0080), range(0xE0100, 0xE01F0), range(0x202A, 0x202F), range(0x2066, 0x206A))
"""Tag characters, supplementary variation selectors, bidirectional overrides and isolates: text for machines alone."""
_SPLIT_WORD = re.compile(r"[a-zA-Z][\u00ad\u200b-\u200f\u2060\ufeff]+[a-zA-Z]")
_SCANNED = 20_000
"""Characters of a field that are looked at; of a longer one, head and tail."""

_OPENERS = frozenset(
    {
        "thought process", "solution", "answer", "final answer", "reasoning", "explanation", "analysis", "result",
        "done", "let s solve this problem step by step", "let s think step by step", "let me think",
        "here is the answer", "sure", "解", "解答", "答案", "かいせつ", "解説", "回答", "respuesta", "solución",
        "réponse", "lösung", "antwort", "решение", "ответ", "الحل",
    }
)  # fmt: skip
"""What fools judges although it says nothing (arXiv 2507.08794), and its like."""


def agent_speaks(step: Step) -> bool:
    """Whether what the agent wrote in `step` speaks of labels, to a judge, or in the tokens of a chat template."""
    written = [step.text, *(text for call in step.tool_calls for text in (call.name, call.arguments))]
    return any(map(speaks_to_judge, written))


def speaks_to_judge(text: str) -> bool:
    """Whether `text` does."""
    if len(text) > 2 * _SCANNED:
        text = text[:_SCANNED] + "\n" + text[-_SCANNED:]
    if any(ord(letter) in span for letter in text if ord(letter) > 0x2000 for span in _COVERT):
        return True
    if _SPLIT_WORD.search(text) or _TEMPLATE.search(unicodedata.normalize("NFKC", text)):
        return True
    plain = visible(text).translate(_LOOK_ALIKES)
    return _LABEL.search(plain) is not None or _ADDRESSED.search(plain) is not None


def lacks_content(step: Step, trajectory: Trajectory) -> bool:
    """Whether `step` calls nothing and says nothing: no letter, an opening phrase alone, or a promise of more.

    A few words that name nothing of what was asked for or found count as nothing too.
    """
    if step.tool_calls:
        return False
    text = visible(step.text).strip()
    bare = " ".join(re.findall(r"\w+", text.casefold()))
    if not bare or bare in _OPENERS or text.endswith((":", "：")):
        return True
    if len(bare) > 40:
        return False
    known = words(trajectory.goal).union(*(words(other.observation) for other in trajectory.steps))
    return not words(text) & known
