"""Detectors of secrets: keys of known forms, private keys, and what stands after a name such as `password`.

The patterns are our own. `detect-secrets` was measured at 3.3 ms per kilobyte here, reads source code line by line and
brings an HTTP client; all of a call is searched in 0.4 ms here. No pattern has a repetition inside a repetition over
the same characters, and each starts at a boundary, so none is worse than linear but for small constants (a test holds
that).
"""

import re

from adapters.redaction.detector import Detector, Spans, long_words, lowered, matches, says

_FORMS = (
    r"sk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?(?=[\w-]{0,200}\d)[\w-]{20,}",
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}",
    r"gh[opsur]_[A-Za-z0-9]{36,}|github_pat_\w{40,}",
    r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|imt|agent|oas)-[\w-]{20,}",
    r"xox[a-z]-[\w-]{10,}|xapp-\d-[\w-]{20,}|xwfp-[\w-]{20,}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",
    r"evk_[0-9a-f]{12}_[\w-]{40,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36,}|pypi-AgE[\w-]{40,}|rubygems_[0-9a-f]{40,}|dckr_pat_[\w-]{20,}",
    r"SG\.[\w-]{16,32}\.[\w-]{32,}|SK[0-9a-f]{32}(?![0-9A-Za-z])|key-[0-9a-f]{32}(?![0-9A-Za-z])",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}|sq0[a-z]{3}-[\w-]{22,}",
    r"gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|nvapi-[\w-]{40,}",
    r"tvly-[\w-]{20,}|lsv2_[a-z]{2}_\w{32,}|pcsk_\w{40,}|lin_api_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}|figd_[\w-]{36,}",
    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}|sntry[su]_[\w.-]{32,}|NRAK-[A-Z0-9]{27}|gls?c?a?_[\w-]{32,}",
    r"hv[bs]\.[\w-]{24,}|dp\.(?:pt|st|ct|sa)\.[\w.-]{40,}|ATATT3[\w-]{40,}|AGE-SECRET-KEY-1[A-Z0-9]{58}",
    r"sbp_[0-9a-f]{40}|pscale_(?:tkn|pw)_[\w-]{32,}|EAA[A-Za-z0-9]{60,}|LTAI[A-Za-z0-9]{16,}",
    r"sk\.eyJ[\w-]{40,}|sl\.[A-Za-z][\w-]{60,}|HRKU-[\w-]{40,}|bk[a-z]{1,2}_[0-9a-f]{40}",
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)",
    r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}",
    # A vendor that is not in this list: words, `_`, and a long mix of cases and digits. Ids are shorter or hex.
    r"[a-z]{2,10}_(?:[a-z]{2,8}_)?(?=[A-Za-z0-9]{0,80}\d)(?=[a-z0-9]{0,80}[A-Z])(?=[A-Z0-9]{0,80}[a-z])[A-Za-z0-9]{32,}",
)
_API_KEY = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_FORMS) + ")", re.ASCII)
_SHORTEST = 16
_TELEGRAM = re.compile(r"(?<!\w)\d{8,10}:AA[\w-]{32,}", re.ASCII)
_HASH = re.compile(r"\$(?:1|2[abxy]?|5|6|7|y|argon2\w{1,2}|scrypt|pbkdf2[\w-]*)\$[\w./$=,+-]{20,}")
"""A password's hash, as crypt(3) and its like write it: it can be guessed at."""
_WEBHOOK = re.compile(
    r"hooks\.slack\.com/services/([\w/]{20,})|discord(?:app)?\.com/api/webhooks/([\w/-]{20,})", re.ASCII
)

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: [0-9a-f]+")
_JWT = re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]{8,}(?:\.[\w-]*){1,4}", re.ASCII)
_BEARER = re.compile(r"(?i)(?<![a-z0-9])(?:bearer\s{1,4}|authorization['\"]?\s?[:=]\s{0,3}['\"]?(?:basic|token)\s{1,4})"
                     r"([A-Za-z0-9._~+/=-]{12,})")  # fmt: skip
_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@\"'<>\x00]{0,100}:([^\s/@\"'<>\x00]{1,200})@"
)
_CURL = re.compile(r"(?:-u|--user)[ =]['\"]?[^\s:'\"]{1,64}:([^\s'\"]{3,200})")

