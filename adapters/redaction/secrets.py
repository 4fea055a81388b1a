"""Detectors of secrets that a name gives away: what stands after a name such as `password`, in code as in sentences of
many languages; cookies and commands; and long random words of no known form (`keys` has the known ones).

A value's name decides first and its look second: the further it stands from the name, the more it must look like a
secret.
"""

import re
from itertools import chain, pairwise

from adapters.redaction.detector import Detector, Spans, long_words, lowered, matches, near, places, says
from adapters.redaction.names import FOREIGN_PASSWORDS, PASSWORDS, SECRETS, named, stated_secret

_CURL = re.compile(r"(?:-u|--user)[ =]['\"]?[^\s:'\"]{1,64}:([^\s'\"]{3,200})")

_ENDING = re.compile(r"(?:(?![\u0e00-\u0e7f\u3000-\ud7ff])[\w.-]){0,24}(?:\sπρόσβασης)?")
"""From how a name begins to its end; scripts without spaces have none."""
_NO_PASSWORD = re.compile(r"pass(?!w|phrase|code|ord|e?s?(?![a-z]))|pw(?:d[a-z]|[a-ce-z])")
_JOINED = re.compile(
    # How a name is joined to its value; the value, in quotes that may be escaped, or up to what ends a word.
    r"(?:\\{0,3}[\"'`]?(?P<sign>\s{0,3}(?:=>|:=|=|:|：|>)\s{0,3}(?:[|>][+-]?\s{1,24})?"
    r"|\s{1,3}value\s?=\s?|</[\w:]{1,20}>\s{0,40}<[\w:]{1,20}>)|(?P<list>[\"']\s?,\s?(?=[\"']))|(?P<call>\((?=[\"']))"
    r"|\s(?:is|was|ist|lautet|es|est|è)\s{1,3}:?\s{0,2}|(?P<option>\s(?=[^\s-]))|是|は|为)"
    r"(?:\\{0,3}(?P<quote>[\"'`„“«])(?P<quoted>[^\"'`“”»\\\x00\n]{3,400})|(?P<bare>[^\s\"'`,;<>&\\|\x00“”»]{3,400}))"
)
_LINE_END = re.compile(r"[\"';, \t]{0,3}(?:[\r\n]|\Z)")
_VERB = (
    r"(?:is|was|are|be|to|stays|remains|ist|war|bleibt|hei(?:ß|ss)t|lautet|lautete|c'est|sera|será|es|era|est|était|è|era|é|jest|je|on|är|er|là|adalah|van|való"
    r"|ni|ay|és|e|este|είναι|е|คือ|هي|هو|है|это|היא)"
)
_VALUE = r"[\"'`“«„»‚‘›‹(]{0,1}(?P<value>[!-~\u00c0-\u024f]{4,128})"
_SAID = re.compile(
    r"(?i)(?P<fill>[^\n.!?;:=]{0,48}?)"
    rf"(?:\s{{0,3}}(?:[:=：→]|->)\s{{0,3}}|\?\s{{1,3}}(?:it[’']?s|it is|es ist|c'est|es)\s{{1,3}}"
    rf"|\s{_VERB}(?:\s(?:still|now|currently|again|aktuell|jetzt|noch|weiterhin|aún|ahora|toujours|ancora))?"
    rf"\s{{0,3}}:?\s{{1,3}}|(?:是|为|は|가|는|은|이)\s?){_VALUE}"
)
_NEXT = re.compile(rf"(?i)(?:\s[a-z]{{2,5}})?\s{{1,3}}{_VALUE}")
_USED = re.compile(
    rf"(?i)(?:use|using|take|enter|from|verwende|nimm|utilise[rz]?|usa|usar|gebruik)\s+{_VALUE}"
    r"\s+(?:as|for|to|als|comme|como|come)\s(?:[^\n.!?]{0,24}\s)?"
    rf"(?:{'|'.join((*PASSWORDS, *FOREIGN_PASSWORDS))})"
)
_PAIR = re.compile(
    r"(?i)(?:zugangsdaten|anmeldedaten|cred(?:ential)?s?|log(?:ged|ging)?[ -]?in(?: data)?|logins|sign(?:ed)?[ -]in)"
    r"(?:\s?[:=]|\s(?:is|are|with|as|using|mit|als|con|avec))\s?[\w.@+-]{2,64}"
    r"(?:\s?[/|,]\s?|:(?!\d{2,5}(?:[/,;\s]|$)))" + _VALUE
)
_PLACEHOLDER = re.compile(
    r"[\[{(<$%*].*|.*[(\[{].*[)\]}]|[A-Za-z_$][\w.$]*\(.*|.*\*\*\*.*|https?://.*|.*\.(?:com|org|html?|py|md|json|txt|ya?ml)"
    # An address, whose password it is about; a date, a version, a measure.
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|v?\d+(?:\.\d+)+\S*|\d{1,2}:\d\d.*|\d+[A-Za-z%]{1,4}|[A-Za-z]\d{1,3}"
)
_CODE = re.compile(
    r"(?i)(?<![a-z0-9])(?:pin(?:[- ]?(?:code|number|nummer))?|passcode|tan|otp|cvv2?|cvc2?|csc"
    r"|(?:verification|security|access|door|gate|alarm|unlock"
    r"|safe|lockbox|garage|login|log-in|one[- ]time|auth\w{0,12}|2fa|mfa|sms|sign-?in"
    r"|recovery|entry)[- ]?(?:pass)?code|(?:bestätigungs|sicherheits|zugangs|prüf"
    r"|anmelde|tür|tor|haustür|tresor|alarm)code|digicode|code (?:secret|confidentiel|(?:de |du |d['’]|de la |de l['’])"
    r"(?:vérification|sécurité|porte|portail|immeuble|entrée|alarme|digicode|coffre|carte))|geheimzahl|clave secreta"
    r"|c[oó]digo de (?:verificaci[oó]n|seguridad|acceso|verifica[cç][aã]o"
    r"|la (?:puerta|alarma)|la entrada|da porta)|codice (?:di (?:verifica|sicurezza)|della porta|del cancello)"
    r"|код\w{0,3}|验证码|認証コード|인증번호)"
    r"(?![a-z])(?P<fill>[^\n.!?;:=\d]{0,32}?)(?:\s{0,2}[:=：#]\s{0,2}"
    r"|\s(?:is|was|ist|lautet|est|es|è|é|это)(?:\s(?:now|still|jetzt|noch|le|la|el|il|o))?\s{1,2}"
    r"|(?:是|为|は|는|은)\s?|\s{1,2})[\"']?(?P<value>\d{3,8})(?![\w.]*\d)(?!\s?(?:%|EUR|USD|€|\$))"
)
_CODE_WORDS = (
    "pin", "tan", "otp", "geheimzahl", "clave secreta", "cvv", "cvc", "csc",
    "code", "c\u00f3digo", "codigo", "codice", "код", "验证码", "認証", "인증",
)  # fmt: skip
_CODE_REACH = 72
_CODE_FIRST = re.compile(
    r"(?i)(?:\b(?:use|enter|type)\s+(?P<value>\d{4,8})\s+(?:to|as|for)\s+(?:verify|confirm|log|sign|your|the|complete)"
    r"|\b(?P<other>\d{4,8})\s+is\s+(?:your|the)\s+[^\n.]{0,40}\b(?:code|pin|otp)\b)"
)


