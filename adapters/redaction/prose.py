"""Detectors of secrets that people and machines say in passing: passwords in sentences of many languages, codes,
cookies, options of commands, seed phrases, and long random words of no known form.

What a word is called decides first (a password's name, then something that joins it to a value), and the look of the
value second: the further it stands from the name, the more it must look like one.
"""

import re
from itertools import pairwise

from adapters.redaction.detector import Detector, Spans, long_words, lowered, matches, places, says

_NAME = (
    r"(?:pass(?:w(?:or[dt]|d)?|phrase|code)s?|pwd?|psk"
    r"|mdp|mot de passe|kennw(?:ort|örter)|passw(?:ort|örter)|contrase[ñn]a"
    r"|clave|senha|palavra-passe|parola\w{0,3}|parole|wachtwoord\w{0,2}|has[lł][oa]\w{0,2}|hesl[oa]|l[öo]senord\w{0,3}"
    r"|salasana\w{0,4}|adgangskode\w{0,2}|kodeord\w{0,2}"
    r"|passord\w{0,2}|jelsz[óa]\w{0,5}|[sş]ifre\w{0,4}|lozink[aeu]|geslo"
    r"|slapta[zž]od\w{0,4}|parool\w{0,2}|mật khẩu|kata sandi|парол\w{0,3}|κωδικ\w{0,4}|zugangsdaten|anmeldedaten"
    r"|nenosiri|neno la siri|kata laluan|contrasenya|contrasinal|pasahitz\w{0,3}|lykilor[ðd]\w{0,3}|cyfrinair|pasfhocal"
    r"|fjal[ëe]kalim\w{0,2}|wagwoord|лозинк\w{1,2}|құпиясөз\w{0,4}|গোপনশব্দ|পাসওয়ার্ড|கடவுச்சொல்|پاس ورڈ|رمز عبور"
    r"|密码|密碼|口令|パスワード|暗証番号|비밀번호|암호|पासवर्ड|كلمة المرور|كلمة السر|סיסמ\w{1,3}|รหัสผ่าน)"
    r"(?:\sπρόσβασης)?"
)
_NAMES = (
    "pass", "pwd", "pw", "psk", "mdp", "kennw", "contrase",
    "clave", "senha", "parol", "wachtwoord", "haslo", "hasła", "hesl",
    "losenord", "lösenord", "salasana", "adgangskode", "kodeord", "jelsz",
    "sifre", "şifre", "lozink", "geslo", "slapta", "parool", "kata sandi",
    "zugangsdaten", "anmeldedaten", "nenosiri", "neno la", "kata laluan", "contrasin", "lykilor", "cyfrinair", "fjal",
    "wagwoord",
)  # fmt: skip
_FOREIGN = (
    "лозинк", "құпиясөз", "গোপনশব্দ", "পাসওয়ার্ড", "கடவுச்சொல்", "پاس ورڈ", "رمز عبور",
    "hasło", "mật khẩu", "парол", "κωδικ", "密码", "密碼",
    "口令", "パスワード", "暗証番号", "비밀번호", "암호", "पासवर्ड",
    "كلمة", "סיסמ", "รหัสผ่าน",
)  # fmt: skip
_VERB = (
    r"(?:is|was|are|be|to|ist|war|lautet|lautete|es|era|est|était|è|era|é|jest|je|on|är|er|là|adalah|van|való"
    r"|ni|ay|és|e|este|είναι|е|คือ|هي|هو|है|это|היא)"
)
_VALUE = r"(?P<value>[!-~]{4,128})"
_OPEN = r"[\"'`“«„(]{0,1}"
_SAID = re.compile(
    rf"(?i){_NAME}(?P<fill>[^\n.!?;:=]{{0,48}}?)"
    rf"(?:\s{{0,3}}[:=：]\s{{0,3}}|\s{_VERB}(?:\s(?:still|now|currently|again|aktuell|jetzt|noch|aún|ahora|toujours|ancora))?\s{{0,3}}:?\s{{1,3}}|(?:是|为|は|가|는|은|이)\s?)"
    rf"{_OPEN}{_VALUE}"
)
_NEXT = re.compile(rf"(?i){_NAME}(?:\s[a-z]{{2,5}})?\s{{1,3}}{_OPEN}{_VALUE}")
_USED = re.compile(
    rf"(?i)(?:use|using|take|enter|from|verwende|nimm|utilise[rz]?|usa|usar|gebruik)\s+{_OPEN}{_VALUE}"
    rf"\s+(?:as|for|to|als|comme|como|come)\s(?:[^\n.!?]{{0,24}}\s)?{_NAME}"
)
_PAIR = re.compile(
    r"(?i)(?:zugangsdaten|anmeldedaten|credentials?|login(?: data)?|logins)\s?[:=]\s?[\w.@+-]{2,64}\s?[/|,]\s?" + _VALUE
)
_PLACEHOLDER = re.compile(
    r"[\[{(<$%*].*|.*[(\[{].*[)\]}]|.*\*\*\*.*|https?://.*|.*\.(?:com|org|html?|py|md|json|txt|ya?ml)"
)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
"""Whose password it is about; it is a kind of its own."""
_DATED = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|v?\d+(?:\.\d+)+\S*|\d{1,2}:\d\d.*|\d+[A-Za-z%]{1,4}|[A-Za-z]\d{1,3}"
)

