"""Whether a text that a tool answered with tells that the call failed.

A message (short, not laid out like source, Markdown or a listing) is read for words of failure, with what it quotes
taken out; anything longer only for what programs print when they break off: tracebacks, frames of a stack, exit codes,
compilers' and shells' complaints, HTTP statuses. So a file, a log or a ticket may speak of errors and is no failure.

Bounded work: only the first and the last characters of a text are looked at, and no expression nests quantifiers.
"""

import re
from collections.abc import Iterable

from actors.ports.tool_answers import phrases

NO = 1
"""The exit code by which `grep`, `diff` and `test` say no; by itself it is no failure."""
_HEAD = 4_096
"""Characters at the beginning that are read: a failure says so at once, or at the end."""
_TAIL = 2_048
"""Characters at the end that are read."""
_MESSAGE = 700
"""Characters of a message: longer is data."""
_SENTENCE = 260
"""Characters within which a word of failure speaks of the call and not of something that was found."""
_ALONE = 120
"""Characters of a sentence that says nothing but that something is not so."""
_MESSAGE_LINES = 12
_DENSE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
"""Scripts that say in one character what takes others three."""
_DENSE_SENTENCE = 90

_QUOTED = re.compile(
    r"\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”|„[^“”\n]{0,300}[“”]|«[^»\n]{0,300}»|「[^」\n]{0,300}」|`[^`\n]{0,300}`|'[^'\n]{3,300}'(?!\w)"
)
_MARKS = r"^[^\w\n]{0,8}"
_ERROR_HEAD = re.compile(
    _MARKS + r"(?:(?:[a-z]{1,20} ){0,3}?(?:error|errors|exception|failure|fault)\b"
    r"(?:\(s\))?(?:\W{0,3}$|\s{0,2}[:!\]>)#]|\s\w{1,20}(?:ing|ando|iendo|endo)\b|\sresponse\b"
    r"|\s(?:occurred|while|when|during|from|code|at|-?\d)|\sin [^\n]{1,80}:)|[1-9]\d{0,4} validation errors?\b)",
    re.IGNORECASE | re.MULTILINE,
)
_HEADS = re.compile(_MARKS + f"(?:{phrases.HEADS})", re.IGNORECASE)
_PHRASES = re.compile(rf"(?<![-./_])\b(?:{phrases.PHRASES})(?![-./_]\w)", re.IGNORECASE)
_FOREIGN = re.compile(phrases.FOREIGN, re.IGNORECASE)
_SUCCESS = re.compile(rf"(?<!un)(?<!not )(?<!not been )(?:{phrases.SUCCESS})", re.IGNORECASE)
_NEGATED = re.compile(phrases.NEGATED, re.IGNORECASE)
_FINE = re.compile(_MARKS + f"(?:{phrases.FINE})", re.IGNORECASE)
_LABEL = re.compile(
    r"((?:(?:Q|[A-Z][a-z]{2,20})(?= \(|:[^\n]{0,700}(?:[.;!?]\s|\n))|[A-Z]\S{0,30} [^\n:\"'`{}()\[\]]{1,50})"
    r"(?: \([^)\n]{1,60}\))?):\s|[A-Z][^\n.:!?\"']{2,60}\n\n"
)
"""A heading of something that was looked up, which may tell of any mishap: a failure names itself in it. One
word heads more than one sentence: `Path: /x does not exist`."""
_FIELD = re.compile(r"([\w .-]{1,30}):(?:\s|$)")
_NAMES = re.compile(
    _MARKS + r"-?ERR\b|\bERR_[A-Z_]{3,40}\b|"
    r"\bE(?:ACCES|PERM|NOENT|EXIST|NOTDIR|ISDIR|INVAL|MFILE|NOSPC|ROFS|PIPE|TIMEDOUT|CONNREFUSED|"
    r"CONNRESET|CONNABORTED|HOSTUNREACH|NETUNREACH|NOTFOUND|AI_AGAIN|ADDRINUSE|NOTEMPTY|BUSY|NOMEM|AGAIN|CANCELED)\b|"
    r"\b(?:[A-Z]{2,20}_){0,4}(?:NOT_FOUND|INVALID_[A-Z]{2,20}|ALREADY_EXISTS|PERMISSION_DENIED|ACCESS_DENIED|"
    r"[A-Z]{2,20}_(?:EXCEEDED|FAILED|ERROR|FAILURE|EXPIRED|MISSING|UNAVAILABLE)|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|"
    r"OUT_OF_RANGE|UNIMPLEMENTED|UNAUTHENTICATED|UNAUTHORIZED)\b"
)
"""Names of errors in capitals: errno, Redis, Chrome, Node, the codes of gRPC and what is formed like them."""
_IF = re.compile(
    r"\b(?:if|in case|unless|whenever|wenn|falls|when (?:this|it|you|the))\b[^.,;:!?\n]*"
    r"|[^.!?\n]{0,200}\b(?:usually|typically|often|generally)\b[^.!?\n]*"
    r"|(?m:^(?:\w{1,20} )?warn(?:ing)?\b[^\n]*\n)|\n(?:\w{1,20} )?warn(?:ing)?\b[^\n]*",
    re.IGNORECASE,
)
"""What would be a failure if it happened; what is said of mishaps at large; warnings beside something else."""
_ENTRY = re.compile(r"\s{0,8}(?:\d{1,6}[.):]? |[-*•] )\s{0,8}\S")
_CELLS = re.compile(r"[,;\t](?! )| \| |(?<=\S) {2,}(?=\S)")
_CODE = (
    r"(?:(?:if|for|while|return|throw|raise|except|const|let|var|with|try|else|elif|\} catch)\b[^\n]{0,200}[;:{,(]$"
    r"|(?:raise|throw new) [\w.]{1,60}\(|\w{1,40} = |def \w|[)}\]]{1,3}[;,]?$)"
)
_LAID_OUT = re.compile(
    rf"^\s{{0,8}}(?:{_CODE}|"
    r"#|//|/\*|[A-Z][A-Z0-9-]+\(\d\)|```|\||[-*] |\d+[:.] |package \w+;?$|class |def |func |function |import |"
    r"(?:fix|feat|chore|docs|refactor|test|build|ci|perf|style)(?:\([\w-]{1,40}\))?!?: |"
    r"(?:commit )?[0-9a-f]{7,40}(?: |$)|from \w+ import|export |public |"
    r"\[?[A-Z]{2,10}-\d{1,6}\]? |--- (?!FAIL)|(?:Re|Fwd|Subject|From): |"
    r"\[File: |diff --git|@@ |<\w|(?!\S{1,200}:\d{1,7}(?::\d{1,5})?: (?:fatal )?error: )\S{1,200}:\d+[:-])"
)
"""The first line of source, Markdown, a diff, a table, a history, or what grep prints."""
_STAMP = re.compile(
    r"\s{0,8}(?:\[[A-Z]{4,8}\] )?\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ]|[A-Z][a-z]{2} {1,2}\d{1,2} )?\d\d:\d\d(?::\d\d)?\b"
)
"""The time at the beginning of a line of a log."""
_BLOCKS = re.compile(rf"\s{{0,40}}(?:```|\"\"\"|#{{1,6}} \w|try:|\|.*\|$|{_CODE}|[-=+| ]{{4,}}$)")
"""Lines of source and tables: no message of several lines has one."""