_COOKIE = re.compile(r"(?i)(?:set-)?cookie[\"']?\s?[:=]\s?[\"']?(?P<all>[^\r\n\"']{8,4096})")
_CRUMB = re.compile(r"([^=;\s]{1,64})=([^;\s]{12,})")
_COMMAND = re.compile(
    r"(?:\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,120}?\s-p(?=\S)|\bsshpass\s+-p\s?"
    r"|\b(?:docker|podman|helm|oc|az|skopeo|nerdctl)\b[^\n|;]{0,40}\blogin\b[^\n|;]{0,120}?\s-p\s+"
    r"|\bredis-cli\b[^\n|;]{0,80}?\s-a\s+|\bsqlcmd\b[^\n|;]{0,120}?\s-P\s?|\bopenssl\b[^\n|;]{0,80}?\s-k\s+"
    r"|\b(?:smbclient|rpcclient|smbget)\b[^\n|;]{0,120}?\s-U\s?['\"]?[^\s%'\"]{1,64}%"
    r"|\b(?:7z|7za|rar|unrar)\b[^\n|;]{0,120}?\s-p(?=\S)|\b(?:un)?zip\b[^\n|;]{0,120}?\s-P\s+"
    r"|\bnet\s+use\b[^\n|;]{0,120}?\s/user:\S{1,64}\s+"
    r"|\b(?:curl|http|wget)\b[^\n|;]{0,120}?\s-(?:u|a)\s+['\"]?[^\s:'\"]{1,64}:)"
    r"['\"]?([^\s'\"]{3,200})"
)
_PIPED = re.compile(
    r"\becho\s+(?:-\w\s+)?['\"]?(?:\w{1,32}:)?([^\s'\"|:]{4,128})['\"]?\s*\|\s*(?:sudo\s+-S|(?:sudo\s+)?chpasswd)"
)
_COMMANDS = (
    "mysql",
    "mariadb",
    "sshpass",
    "login",
    "redis-cli",
    "curl",
    "wget",
    "http ",
    "sqlcmd",
    "openssl",
    "smb",
    "rpcclient",
    "net use",
    "7z",
    "rar ",
    "zip ",
)
_PGPASS = re.compile(r"(?m)^[^:\s/]{1,253}:(?:\d{2,5}|\*):[^:\s/]{1,64}:[^:\s/]{1,64}:(\S{4,200})$")
_PHRASE = re.compile(
    r"(?i)(?:seed|recovery|mnemonic|secret|backup)[- ]?(?:phrase|words?|seed)?[^\n]{0,24}?[:\s\"'“]"
    r"((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})(?![a-z])"
)
_KEYED = re.compile(
    r"(?i)(?:key|token|secret)s?\s{1,2}[\"'`(]?"
    r"((?=[^\s\"'`]{0,200}\d)(?=[^\s\"'`]{0,200}[A-Za-z])[A-Za-z0-9+/_.=~-]{20,400})"
)
_SIGNED = re.compile(
    r"(?i)(?<![a-z0-9])(?:sig|signature|x-amz-signature|x-goog-signature|appid|api_?key|(?<=[?&])key|(?:session|sess|sid)[_-]?(?:id|key|token)?)"
    r"=([\w%+/.~-]{16,200}=*)"
)
_USERINFO = re.compile(r"://([A-Za-z0-9_-]{20,200})@")
_STATED = re.compile(
    r"(?i)\bidentified\s+(?:with\s+\S{1,40}\s+)?by\s+['\"](?P<by>[^'\"\n]{4,128})['\"]"
    r"|\bwith\s+(?:encrypted\s+)?password\s+'(?P<password>[^'\n]{4,128})'"
    r"|convertto-securestring\s{1,9}(?:-string\s{1,9})?['\"](?P<secure>[^'\"\n]{4,128})['\"]"
    r"|(?:login|auth|credentials?)\s?=?\s?\(\s?[\"'][^\"'\n]{1,64}[\"'],\s?[\"'](?P<couple>[^\"'\n]{4,128})[\"']\s?\)"
    r"|wifi:[^\n]{0,80}?[;:]p:(?P<wifi>(?:\\.|[^;\n]){4,63});"
)
"""What makes a user in SQL, a credential in PowerShell, a login in code (`auth=("me", "...")`); a network's QR code."""
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9+/=_.-])(?:[A-Za-z0-9]{2,20}[.~_-]{1,2}){0,3}(?=[A-Za-z0-9_-]{0,60}\d)(?=[A-Za-z0-9_-]{0,60}[A-Z])"
    r"(?=[A-Za-z0-9_-]{0,60}[a-z])[A-Za-z0-9_-]{36,200}(?:==?)?(?![A-Za-z0-9+/=_-])"
)