_USES = ("use ", "using ", "take ", "enter ", "from ", "verwende", "nimm", "utilis", "usa", "gebruik")
_PAIRS = ("zugangsdaten", "anmeldedaten", "credential", "login")

_CODE = re.compile(
    r"(?i)(?<![a-z0-9])(?:pin(?:[- ]?(?:code|number|nummer))?|tan|otp|cvv2?|cvc2?|csc"
    r"|(?:verification|security|access|door|gate|alarm|unlock"
    r"|login|log-in|one[- ]time|auth\w{0,12}|2fa|mfa|sms|sign-?in"
    r"|recovery|entry)[- ]?(?:pass)?code|(?:bestätigungs|sicherheits|zugangs|prüf"
    r"|anmelde)code|code (?:de (?:vérification|sécurité)|secret|confidentiel)|geheimzahl|clave secreta"
    r"|c[oó]digo de (?:verificaci[oó]n|seguridad|acceso|verifica[cç][aã]o)|codice di (?:verifica|sicurezza)|код\w{0,3}"
    r"|验证码|認証コード|인증번호)"
    r"(?![a-z])(?P<fill>[^\n.!?;:=\d]{0,32}?)(?:\s{0,2}[:=：#]\s{0,2}|\s(?:is|was|ist|lautet|est|es|è|é|это)\s{1,2}"
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
_OPTION = re.compile(
    r"(?i)(?<!\S)--?(?:password|passwd|pass|token|secret|api-?key|auth-token|access-token|private-token|client-secret"
    r"|access-key|secret-key|registry-token)[ =]['\"]?([^\s'\"]{4,200})"
)
_COMMAND = re.compile(
    r"(?:\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,120}?\s-p(?=\S)|\bsshpass\s+-p\s?"
    r"|\b(?:docker|podman|helm|oc|az|skopeo|nerdctl)\b[^\n|;]{0,40}\blogin\b[^\n|;]{0,120}?\s-p\s+"
    r"|\b(?:redis-cli)\b[^\n|;]{0,80}?\s-a\s+|\b(?:curl|http|wget)\b[^\n|;]{0,120}?\s-(?:u|a)\s+['\"]?[^\s:'\"]{1,64}:)"
    r"['\"]?([^\s'\"]{3,200})"
)
_COMMANDS = ("mysql", "mariadb", "sshpass", "login", "redis-cli", "curl", "wget", "http ")
_PGPASS = re.compile(r"(?m)^[^:\s/]{1,253}:(?:\d{2,5}|\*):[^:\s/]{1,64}:[^:\s/]{1,64}:(\S{4,200})$")
_PHRASE = re.compile(
    r"(?i)(?:seed|recovery|mnemonic|secret|backup)[- ]?(?:phrase|words?|seed)?[^\n]{0,24}?[:\s\"'“]"
    r"((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})(?![a-z])"
)
_KEYED = re.compile(
    r"(?i)(?:api|access|private|secret|account|auth|signing|license|wallet)?[ _-]?(?:key|token|secret)s?\s{1,2}[\"'`(]?"
    r"(?P<value>(?=[^\s\"'`]{0,200}\d)(?=[^\s\"'`]{0,200}[A-Za-z])[A-Za-z0-9+/_.=~-]{20,400})"
)
_SIGNED = re.compile(
    r"(?i)(?<![a-z])(?:sig|signature|x-amz-signature|x-goog-signature|appid|api_?key)=([\w%+/.~-]{16,}=*)"
)
_USERINFO = re.compile(r"://([A-Za-z0-9_-]{20,200})@")
_CONNECTION = re.compile(r"(?i)(?:account|shared\w{0,12}access|access)key\s?=\s?([A-Za-z0-9+/]{30,}={0,2})")
_IDENTIFIED = re.compile(r"(?i)\bidentified\s+(?:with\s+\S{1,40}\s+)?by\s+['\"](?P<value>[^'\"\n]{4,128})['\"]")
"""SQL's `CREATE USER`."""
_DEFINED = re.compile(
    r"(?i)['\"][a-z0-9_.-]{0,40}(?:passw(?:or)?d|secret|token|api_?key|private_?key)['\"]\s?,"
    r"\s?['\"](?P<value>[^'\"\s]{6,200})['\"]"
)
"""A name and its value as arguments one after the other: `define('DB_PASSWORD', '...')`, `setenv("X_TOKEN", "...")`."""
_WIFI = re.compile(r"(?i)wifi:[^\n]{0,80}?[;:]p:(?P<value>(?:\\.|[^;\n]){4,63});")
"""What a network's QR code says."""
_SESSION = re.compile(r"(?i)(?<![a-z0-9])(?:session|sess|sid)[_-]?(?:id|key|token)?=(?P<value>[\w%+/.~-]{16,200}=*)")
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9+/=_.-])(?:[A-Za-z0-9]{2,20}[.~_-]{1,2}){0,3}(?=[A-Za-z0-9_-]{0,60}\d)(?=[A-Za-z0-9_-]{0,60}[A-Z])"
    r"(?=[A-Za-z0-9_-]{0,60}[a-z])[A-Za-z0-9_-]{36,200}(?:==?)?(?![A-Za-z0-9+/=_-])"
)
_LABELLED = (
    (_KEYED, ("key ", "token ", "secret ", "keys ", "tokens ")),
    (_SIGNED, ("sig=", "signature=", "appid=", "api_key=", "apikey=")),
    (_USERINFO, ("://",)),
    (_CONNECTION, ("key=", "key =")),
    (_SESSION, ("session", "sess", "sid=")),
)
_STATED = (
    (_IDENTIFIED, ("identified",)),
    (_DEFINED, ("passw", "secret", "token", "apikey", "api_key", "private_key", "privatekey")),
    (_WIFI, ("wifi:",)),
)
"""Nothing else than a secret stands there, whatever it looks like."""
_RANDOM_LENGTH = 36
_HASHED = ("sha1-", "sha256-", "sha384-", "sha512-")
_ENOUGH_TURNS = 0.33
"""Of a word's characters: a word of random letters and digits changes between their kinds at every second one, names of
things at every tenth."""