_NAMES = (
    "pass", "pwd", "secret", "token", "key", "credential", "cvv", "cvc", "kennwort", "contrase", "senha", "parola",
    "wachtwoord", "haslo", "sifre",
)  # fmt: skip
_FOREIGN = ("парол", "密码", "密碼", "パスワード", "비밀번호", "hasło", "şifre")
_KEY_OF = ("api", "access", "private", "account", "auth", "encryption", "signing", "master", "secret", "storage")
_TOKEN_OF = ("access", "refresh", "auth", "bearer", "session", "id", "api", "personal", "bot", "csrf", "deploy")
_NO_SECRET = (
    "page",
    "next",
    "continuation",
    "sync",
    "cursor",
    "eos",
    "bos",
    "pad",
    "unk",
    "stop",
    "mask",
    "sep",
    "cls",
)
"""A token of these is a place in a list, or a word of a model."""
_FIELD = re.compile(
    # A name; how it is joined to its value; the value, in quotes that may be escaped, or up to what ends a word.
    r"(?i)(?:pass(?:w(?:or[dt]|d)|phrase|code|e)?|pwd|secret(?:[ _-]?access)?(?:[ _-]?key)?|token|key|credentials?"
    r"|cvv2?|cvc2?|kennwort|contrase(?:ñ|n)a|senha|parola|wachtwoord|has[lł]o|[sş]ifre|парол[а-я]{0,2}|密码|密碼"
    r"|パスワード|비밀번호)"
    r"(?![A-Za-z]|[_-](?:id|type|count|limit|hash|name|url|field|policy|length|hint)\b)[A-Za-z0-9_-]{0,16}"
    r"(?:\\?[\"'`]?\s{0,3}(?:=>|:=|=|:|：|>)\s{0,3}|\s(?:is|was|ist|lautet|es|est|è)\s{1,3}:?\s{0,2}|是|は|为)"
    r"(?:\\?(?P<quote>[\"'`„“«])(?P<quoted>[^\"'`“”»\\\x00\n]{3,400})|(?P<bare>[^\s\"'`,;<>&\\|\x00“”»]{3,400}))"
)
_REFERENCE = re.compile(
    r"(?i)[\[{(<$%*].*|[a-z_][\w.]*[(\[{].*|(?:os|process|config|settings|env|self|args)\..*|.*\*\*\*\*.*"
)
"""What stands for a value and is none: a placeholder, a call, a variable."""
_FOREIGN_NAMES = (
    "contrasena", "contraseña", "mot_de_passe", "motdepasse", "mdp", "senha", "wachtwoord", "haslo", "hasło", "heslo",
    "lozinka", "пароль", "密码", "密碼", "パスワード", "비밀번호", "sifre", "şifre", "losenord", "lösenord",
    "salasana", "passord", "jelszo",
)  # fmt: skip
_PLAIN = frozenset(
    {
        "null", "none", "true", "false", "undefined", "string", "str", "required", "optional", "integer", "number",
        "boolean", "secret", "password", "token", "bearer", "basic", "input", "output", "text", "field", "value",
        "empty", "invalid", "expired", "missing", "unknown", "hidden", "redacted", "changed",
    }
)  # fmt: skip
_ABOUT = frozenset(
    {
        "password", "passwd", "getpass", "prompt", "value", "data",
        "args", "kwargs", "self", "name", "username", "login",
        "wrong", "correct", "incorrect", "accepted", "rejected", "strong", "weak", "default", "generated", "encrypted",
        "plain", "plaintext", "bytes", "object", "query",
        "param", "params", "parameter", "config", "settings", "update",
        "reset", "change", "enabled", "disabled", "provided", "nullable", "redirect", "external",
    }
)  # fmt: skip
"""What else such a line may end in."""
_SYMBOLS = frozenset("!@#$%^*+?~")
_PHONES = ("phone", "phone_number", "phonenumber", "mobile", "mobile_number", "telephone", "telefon", "msisdn")
_CARDS = frozenset({"pan", "credit_card", "card_number", "cardnumber"})
_PERSONAL = frozenset(
    {
        *_PHONES, "ssn", "passport", "pesel", "cpf", "dni", "nif", "nie", "bsn", "nino", "nhs", "curp", "aadhaar",
        "sin", "tin", "itin", "nric", "personnummer", "iban", "pan", "credit_card", "card_number", "cardnumber",
        "codice_fiscale",
    }
)  # fmt: skip
_PERSONAL_ENDS = (
    "passport_no", "passport_number", "tax_id", "tax_number", "national_id", "nhs_number", "pan_number",
    "id_card_number", "social_security_number", "license_number", "licence_number", "ssn", "phone_number",
    "mobile_number", "_phone", "steuer_id",
)  # fmt: skip
_SPELT = re.compile(r"[a-z]{3}|[^\w\s()+./-]")
_CODES = frozenset(
    {"pin", "otp", "tan", "cvv", "cvc", "cvv2", "cvc2", "security_code", "verification_code", "access_code"}
)
_TOKENS = frozenset({"token", "psk", "appid", "sessionid", "session_token", "phpsessid", "sid", "x_auth_token", "auth"})
_COLUMNS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "ssn",
    "phone",
    "mobile",
    "tax",
    "pesel",
    "cpf",
    "card",
    "pin",
    "pw",
    "licen",
)
_EXACT = ("pass", "pw", "x_api_key", "clave")