def _fields(text: str) -> Spans:
    """Values that a sign joins to a name that tells, whatever they are written in."""
    low, seen = lowered(text), -1
    for at, end in sorted(set(places(low, _HINTS if text.isascii() else (*_HINTS, *FOREIGN_PASSWORDS)))):
        if at < seen:
            continue
        seen = _ending(text, end)
        match = _JOINED.match(text, seen)
        if match is None:
            continue
        start = at
        while start and at - start < _LONGEST_NAME and (text[start - 1].isalnum() or text[start - 1] in "_-."):
            start -= 1
        name = text[start:seen]
        if (match["option"] and not name.startswith("-")) or (match["list"] and not _is_couple(text, start, match)):
            continue
        kind = named(name.lstrip("-")) or named(" ".join((*text[max(0, start - 24) : start].split()[-1:], name)))
        if kind in _TOLD and (span := _value(match, text, kind)):
            yield span


def _is_couple(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether a name and a value are all that is in brackets, rather than two words of a list."""
    return text[max(0, start - 2) : start - 1] in _OPENING and text[match.end() + 1 : match.end() + 2] in _CLOSING


def _ending(text: str, at: int) -> int:
    match = _ENDING.match(text, at)
    return match.end() if match else at


def _value(match: re.Match[str], text: str, name: str) -> tuple[int, int] | None:
    quoted = match["quote"] is not None
    start = match.start("quoted" if quoted else "bare")
    value = match["quoted"] if quoted else match["bare"].rstrip(".:!?)]}")
    end = start + len(value)
    sign = match["sign"] or ""
    floor = max(0, match.start() - _LONGEST_INDENT)
    before = text[max(floor, text.rfind("\n", floor, match.start()) + 1) : match.start()]
    on_its_own = " " not in before.strip() and _LINE_END.match(text, end) is not None
    tight = sign.strip() == sign and text[end : end + 1] not in ("(", ".", "[")
    alone = sign != "" and (tight or on_its_own)
    return (start, end) if stated_secret(name, value, quoted=quoted, alone=alone) else None


def _said(text: str) -> Spans:
    low = lowered(text)
    for at, end in places(low, _SAYING if text.isascii() else (*_SAYING, *FOREIGN_PASSWORDS)):
        if at and text[at - 1].isascii() and text[at - 1].isalnum():
            continue
        if _NO_PASSWORD.match(low, at):
            continue
        end = _ending(text, end)
        yield from _verbs(text, end)
        match = _NEXT.match(text, end)
        span = _trimmed(match) if match and (_mixed(match["value"]) or _near_user(low, at)) else None
        if span and looks_secret(text[slice(*span)], near=False):
            yield span
    if any(word in low for word in _USES):
        yield from _looking(_USED, text)


def _verbs(text: str, end: int) -> Spans:
    """What a verb or a colon behind the name says of it: the first that looks like one, as in `is still set to ...`."""
    near = True
    for _ in range(_MOST_HOPS):
        match = _SAID.match(text, end)
        if match is None:
            return
        near = near and not match["fill"].strip()
        span = _trimmed(match)
        if span and looks_secret(text[slice(*span)], near=near):
            yield span
            return
        end, near = match.start("value"), False


def _looking(pattern: re.Pattern[str], text: str) -> Spans:
    for match in pattern.finditer(text):
        if (span := _trimmed(match)) and looks_secret(text[slice(*span)], near=False):
            yield span


def _trimmed(match: re.Match[str]) -> tuple[int, int] | None:
    value = match["value"].rstrip("\"'`.,;:>")
    value = value if any(mark in value for mark in "([{") else value.rstrip("\"'`.,;:)]}>")
    start = match.start("value")
    return (start, start + len(value)) if len(value) > 3 else None


def looks_secret(value: str, *, near: bool) -> bool:
    """Whether a word is a password rather than a word about one.

    Args:
        near: it stands right behind the name.
    """
    if _PLACEHOLDER.fullmatch(value):
        return False
    digits, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    marks = any(mark in value[1:-1] for mark in "!@#$%^&*+?~")
    if letters and digits:
        return len(value) >= (5 if near else 7)
    if letters and marks:
        return len(value) >= 8 and (near or not value.istitle())
    if near and digits:
        return len(value) >= 4
    return letters and value.count("-") >= 2 and len(value) >= 16  # words of a passphrase


def _near_user(low: str, at: int) -> bool:
    """Whether a user is named right before the name at `at`."""
    return any(
        word in low[max(0, at - 48) : at] for word in ("user", "login", "log in", "sign in", "benutzer", "usuario")
    )


def _mixed(value: str) -> bool:
    """Not a name of something with a number: capitals in it, or marks."""
    return not value.islower() and not (value.isupper() and "-" in value)


def _codes(text: str) -> Spans:
    low = lowered(text)
    for at, _ in places(low, _CODE_WORDS):
        # What comes before the word belongs to its name; a number must stand behind it, or this is some other code.
        if any(map(str.isdigit, text[at : at + _CODE_REACH])):
            for match in near(_CODE, text, at, 16, _CODE_REACH):
                yield match.span("value")
    if any(word in low for word in (" to ver", " to conf", " to log", " to sign", " is your", " is the", "for ver")):
        for match in _CODE_FIRST.finditer(text):
            yield match.span("value" if match["value"] else "other")


def _cookies(text: str) -> Spans:
    for match in _COOKIE.finditer(text):
        for crumb in _CRUMB.finditer(match["all"]):
            value = crumb[2]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
                start = match.start("all")
                yield start + crumb.start(2), start + crumb.end(2)


def _commands(text: str) -> Spans:
    for pattern in (_COMMAND, _PIPED):
        yield from matches(pattern, text, 1, keep=lambda found: not _PLACEHOLDER.fullmatch(found))


def _random(text: str) -> Spans:
    low = text.lower()
    for pattern, words in _LABELLED:
        if any(word in low for word in words):
            yield from matches(pattern, text, 1, keep=_is_key)
    for at, word in long_words(text, _RANDOM_LENGTH):
        for match in _RANDOM.finditer(word):
            hashed = match[0].lower().startswith(_PUBLIC) or word[: match.start()].endswith("/")
            if not hashed and _turns(match[0]) >= _ENOUGH_TURNS:
                yield at + match.start(), at + match.end()


def _is_key(value: str) -> bool:
    return any(map(str.isdigit, value)) and (_turns(value) >= _ENOUGH_TURNS / 2 or value.isupper())


def _stated(text: str) -> Spans:
    for match in _STATED.finditer(text):
        value = match[match.lastgroup or 0]
        if match["couple"]:
            tells = stated_secret("password", value, quoted=True, alone=True)
        else:
            tells = match["password"] or not value.isalpha()
        if tells and not _PLACEHOLDER.fullmatch(value):
            yield match.span(match.lastgroup or 0)


def _turns(word: str) -> float:
    """The share of its letters and digits that are of another kind than the one before."""
    kinds = [0 if one.isdigit() else 1 if one.isupper() else 2 for one in word if one.isalnum()]
    return sum(first != second for first, second in pairwise(kinds)) / max(1, len(kinds))


_HINTS = (*PASSWORDS, *SECRETS)
_SAYING = (*PASSWORDS, "pw")
_TOLD = ("password", "token", "code")
_LONGEST_NAME = 40
_OPENING, _CLOSING = tuple("([{"), tuple(")]}")
_LONGEST_INDENT = 200
_MOST_HOPS = 3
_RANDOM_LENGTH = 36
_PUBLIC = ("sha1-", "sha256-", "sha384-", "sha512-", "aaaa")
"""How a digest begins, and a public key of SSH."""
_ENOUGH_TURNS = 0.33
"""Of a word's characters: a word of random letters and digits changes between their kinds at every second one, names of
things at every tenth."""
_USES = ("use ", "using ", "take ", "enter ", "from ", "verwende", "nimm", "utilis", "usa", "gebruik")
_STATING = (
    "identified",
    "with password",
    "encrypted password",
    "securestring",
    "login(",
    "auth(",
    "auth=",
    "auth =",
    "credential",
    "wifi:",
)
_PAIRS = ("zugangsdaten", "anmeldedaten", "cred", "login", "log in", "logged in", "sign in", "signed in")
_LABELLED = (
    (_KEYED, ("key ", "token ", "secret ", "keys ", "tokens ")),
    (_SIGNED, ("sig", "appid=", "api_key=", "apikey=", "?key=", "&key=", "sess", "sid=")),
    (_USERINFO, ("://",)),
)


DETECTORS = (
    Detector("credentials", says(("curl",)), lambda text: matches(_CURL, text, 1)),
    Detector("secret", says(_HINTS, FOREIGN_PASSWORDS), lambda text: chain(_fields(text), _said(text))),
    Detector("secret", says(_PAIRS), lambda text: _looking(_PAIR, text)),
    Detector("secret", says(_CODE_WORDS), _codes),
    Detector("secret", says(("cookie",)), _cookies),
    Detector("secret", says((*_COMMANDS, "echo")), _commands),
    Detector("secret", lambda clues: clues.text.count(":") > 3, lambda text: matches(_PGPASS, text, 1)),
    Detector("secret", says(("phrase", "mnemonic", "seed")), lambda text: matches(_PHRASE, text, 1)),
    Detector("secret", lambda clues: clues.long_run, _random),
    Detector("secret", says(_STATING), _stated),
)