_EXIT = re.compile(
    r"(?:\bexit(?:ed)?(?: with)?(?: an?)?(?: non-?zero)?(?: error)?(?: \(?(?:POSIX )?(?:exit )?)?(?: ?code| ?status)"
    r"|\breturn(?:ed)?[ _]code|\bexit[ _](?:code|status)|\bPOSIX exit code)(?: was| is)?"
    r"\W{0,3}?(-?\d{1,10})\b(?=\W{0,3}$|[:,)\]]| \()",
    re.IGNORECASE | re.MULTILINE,
)
_HTTP_FIRST = re.compile(
    _MARKS + r"(?:HTTP(?:/\d(?:\.\d)?)?\W{1,3}30[1278]:|"
    r"(?:HTTP(?:/\d(?:\.\d)?)?|(?:HTTP )?status(?: code)?|response(?: status| code)?|code)\W{1,3}[45]\d\d\b"
    r"|[45]\d\d\b\W{1,3}(?:client error|server error|bad request|unauthori|payment req|forbidden|not found|"
    r"method not|not acc|request|conflict|gone|length|precond|payload|uri too|unsupp|expect|unproc|locked|too many|"
    r"internal|not impl|bad gate|service|gateway|validation))",
    re.IGNORECASE,
)
_XML = re.compile(
    r"<(?:\w{1,20}:)?(?:errors?|errorresponse|fault|exception|faultcode|faultstring|error_message|tool_use_error|tool_call_error)\b",
    re.IGNORECASE,
)
_TITLE = re.compile(r"<title>[^<]{0,80}(?:\b[45]\d\d\b|error\b|not found|forbidden|unavailable)", re.IGNORECASE)
_EXCEPTION = re.compile(
    r"^\W{0,8}Traceback \(most recent call last\)|^\s{0,4}(?:\[?\w{1,20}\]? ){0,3}?(?:[\w$]{1,60}[.:/]{1,2}){0,12}"
    r"\w{0,60}(?:Error|Exception|Fault|Panic|Interrupt)\b(?:\s{0,2}[:(]|\s{0,4}$|\s{1,80}Traceback)"
    r"|[^\n]{1,250} \(\w{1,60}(?:Error|Exception)\)$"
    r"|^(?:Stop(?:Async)?Iteration|KeyboardInterrupt|SystemExit)\b"
    r"|^(?:[\w$]{1,60}\.){0,8}[A-Z]\w{0,60}[a-z](?:NotFound|DoesNotExist|Refused|Denied|Timeout|Violation|Failure|Failed|Expired)\s{0,2}[:(]"
)
_FRAME = re.compile(
    r"^[ \t]{0,8}(?:at [^\n]{2,200}[(:]\S{0,200}|File \"[^\"\n]{1,300}\", line \d+|#\d{1,3}[ \t]+\S[^\n]{0,300}[(:]"
    r"|from [^\n]{1,300}:\d+:in |[^\s:]{1,300}\.(?:rb|go|php):\d+(?::in | \+0x))",
    re.MULTILINE,
)
_BROKE_OFF = re.compile(
    r"^(?:\S{1,200}[:(]\d{1,7}(?:[:,]\d{1,5})?\)?: (?:fatal )?error(?: \w{1,9})?: |"
    r"failed \S+::\S|=+ [1-9]\d* failed\b|tests:\s+[1-9]\d* failed\b|failed \((?:failures|errors)=|--- fail: |"
    r"tests(?: run)?: [^\n]{1,40}(?:failures|errors): [1-9]|"
    r"\d+ (?:tests|examples|runs), [^\n]{0,40}\b[1-9]\d* failures?\b|test result: failed|"
    r"try '[^'\n]{1,60}--help'|\[error\] failed to |exception in thread|sqlstate\[(?!00)|"
    r"unhandled exception|uncaught |(?:php )?fatal error|php parse error|panic: |"
    r"thread '[^'\n]{0,80}'(?: \(\d+\))? panicked at|goroutine \d+ \[|signal: |segmentation fault|npm err(?:!|or )|"
    r"fatal: |error\[E\d+\]|error: |make(?:\[\d+\])?: \*\*\*|[^\s:][^\n:]{0,200}: (?:command )?not found$|"
    r"[^\n]{0,80}\bpanic serving\b|curl: \(\d+\) |"
    r"[^\n]{1,300}(?:: |\()(?:no such file(?: or directory)?|permission denied|operation not permitted|is a directory|"
    r"not a directory|connection refused|command not found|name or service not known|no route to host|"
    r"no space left on device)\)?$|"
    r"[^\n]{1,200} is not recognized as |\[?the command timed out|caused by: \S)",
    re.IGNORECASE | re.MULTILINE,
)
_FRAMES = 2
"""Frames that make a stack."""
_NEAR = 40
"""Lines at the beginning within which a stack begins if it is the answer."""