def _api_keys(text: str) -> Spans:
    for at, word in long_words(text, _SHORTEST):
        for match in _API_KEY.finditer(word):
            yield at + match.start(), at + match.end()


def _rare_keys(text: str) -> Spans:
    yield from matches(_TELEGRAM, text)
    yield from matches(_HASH, text)
    for match in _WEBHOOK.finditer(text):
        yield match.span(match.lastindex or 0)


def _private_keys(text: str) -> Spans:
    """From the first line to the last; to the end of the text if it was cut off."""
    at = 0
    while begin := _PEM.search(text, at):
        end = _PEM_END.search(text, begin.end())
        at = end.end() if end else len(text)
        yield begin.start(), at


def _jwts(text: str) -> Spans:
    for match in _JWT.finditer(text):
        yield match.start(), match.start() + len(match[0].rstrip("."))


def _bearers(text: str) -> Spans:
    yield from matches(_BEARER, text, 1, keep=lambda found: any(one.isdigit() or one == "=" for one in found))


def _url_passwords(text: str) -> Spans:
    yield from matches(_URL, text, 1, keep=lambda found: not _REFERENCE.fullmatch(found))
    if "curl" in text:
        yield from matches(_CURL, text, 1)


def _fields(text: str) -> Spans:
    low = lowered(text)
    for name in _NAMES if text.isascii() else (*_NAMES, *_FOREIGN):
        at = low.find(name)
        while at >= 0:
            match = _FIELD.match(text, at) if _is_name(text, low, name, at) else None
            if match and (span := _value(match)):
                yield span
            at = low.find(name, at + len(name))


def _is_name(text: str, low: str, name: str, at: int) -> bool:
    """Whether the name at `at` begins there, and is that of a secret."""
    before = low[max(0, at - 16) : at].rstrip(" _-")
    if name == "key" and not before.endswith(_KEY_OF):
        return False
    if name == "token" and before.endswith(_NO_SECRET):
        return False
    if at == 0 or not (text[at - 1].isascii() and text[at - 1].isalnum()):
        return True
    joined = text[at - 1].islower() and text[at].isupper()
    return joined or (name == "key") or (name == "token" and before.endswith(_TOKEN_OF))


_LINE = re.compile(
    r"(?im)^[ \t]*(?:export\s+)?[\w.-]*(?:password|passwd|passphrase|pwd|passwort|kennwort)[\"']?[ \t]*[:=][ \t]*[\"']?"
    r"([A-Za-z]{5,64})[\"']?[;,]?[ \t]*$"
)
"""A line that says nothing but what a password is, which then may be a plain word."""


def _password_lines(text: str) -> Spans:
    yield from matches(_LINE, text, 1, keep=lambda found: found.lower() not in _PLAIN | _ABOUT)


def _value(match: re.Match[str]) -> tuple[int, int] | None:
    if match["quote"]:
        return match.span("quoted") if is_secret(match["quoted"], quoted=True) else None
    value = match["bare"].rstrip(".:!?)]}")
    start = match.start("bare")
    return (start, start + len(value)) if is_secret(value, quoted=False) else None


