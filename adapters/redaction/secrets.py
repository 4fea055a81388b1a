"""Detectors of secrets that a name gives away: what stands after a name such as `password`, in code as in sentences of
many languages; codes, cookies and commands; and long random words of no known form (`keys` has the known ones).

    a name -> a joint (`=`, `: `, ` is `, a blank ...) -> a value -> `names.is_secret`, by how tight the joint is
"""

import re
from functools import partial

from adapters.redaction.detector import Detector, Spans, Words, form, labelled, listed, lowered
from adapters.redaction.names import (
    ALONE,
    ENOUGH_TURNS,
    FAR,
    KEYS,
    NEAR,
    PASSWORDS,
    QUOTED,
    SECRETS,
    is_secret,
    is_value,
    named,
    turns,
)

_HINTS = Words(*PASSWORDS, *SECRETS)
_STEMS = frozenset(PASSWORDS)
_TOLD = ("password", "token", "code")
_LONGEST_NAME = 40
_LONGEST_INDENT = 200
_MOST_HOPS = 3
_ENDING = re.compile(r"(?:(?![\u0e00-\u0e7f\u3000-\ud7ff])[\w.-]){0,24}(?:\sπρόσβασης)?")
"""From how a name begins to its end; scripts without spaces have none."""
_NO_PASSWORD = re.compile(
    r"pass(?!w|phrase|code|ord|e?s?(?![a-z]))|pw(?:d[a-z]|[a-ce-z])"
    r"|[a-z]{3,20}[_-](?:[a-z]{1,20}[_-])?(?:algorithm|encoding|length|method|mode|policy|type|version)(?![a-z])"
)

_VERB = (
    r"(?:is|was|are|be|to|stays|remains|ist|war|bleibt|hei(?:ß|ss)t|lautet|lautete|c'est|sera|será|es|era|est|était|è"
    r"|era|é|jest|je|on|är|er|là|adalah|van|való|ni|ay|és|e|este|είναι|е|คือ|هي|هو|है|это|היא)"
)
_SIGN = (
    r"(?P<sign>\s{0,3}(?:=>|:=|=|:|：|>|→|->)[*_]{0,2}\s{0,3}(?:[|>][+-]?\s{1,24}|\[\s{0,3}(?=[\"']))?"
    r"|\s{1,24}value\s?[:=]\s?|</[\w:]{1,20}>\s{0,40}<[\w:]{1,20}>)"
)
_SAID = (
    rf"(?:[’']s|\s{_VERB})(?:\s(?:still|now|currently|again|aktuell|jetzt|noch|weiterhin|aún|ahora|toujours|ancora))?"
    r"(?:\s{0,3}:\s{1,12}|\s{1,3})|\?\s{1,3}(?:it[’']?s|it is|es ist|c'est|es|A:)\s{1,3}|(?:是|为|は|가|는|은|이)\s?"
)
_VALUE = (
    # In quotes, which may be escaped; or up to what ends a word: a comma within one does not, but before a name.
    r"(?:\\{0,3}(?P<quote>[\"'`„“«‚‘»›‹])(?P<quoted>(?:[^\"'`“”»«\\\x00\n]|\\[\"'](?=\w)){3,400})"
    r"|\(?(?P<bare>(?:[^\s\"'`,;<>&\\|\x00“”»«]|[,;&|](?![\s\"'\]}]|\Z|[\w.-]{1,32}[\"']?\s?[=:])){3,400}))"
)
_JOINED = re.compile(
    rf"(?i)(?:\\{{0,3}}[\"'`*_]{{0,2}}{_SIGN}|(?P<list>[\"']\s?,\s?(?=[\"']))|(?P<call>\((?=[\"']))"
    rf"|{_SAID}|(?P<blank>(?:\s(?:[a-z]{{2,5}}|\d))?\s{{1,8}}))" + _VALUE
)
_OPTION = re.compile(rf"(?:{_SIGN}|\s(?=[^\s-]))" + _VALUE)
_AGAIN = re.compile(rf"(?i)[^\n.!?;:=]{{0,48}}?(?:{_SIGN}|{_SAID})" + _VALUE)
_LONG, _REST = 390, re.compile(r"[\w+/=.-]*")
"""What `_VALUE` ends in the middle of, and what follows of it: a session's token has a thousand characters."""
_LINE_END = re.compile(r"[\"';, \t]{0,3}(?:[\r\n]|\Z)")
_CLAUSE_END = re.compile(r"\s{0,2}(?:[.,;!)\n]|\Z|(?:for|of|to|on|für|de|du|del|di) )")
_OPENING, _CLOSING = tuple("([{"), tuple(")]}")
_USERS = Words("user", "login", "log in", "sign in", "benutzer", "usuario")
_AS_WORD, _IS_WORD = r"(?:as|als|comme|como|come)\s", r"(?:is|was|ist|est|es|è|é)\s"
_AS = re.compile(
    r"(?i)(?<!\S)[\"'`.,;:()]*(?P<value>[^\s\"'`=(\[{<>]+?)[\"'`.,;:()]*"
    rf"\s+(?:{_AS_WORD}|(?P<verb>{_IS_WORD}))\s*(?:(?!{_AS_WORD}|{_IS_WORD})\S+\s+){{0,3}}\S*\Z"
)
"""`use ... as the new root `, up to a name."""