def _said(text: str) -> Spans:
    low = lowered(text)
    for at in places(low, _NAMES if text.isascii() else (*_NAMES, *_FOREIGN)):
        if at and text[at - 1].isascii() and text[at - 1].isalnum():
            continue
        for pattern in (_SAID, _NEXT):
            match = pattern.match(text, at)
            span = _trimmed(match) if match else None
            if match is None or span is None:
                continue
            near = pattern is _SAID and not match["fill"].strip()
            introduced = pattern is _SAID or _mixed(match["value"]) or _near_user(low, at)
            if looks_secret(text[slice(*span)], near=near) and introduced:
                yield span
    for pattern, words in ((_USED, _USES), (_PAIR, _PAIRS)):
        if any(word in low for word in words):
            for match in pattern.finditer(text):
                if (span := _trimmed(match)) and looks_secret(text[slice(*span)], near=False):
                    yield span


def _trimmed(match: re.Match[str]) -> tuple[int, int] | None:
    value = match["value"].rstrip("\"'`.,;:)]}>")
    start = match.start("value")
    return (start, start + len(value)) if len(value) > 3 else None


def looks_secret(value: str, *, near: bool) -> bool:
    """Whether a word is a password rather than a word about one.

    Args:
        near: it stands right behind the name.
    """
    if _PLACEHOLDER.fullmatch(value) or _DATED.fullmatch(value) or _ADDRESS.fullmatch(value):
        return False
    digits, letters = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    marks = not value.isalnum() and any(mark in value for mark in "!@#$%^&*+?~")
    if letters and digits:
        return len(value) >= (5 if near else 7)
    if letters and marks:
        return len(value) >= 8 and not value.istitle()
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
    for at in places(low, _CODE_WORDS):
        # What comes before the word belongs to its name; a number must stand behind it, or this is some other code.
        if any(map(str.isdigit, text[at : at + _CODE_REACH])):
            for match in _CODE.finditer(text, max(0, at - 16), at + _CODE_REACH):
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