def is_secret(value: str, *, quoted: bool) -> bool:
    """Whether `value`, after a name such as `password`, is one rather than a word about it.

    Args:
        quoted: it stands in quotes, where a word without digits can be a password as well.
    """
    if len(value) < 4 and not (value.isdigit() and len(value) == 3):
        return False
    if value.lower() in _PLAIN or _REFERENCE.fullmatch(value) or any(map(str.isspace, value)):
        return False
    if any(map(str.isdigit, value)):
        return True
    return quoted and (not _SYMBOLS.isdisjoint(value) or not (value.islower() or value.istitle() or value.isupper()))


PERSONAL_KINDS = frozenset({"phone", "iban", "card", "national_id"})


def named(key: str) -> str:
    """What the value of a field `key` is by its name alone: `password`, `token`, `code`, `header`, one of
    `PERSONAL_KINDS`, or nothing."""
    low = key.lower().replace("-", "_").replace(" ", "_")
    if low in _PERSONAL or low.endswith(_PERSONAL_ENDS):
        if low.endswith((*_PHONES, "_phone")):
            return "phone"
        return "iban" if low == "iban" else "card" if low in _CARDS else "national_id"
    if low.startswith(_NO_SECRET) or "." in low:
        return ""
    if low in _CODES:
        return "code"
    if low in ("cookie", "set_cookie", "authorization", "proxy_authorization"):
        return "header"
    if (
        low.endswith(("password", "passwd", "passphrase", "passcode", "pwd", "kennwort", "passwort"))
        or low in _EXACT
        or low.endswith(_FOREIGN_NAMES)
    ):
        return "password"
    if low in _TOKENS or low.endswith(
        (
            "secret",
            "_token",
            "api_key",
            "apikey",
            "access_key",
            "private_key",
            "secret_key",
            "signing_key",
            "account_key",
        )
    ):
        return "token"
    if key.endswith("Token"):
        return "" if low[:-5].endswith(_NO_SECRET) else "token"
    return ""


def named_secret(name: str, value: str) -> bool:
    """Whether `value` of a JSON field that `named` calls `name` is to be taken out."""
    if name in PERSONAL_KINDS:
        digits = sum(map(str.isdigit, value))
        return (7 if name == "phone" else 4) <= digits <= 20 and len(value) <= 32 and not _SPELT.search(value)
    if name == "header":
        return len(value) > 8 and not value.isalpha() and not _REFERENCE.fullmatch(value)
    if len(value) < 3 or value.lower() in _PLAIN or _REFERENCE.fullmatch(value):
        return False
    if any(map(str.isspace, value)):
        return False
    if name == "code":
        return value.isdigit() and len(value) <= 8
    return name == "password" or len(value) >= 20 or (len(value) >= 6 and any(map(str.isdigit, value)))


def named_number(name: str, digits: str) -> bool:
    """The same of a number in JSON."""
    if name in ("password", "code"):
        return True
    return name in PERSONAL_KINDS and 7 <= len(digits) <= 20


def tells(low: str) -> bool:
    """Whether a text in lower case may have a column that `named` says something of."""
    return any(name in low for name in _COLUMNS)


DETECTORS = (
    Detector("private_key", lambda clues: "PRIVATE KEY" in clues.text or "PuTTY" in clues.text, _private_keys),
    Detector("jwt", lambda clues: clues.long_run and "eyJ" in clues.text, _jwts),
    Detector("api_key", lambda clues: clues.long_run, _api_keys),
    Detector(
        "api_key",
        lambda clues: ":AA" in clues.text or "$" in clues.text or "hooks." in clues.text or "/webhooks/" in clues.text,
        _rare_keys,
    ),
    Detector("bearer", says(("bearer", "authorization")), _bearers),
    Detector(
        "credentials", lambda clues: ("://" in clues.text and "@" in clues.text) or "curl" in clues.text, _url_passwords
    ),
    Detector("secret", says(_NAMES, _FOREIGN), _fields),
    Detector("secret", says(("pass", "pwd", "kennw")), _password_lines),
)