def _stated(text: str) -> Spans:
    """Values that stand after a name that tells, whatever joins them, or before one (`... as password`)."""
    low, seen = lowered(text), -1
    for at, end in sorted(set(_HINTS.places(low))):
        if at < seen:
            continue
        seen = _ending(text, end)
        start = at
        while start and at - start < _LONGEST_NAME and (text[start - 1].isalnum() or text[start - 1] in "_-."):
            start -= 1
        name = text[start:seen]
        kind = named(name.lstrip("-"))
        if not kind and low[start:seen] == "key" and not KEYS.isdisjoint(low[max(0, start - 24) : start].split()[-1:]):
            kind = "token"
        is_stem = low[at:end] in _STEMS and not _NO_PASSWORD.match(low, at)
        if kind in _TOLD or (is_stem and not (at and text[at - 1].isascii() and text[at - 1].isalnum())):
            told = kind in _TOLD
            known = kind if told else "password"
            if span := _after(text, start, seen, known, told) or _before(text, start, seen, known):
                first, last = span
                rest = _REST.match(text, last) if last - first > _LONG else None
                seen = max(seen, rest.end() if rest else last)
                yield first, rest.end() if rest else last


def _ending(text: str, at: int) -> int:
    match = _ENDING.match(text, at)
    return match.end() if match else at


def _after(text: str, start: int, end: int, kind: str, told: bool) -> tuple[int, int] | None:
    """The first that looks like a secret of what signs and verbs after a name say of it (`is still set to ...`)."""
    first = (_OPTION if text.startswith("-", start) else _JOINED).match(text, end)
    if first and (tie := _tie(first, text, start)) is not None:
        span = _span(first)
        if is_secret(kind, text[slice(*span)], tie if told else min(tie, NEAR)):
            return span
    for _ in range(_MOST_HOPS):
        match = _AGAIN.match(text, end)
        if match is None:
            return None
        span = _span(match)
        if is_secret(kind, text[slice(*span)], FAR):
            return span
        end = span[0]
    return None


def _span(match: re.Match[str]) -> tuple[int, int]:
    if match["quote"]:
        return match.span("quoted")
    start, value = match.start("bare"), match["bare"].rstrip(".:!?*")
    return start, start + len(value if any(mark in value for mark in "([{") else value.rstrip(".:!?*)]}"))