def says_failed(text: str) -> bool:
    """Whether `text` says that the call failed."""
    head, tail = text[:_HEAD].strip(), text[-_TAIL:].strip()
    lines = [line for line in head.splitlines()[: 4 * _NEAR] if line.strip()]
    if not lines:
        return False
    code = _exit_code(head, tail)
    if code is not None and code != NO:
        return code != 0
    if head.startswith("<"):
        return bool(_XML.search(head[:500]) or _TITLE.search(head))
    if _LAID_OUT.match(lines[0]) or len(list(filter(_STAMP.match, lines))) > 1:
        return False
    return _broken(lines, tail) or (not _table(lines) and _message(text.strip(), lines))


def _exit_code(head: str, tail: str) -> int | None:
    """The exit code that the end of an output states, or its first line."""
    found: Iterable[str] = _EXIT.findall(tail[-400:])
    codes = list(found) or _EXIT.findall(head.split("\n", 1)[0][:400])
    return int(codes[-1]) if codes else None


def _message(text: str, lines: list[str]) -> bool:
    """Whether it is a message, and of a failure."""
    if len(text) > 4 * _MESSAGE:
        return False
    first = lines[0].strip()[:_SENTENCE]
    if _FINE.match(first):
        return False
    if _HTTP_FIRST.match(first) or _ERROR_HEAD.match(first):
        return True
    if len(text) > _MESSAGE or len(lines) > _MESSAGE_LINES or (len(lines) > 1 and any(map(_BLOCKS.match, lines))):
        return False
    if len(lines) > 2 and all(map(_ENTRY.match, lines[1:])):
        text = first  # what a list of things is introduced by
    plain = _IF.sub("", _QUOTED.sub("_", text))[:_MESSAGE]
    if _SUCCESS.search(plain):
        return False
    label = _LABEL.match(text)
    if label and not any(said.search(label[0]) for said in (_HEADS, _PHRASES, _FOREIGN)):
        return False
    beginning = plain[:_SENTENCE]
    if _HEADS.match(plain) or _NAMES.search(beginning) or _PHRASES.search(beginning):
        return True
    if len(lines) == 1 and len(plain) <= _ALONE and _NEGATED.search(plain):
        return True
    sentence = _SENTENCE if plain.isascii() or not _DENSE.search(plain) else _DENSE_SENTENCE
    return len(plain) <= sentence and bool(_FOREIGN.search(plain))


