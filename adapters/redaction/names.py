"""Names of what is secret or personal: one list, for fields of JSON, columns of tables, `name = value` and sentences.

A field's name decides before the look of its value: a password may be a plain word.
"""

import re
from functools import lru_cache

PASSWORDS = (
    "pass", "pwd", "psk", "mdp", "mot de passe", "kennw", "contrase", "clave", "senha", "parol", "wachtwoord", "haslo",
    "hasla", "heslo", "hesla", "losenord", "salasana", "adgangskode", "kodeord", "jelsz", "sifre", "lozink", "geslo",
    "slapta", "parool", "kata sandi", "zugangsdaten", "anmeldedaten", "nenosiri", "neno la siri", "kata laluan",
    "contrasin", "lykilor", "cyfrinair", "pasfhocal", "pasahitz", "fjal", "wagwoord",
)  # fmt: skip
"""How a word for a password begins; what follows is its ending."""
FOREIGN_PASSWORDS = (
    "hasło", "hasła", "lösenord", "şifre", "парол", "лозинк", "құпиясөз", "κωδικ", "mật khẩu", "密码", "密碼", "口令",
    "パスワード", "暗証番号", "비밀번호", "암호", "पासवर्ड", "গোপনশব্দ", "পাসওয়ার্ড", "கடவுச்சொல்", "پاس ورڈ", "رمز عبور",
    "كلمة المرور", "كلمة السر", "סיסמ", "รหัสผ่าน",
)  # fmt: skip
"""Those that no ASCII text has."""
SECRETS = (
    "pw",
    "secret",
    "token",
    "key",
    "schl\u00fcssel",
    "schluessel",
    "credential",
    "cvv",
    "cvc",
    "auth",
    "mnemonic",
)
"""Words in the names of other secrets."""
_PERSONAL = ("ssn", "phone", "telefon", "mobile", "tax", "pesel", "cpf", "card", "pin", "licen", "iban")
COLUMNS = (*PASSWORDS, *SECRETS, *_PERSONAL)
"""Words in the names of columns that tell."""
PERSONAL_KINDS = frozenset({"phone", "iban", "card", "national_id"})

_JOINTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]")
_VARIANT = re.compile(
    r"_?(?:\d{1,3}|v\d|prod|dev|test|staging|old|new|live|confirm|confirmation|repeat|plain|hex|base64)$"
)
_TABLE = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("phone", r"(?:\w*_)?(?:phone|mobile|telephone|telefon|msisdn)(?:_?(?:number|phone|no|nr))?"),
        ("iban", r"(?:\w*_)?iban"),
        ("card", r"pan|credit_?card|(?:\w*_)?card_?(?:number|no)"),
        ("national_id", r"(?:\w*_)?(?:ssn|passport|pesel|cpf)|dni|nif|nie|bsn|nino|nhs|curp|aadhaar|sin|tin|itin|nric"
         r"|personnummer|codice_fiscale|\w*(?:passport_(?:no|number)|tax_(?:id|number)|national_id|nhs_number|pan_number"
         r"|id_card_number|social_security_number|licen[sc]e_number|steuer_?id)"),
        # A token of these is a place in a list, or a word of a model; a pass of those opens no computer.
        ("", r"(?:page|next|prev|continuation|sync|cursor|eos|bos|pad|unk|stop|mask|sep|cls)\w*"
         r"|(?:boarding|day|ski|season|bus|first|second|test)_pass|existing_secret"),
        ("code", r"pin|otp|tan|cvv2?|cvc2?|(?:\w*_)?(?:security|verification|access)_code"),
        ("header", r"(?:set_|proxy_)?(?:cookie|authorization)"),
        ("password", r"\w*(?:password|passwd|passphrase|passcode|pwd|kennwort|passwort|contrasena|contraseña"
         r"|mot_de_passe|motdepasse|mdp|senha|wachtwoord|has[lł]o|heslo|lozinka|парол\w{0,2}|密码|密碼|パスワード|비밀번호|[sş]ifre"
         r"|l[oö]senord|salasana|passord|jelszo)s?|(?:\w*_|store|key|user|root)?(?:pass|pw)|clave"),
        ("token", r"token|psk|appid|sid|phpsessid|j?sessionid|auth|\w*(?:secret|_token|api_?key)|credentials?"
         r"|\w*(?:access|private|secret|signing|account|encryption|master|storage|shared|auth|wifi|wlan|network"
         r"|licen[cs]e|recovery|activation)_?key(?:_base)?|\w*secrets"
         r"|\w*(?:wlan|wifi|netzwerk|api|zugangs|geheim|lizenz)_?schl(?:ü|ue)ssel"),
    )
)  # fmt: skip
_PLAIN = frozenset(
    {
        "null", "none", "true", "false", "undefined", "string", "str", "required", "optional", "integer", "number",
        "boolean", "secret", "password", "token", "bearer", "basic", "input", "output", "text", "field", "value",
        "empty", "invalid", "expired", "missing", "unknown", "hidden", "redacted", "changed", "varchar",
    }
)  # fmt: skip
_ABOUT = frozenset(
    {
        "prompt", "data", "args", "kwargs", "self", "name", "username", "login", "wrong", "correct", "incorrect",
        "accepted", "rejected", "strong", "weak", "default", "generated", "encrypted", "plain", "plaintext", "bytes",
        "object", "query", "param", "params", "parameter", "config", "settings", "update", "reset", "change", "enabled",
        "disabled", "provided", "nullable", "redirect", "external", "must", "should", "please", "cannot", "does",
    }
)  # fmt: skip
"""What else stands behind a password's name where something is said of it."""
REFERENCE = re.compile(
    r"(?i)[\[{(<$%*!].*|[a-z_][\w.]*[(\[{].*|(?:os|process|config|settings|env|self|args)\..*|.*\*\*\*\*.*"
)
"""What stands for a value and is none: a placeholder, a call, a variable."""
_SYMBOLS = frozenset("!@#$%^*+?~")
_SPELT = re.compile(r"[a-z]{3}|[^\w\s()+./-]")