def _tie(match: re.Match[str], text: str, start: int) -> int | None:
    """How tight what joins a value to the name at `start` is; None for two words that only stand side by side."""
    found = match.groupdict()
    first, last = _span(match)
    if found.get("list") and not (
        text[max(0, start - 3) : start - 1].strip().endswith(_OPENING)
        and text[last + 1 : last + 3].strip().startswith(_CLOSING)
    ):
        return None  # of a longer list
    if found.get("blank"):
        user = next(_USERS.places(lowered(text[max(0, start - 48) : match.start()])), None)
        value = text[first:last]
        return FAR if user or not (value.islower() or (value.isupper() and "-" in value)) else None
    if found["quote"]:
        return QUOTED
    sign = found["sign"]
    if not sign:
        return NEAR
    if sign.strip() == sign and text[last : last + 1] not in ("(", ".", "["):
        return ALONE
    floor = max(0, match.start() - _LONGEST_INDENT)
    before = text[max(floor, text.rfind("\n", floor, match.start()) + 1) : match.start()]
    return ALONE if " " not in before.strip() and _LINE_END.match(text, last) else NEAR


def _before(text: str, start: int, end: int, kind: str) -> tuple[int, int] | None:
    """What stands before a name: `use ... as the password`, `... is the password.`"""
    match = _AS.search(text, max(0, start - 100), start)
    said = match is None or not match["verb"] or _CLAUSE_END.match(text, end)
    return match.span("value") if match and said and is_secret(kind, match["value"], FAR) else None


_CODES = (
    *listed(
        r"pin(?:[- ]?(?:code|number|nummer))?, passcode, tan, otp, cvv2?, cvc2?, csc, digicode, geheimzahl,"
        r"clave secreta, codice (?:di (?:verifica|sicurezza)|della porta|del cancello), code (?:secret|confidentiel"
        r"|(?:de |du |d['’]|de la |de l['’])(?:vérification|sécurité|porte|portail|immeuble|entrée|alarme|digicode"
        r"|coffre|carte|accès)), код\w?\w?\w?, 验证码, 認証コード, 인증번호"
    ),
    *(
        f"{word} d[ea] (?:verificaci[oó]n|verifica[cç][aã]o|seguridad|acceso|la (?:puerta|alarma|entrada)|porta)"
        for word in ("código", "codigo")
    ),
    *(
        f"{word}[- ]?(?:pass)?codes?" for word in listed(
            r"verification, security, access, door, gate, alarm, unlock, backup, safe, lockbox, garage, login, log-in,"
            r"one[- ]time, auth\w*, 2fa, mfa, sms, sign-?in, recovery, entry, bestätigungs, sicherheits, zugangs, prüf,"
            r"anmelde, tür, tor, haustür, tresor"
        )
    ),
)  # fmt: skip


_COOKIE = re.compile(r"(?i)(?:set-)?cookie[\"']?\s?[:=]\s?[\"']?(?P<all>[^\r\n\"']{8,4096})")
_CRUMB = re.compile(r"([^=;\s]{1,64})=([^;\s]{8,})")
_PUBLIC = ("sha1-", "sha256-", "sha384-", "sha512-", "aaaa", "chatcmpl-", "cmpl-", "msg_", "resp_", "call_", "toolu_")
"""How a digest begins, a public key of SSH, and an id of an answer or a call."""


def _cookies(text: str) -> Spans:
    for match in _COOKIE.finditer(text):
        for crumb in _CRUMB.finditer(text, *match.span("all")):
            value = crumb[2]
            if any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and (len(value) > 11 or named(crumb[1])):
                yield crumb.span(2)


def _is_random(word: str) -> bool:
    return not word.lower().startswith(_PUBLIC) and turns(word) >= ENOUGH_TURNS


def _is_key(word: str) -> bool:
    looks = any(map(str.isdigit, word)) and (turns(word) >= ENOUGH_TURNS / 2 or word.isupper())
    return looks and is_value(word)