def _table(lines: list[str]) -> bool:
    """Whether the lines are rows of cells, or fields by name: data, whatever it speaks of."""
    if len(lines) < 2:
        return False
    first = lines[:_MESSAGE_LINES]
    cells = [len(_CELLS.findall(line.strip())) for line in first]
    rows = all(cells) and (len(set(cells)) == 1 or (len(first) > 2 and cells[0] > 1))
    fields = sum(map(bool, map(_FIELD.match, first[-len(first) + 1 :])))
    told = any(_ERROR_HEAD.match(line) for line in first if line[0] != " ")  # what is set in is a part of a record
    return rows or (2 < len(first) == fields + 1 and not told)


def _broken(lines: list[str], tail: str) -> bool:
    """Whether a program printed it when it broke off."""
    near = lines[:_NEAR]
    said = [line[:300] for line in near[:3] if not _BLOCKS.match(line)]
    if any(_EXCEPTION.match(line) for line in said):
        return True
    stack = "\n".join(line[:400] for line in near)
    if len(_FRAME.findall(stack)) >= _FRAMES or _BROKE_OFF.search(stack) or _BROKE_OFF.search(tail[-_TAIL:]):
        return True
    told = "\nTraceback (most recent call last)" in tail or _FRAME.search(stack)
    return bool(told and _EXCEPTION.match(tail.rsplit("\n", 1)[-1][:300]))