@lru_cache(4096)
def named(name: str) -> str:
    """What the value of a field `name` is by its name alone: `password`, `token`, `code`, `header`, one of
    `PERSONAL_KINDS`, or nothing. Remembered: the fields of a protocol are few and come with every call."""
    low = _JOINTS.sub("_", name).lower().strip("_")
    for kind, pattern in _TABLE:
        if pattern.fullmatch(low):
            return kind
    bare = _VARIANT.sub("", low)
    return named(bare) if bare and bare != low else ""


def named_secret(name: str, value: str) -> bool:
    """Whether `value` of a field that `named` calls `name` is to be taken out."""
    if name in PERSONAL_KINDS:
        digits = sum(map(str.isdigit, value))
        return (7 if name == "phone" else 4) <= digits <= 20 and len(value) <= 32 and not _SPELT.search(value)
    if name == "header":
        return len(value) > 8 and not value.isalpha() and not REFERENCE.fullmatch(value)
    if len(value) < 3 or value.lower() in _PLAIN or REFERENCE.fullmatch(value) or any(map(str.isspace, value)):
        return False
    if name == "code":
        return value.isdigit() and len(value) <= 8
    return name == "password" or len(value) >= 20 or (len(value) >= 6 and any(map(str.isdigit, value)))


def named_number(name: str, digits: str) -> bool:
    """The same of a number in JSON."""
    if name in ("password", "code"):
        return True
    return name in PERSONAL_KINDS and 7 <= len(digits) <= 20


def stated_secret(name: str, value: str, *, quoted: bool, alone: bool) -> bool:
    """Whether `value`, joined to a name in a text, is a secret rather than a word about one.

    Args:
        quoted: it stands in quotes, where a word without digits can be one as well.
        alone: so can one that nothing else stands beside, or that only `=` joins to its name.
    """
    if len(value) < 4 and not (value.isdigit() and len(value) == 3):
        return False
    low = value.lower()
    if low in _PLAIN or REFERENCE.fullmatch(value) or any(map(str.isspace, value)):
        return False
    if any(map(str.isdigit, value)):
        return True
    if name == "password" and (quoted or alone) and value.isalpha():
        return len(value) > 4 and low not in _ABOUT and not any(word in low for word in ("pass", "pwd", "secret"))
    return quoted and (not _SYMBOLS.isdisjoint(value) or not (value.islower() or value.istitle() or value.isupper()))