def _options(text: str) -> Spans:
    for pattern in (_OPTION, _COMMAND):
        yield from matches(pattern, text, 1, keep=lambda found: not _PLACEHOLDER.fullmatch(found))


def _random(text: str) -> Spans:
    low = text.lower()
    for pattern, words in _LABELLED:
        if any(word in low for word in words):
            yield from matches(pattern, text, 1, keep=_is_key)
    for at, word in long_words(text, _RANDOM_LENGTH):
        for match in _RANDOM.finditer(word):
            hashed = match[0].lower().startswith(_HASHED) or word[: match.start()].endswith("/")
            if not hashed and _turns(match[0]) >= _ENOUGH_TURNS:
                yield at + match.start(), at + match.end()


def _is_key(value: str) -> bool:
    return any(map(str.isdigit, value)) and (_turns(value) >= _ENOUGH_TURNS / 2 or value.isupper())


def _stated(text: str) -> Spans:
    for pattern, _ in _STATED:
        yield from matches(
            pattern, text, 1, keep=lambda found: not _PLACEHOLDER.fullmatch(found) and not found.isalpha()
        )


def _turns(word: str) -> float:
    """The share of its letters and digits that are of another kind than the one before."""
    kinds = [0 if one.isdigit() else 1 if one.isupper() else 2 for one in word if one.isalnum()]
    return sum(first != second for first, second in pairwise(kinds)) / max(1, len(kinds))


DETECTORS = (
    Detector("secret", says(_NAMES, _FOREIGN), _said),
    Detector("secret", says(_CODE_WORDS), _codes),
    Detector("secret", says(("cookie",)), _cookies),
    Detector("secret", lambda clues: any(word in clues.low for word in _COMMANDS) or " --" in clues.text, _options),
    Detector("secret", lambda clues: clues.text.count(":") > 3, lambda text: matches(_PGPASS, text, 1)),
    Detector("secret", says(("phrase", "mnemonic", "seed")), lambda text: matches(_PHRASE, text, 1)),
    Detector("secret", lambda clues: clues.long_run, _random),
    Detector("secret", says([word for _, words in _STATED for word in words]), _stated),
)