_login = partial(is_secret, "password", tie=FAR)
_password = partial(is_secret, "password", tie=QUOTED)
_token = partial(is_secret, "token", tie=QUOTED)
_phrase = partial(form, "secret", is_one=is_value)
"""What is written otherwise than as `name = value`."""
DETECTORS = (
    Detector("secret", _HINTS, _stated),
    labelled(
        "secret", _CODES,
        r"(?![a-z])[^\n.!?;:=\d]{0,32}?(?:\s{0,2}[:=：#?]\s{0,2}"
        r"|\s(?:is|was|ist|lautet|est|es|è|é|это)(?:\s(?:now|still|jetzt|noch|le|la|el|il|o))?\s{1,2}"
        r"|(?:是|为|は|는|은)\s?|\s{1,2})[\"']?(?P<value>\d{3,8})(?![\w.]*\d)(?!\s?(?:%|EUR|USD|€|\$))",
    ),
    Detector("secret", Words("cookie"), _cookies),
    form(
        "secret", lambda clues: clues.long_run,
        r"(?<![A-Za-z0-9+/=_.-])(?:[A-Za-z0-9]{2,20}[.~_-]{1,2}){0,3}(?=[A-Za-z0-9_-]{0,60}\d)(?=[A-Za-z0-9_-]{0,60}[A-Z])"
        r"(?=[A-Za-z0-9_-]{0,60}[a-z])[A-Za-z0-9_-]{36,200}(?:==?)?(?![A-Za-z0-9+/=_-])",
        _is_random, size=36,
    ),
    # Commands that take one.
    _phrase(
        Words(
            "mysql", "mariadb", "sshpass", "login", "redis-cli", "curl", "wget", "http ", "sqlcmd", "openssl", "smb",
            "rpcclient", "net use", "add_user", "7z", "rar ", "zip ",
        ),
        r"(?:\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,120}?\s-p(?=\S)|\bsshpass\s+-p\s?"
        r"|\b(?:docker|podman|helm|oc|az|skopeo|nerdctl)\b[^\n|;]{0,40}\blogin\b[^\n|;]{0,120}?\s-p\s+"
        r"|\bredis-cli\b[^\n|;]{0,80}?\s-a\s+|\bsqlcmd\b[^\n|;]{0,120}?\s-P\s?|\bopenssl\b[^\n|;]{0,80}?\s-k\s+"
        r"|\b(?:smbclient|rpcclient|smbget)\b[^\n|;]{0,120}?\s-U\s?['\"]?[^\s%'\"]{1,64}%"
        r"|\b(?:7z|7za|rar|unrar)\b[^\n|;]{0,120}?\s-p(?=\S)|\b(?:un)?zip\b[^\n|;]{0,120}?\s-P\s+"
        r"|\b(?:net\s+user|add_user)\s+\S{1,64}\s+(?=[^\s/])|\bnet\s+use\b[^\n|;]{0,120}?\s(?:/user:\S{1,64}\s+|\\\\\S{1,120}\s+(?=[^\s/]\S{0,200}\s+/user:))"
        r"|\b(?:curl|http|wget)\b[^\n|;]{0,120}?\s(?:-u|-a|--user)[ =]?\s{0,3}['\"]?[^\s:'\"]{1,64}:)"
        r"['\"]?(?P<value>[^\s'\"]{3,200})",
    ),
    _phrase(
        Words("sudo", "chpasswd", "-stdin", "with-token"),
        r"\becho\s+(?:-\w\s+)?['\"]?(?:\w{1,32}:)?(?P<value>[^\s'\"|:]{4,128})['\"]?\s*\|\s*(?:sudo\s+-S"
        r"|(?:sudo\s+)?chpasswd|[^\n|]{0,120}?\s--(?:password-stdin|with-token)\b)",
    ),
    # Whatever command it is: a user, and then a password.
    _phrase(
        Words(" -u", " -d", "/u:"),
        r"(?:\s-[uUD][ =]?[^\s-]\S{0,100}\s[^\n|;]{0,60}?(?<=\s)-[pPw]\s{0,2}|\s/u:\S{1,64}\s[^\n|;]{0,60}?/p:)"
        r"['\"]?(?P<value>[^\s'\":/]{6,128})(?![:/])", is_one=_login,
    ),
    # What makes a user in SQL, a credential in PowerShell, a login in code (`auth=("me", "...")`), a network.
    _phrase(
        Words("identified", "securestring"),
        r"(?i)\b(?:identified\s+(?:with\s+\S{1,40}\s+)?by|convertto-securestring(?:\s{1,9}-string)?)\s{1,9}"
        r"['\"](?P<value>[^'\"\n]{4,128})['\"]", is_one=_token,
    ),
    _phrase(
        Words("with password", "encrypted password"),
        r"(?i)\bwith\s+(?:encrypted\s+)?password\s+'(?P<value>[^'\n]{4,128})'",
    ),
    _phrase(
        Words("login(", "login_", "auth(", "auth=", "auth =", "credential"),
        r"(?i)(?:login|auth|credentials?)\w{0,8}\s?=?\s?[(\[]\s?[\"'][^\"'\n]{1,64}[\"'],"
        r"\s?[\"'](?P<value>[^\"'\n]{4,128})[\"']\s?[)\]]", is_one=_password,
    ),
    _phrase(Words("wifi:"), r"(?i)wifi:[^\n]{0,80}?[;:]p:(?P<value>(?:\\.|[^;\n]){4,63});"),
    _phrase(
        Words("login", "cred", "log in", "logged in", "sign in", "signed in", "zugang", "ldedaten"),
        r"(?i)(?:zugang(?:sdaten)?|anmeldedaten|cred(?:ential)?s?|log(?:ged|ging)?[ -]?in(?: data)?|logins"
        r"|sign(?:ed)?[ -]in)"
        r"(?:\s?(?:[:=→]|->)|\s(?:is|are|with|as|using|mit|als|con|avec))\s?[\w.@+-]{2,64}"
        r"(?:\s?[/|,]\s?|:(?!\d{2,5}(?:[/,;\s]|$)))[\"'`]?(?P<value>[!-~\u00c0-\u024f]{4,128}?)[\"'`.,;:)]{0,3}(?=\s|\Z)",
        is_one=_login,
    ),
    # Words before and after a code.
    _phrase(
        Words(" to ver", " to conf", " to log", " to sign", "for ver"),
        r"(?i)\b(?:use|enter|type)\s+(?:\w-)?(?P<value>\d{4,8})\s+(?:to|as|for)\s+(?:verify|confirm|log|sign|your|the"
        r"|complete)",
    ),
    _phrase(
        Words(" is your", " is the"),
        r"(?i)\b(?P<value>\d{4,8})\s+is\s+(?:your|the)\s+[^\n.]{0,40}\b(?:code|pin|otp)\b",
    ),
    _phrase(
        Words(":1", ":2", ":3", ":4", ":5", ":6", ":7", ":8", ":9", ":*:"),
        r"(?m)^[^:\s/]{1,253}:(?:\d{2,5}|\*):[^:\s/]{1,64}:[^:\s/]{1,64}:(?P<value>(?:[^\s:\\]|\\.){4,200})$",
    ),
    _phrase(
        Words("phrase", "mnemonic", "seed"),
        r"(?i)(?:seed|recovery|mnemonic|secret|backup)[- ]?(?:phrase|words?|seed)?[^\n]{0,24}?[:\s\"'“]"
        r"(?P<value>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})(?![a-z])",
    ),
    # Keys behind a bare word, in addresses, in cookies.
    _phrase(
        Words("key ", "token ", "secret ", "keys ", "tokens ", long=True),
        r"(?i)(?:key|token|secret)s?\s{1,2}[\"'`(]?"
        r"(?P<value>(?=[^\s\"'`]{0,200}\d)(?=[^\s\"'`]{0,200}[A-Za-z])[A-Za-z0-9+/_.=~-]{20,400})",
        is_one=_is_key,
    ),
    _phrase(
        Words("sig", "appid=", "api_key=", "apikey=", "?key=", "&key=", "sess", "sid=", long=True),
        r"(?i)(?<![a-z0-9])(?:sig|signature|x-amz-signature|x-goog-signature|appid|api_?key|(?<=[?&])key"
        r"|(?:session|sess|sid)[_-]?(?:id|key|token)?)=(?P<value>[\w%+/.~-]{16,200}=*)",
        is_one=_is_key,
    ),
    _phrase(Words("machine "), r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<value>\S{3,200})"),
    _phrase(Words("://", long=True), r"://(?P<value>[A-Za-z0-9_-]{20,200})@", is_one=_is_key),
)  # fmt: skip
