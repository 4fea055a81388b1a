"""Names of what is secret or personal, and whether what stands with one is: one judgement for fields of JSON, cells of
tables, `name = value` and sentences.

A value's name decides first and its look second: the weaker the tie between the two, the more the value must look like
a secret.
"""

import re
from functools import lru_cache
from itertools import pairwise

from adapters.redaction.detector import listed

PASSWORDS = listed(
    "pass, pwd, psk, mdp, mot de passe, kennw, contrase, clave, senha, parol, wachtwoord, haslo, hasla, heslo, hesla,"
    "losenord, salasana, adgangskode, kodeord, jelsz, sifre, lozink, geslo, slapta, parool, kata sandi, zugangsdaten,"
    "anmeldedaten, nenosiri, neno la siri, kata laluan, contrasin, lykilor, cyfrinair, pasfhocal, pasahitz, fjal,"
    "wagwoord, pw, hasło, hasła, lösenord, şifre, парол, лозинк, құпиясөз, κωδικ, mật khẩu, 密码, 密碼, 口令,"
    "パスワード, 暗証番号, 비밀번호, 암호, पासवर्ड, গোপনশব্দ, পাসওয়ার্ড, கடவுச்சொல், پاس ورڈ, رمز عبور, كلمة المرور,"
    "كلمة السر, סיסמ, รหัสผ่าน"
)
"""How a word for a password begins; what follows is its ending."""
SECRETS = listed("secret, token, _pat, key, schlüssel, schluessel, credential, cvv, cvc, auth, mnemonic")
"""Words in the names of other secrets."""
KEYS = frozenset(
    listed(
        "access, private, secret, signing, account, encryption, master, storage, shared, auth, wifi, wlan, network,"
        "openai, license, licence, recovery, activation, api, client"
    )
)
"""Of these a key is secret."""
PERSONAL_KINDS = frozenset({"phone", "iban", "card", "national_id"})

OF_NUMBERS = PERSONAL_KINDS | {"password", "code"}
"""Kinds that a number of JSON can be; a `token` that is one is a model's."""

FAR, NEAR, ALONE, QUOTED, FIELD = range(5)
"""How a value is tied to its name: by a sentence; by a sign or a verb; by a sign, and nothing else stands there; by a
sign, in quotes; as the field or column of that name."""

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
         r"|id_card_number|insurance_(?:id|no|number)|kvnr|versichertennummer|social_security_number|licen[sc]e_number|steuer_?id)"),
        # A token of these is a place in a list, or a word of a model; a pass of those opens no computer.
        ("", r"(?:page|next|prev|continuation|sync|cursor|eos|bos|pad|unk|stop|mask|sep|cls)\w*"
         r"|(?:boarding|day|ski|season|bus|first|second|test)_pass|existing_secret|public_?key_?token"),
        ("code", r"pin|otp|tan|cvv2?|cvc2?|(?:\w*_)?(?:security|verification|access|one_?time|auth)_?code"),
        ("header", r"(?:set_|proxy_)?(?:cookie|authorization)"),
        ("password", r"\w*(?:password|passwd|pass_?phrase|passcode|pwd|kennwort|passwort|contrasena|contraseña"
         r"|mot_de_passe|motdepasse|mdp|senha|wachtwoord|has[lł]o|heslo|lozinka|парол\w{0,2}|密码|密碼|パスワード|비밀번호|[sş]ifre"
         r"|l[oö]senord|salasana|passord|jelszo)s?|(?:\w*_|store|key|user|root)?(?:pass|pw)|clave|psk"),
        ("token", r"token|appid|sid|phpsessid|j?session_?id|auth|\w*(?:secret|_token|_pat|api_?key)|credentials?"
         rf"|\w*(?:{'|'.join(KEYS)})_?key(?:_base|_data|_pem)?|\w*secrets"
         r"|\w*(?:wlan|wifi|netzwerk|api|zugangs|geheim|lizenz)_?schl(?:ü|ue)ssel"),
    )
)  # fmt: skip
_PLAIN = frozenset(
    listed(
        "null, none, true, false, undefined, string, str, required, optional, integer, number, boolean, secret,"
        "password, token, bearer, basic, input, output, text, field, value, empty, invalid, expired, missing, unknown,"
        "hidden, redacted, changed, varchar, default"
    )
)
_ABOUT = frozenset(
    listed(
        "prompt, data, args, kwargs, self, name, username, login, wrong, correct, incorrect, accepted, rejected,"
        "strong, weak, default, generated, encrypted, plain, plaintext, bytes, object, query, param, params,"
        "parameter, config, settings, update, reset, change, enabled, disabled, provided, nullable, redirect,"
        "external, must, should, please, cannot, does"
    )
)
"""What else stands behind a password's name where something is said of it."""
_REFERENCE = re.compile(
    r"(?i)[\[{(<$%*!].*|[a-z_][\w.]*[(\[{].*|(?:os|process|config|settings|env|self|args)\..*|.*\*\*\*\*.*|x{4,}|//.*"
)
"""What stands for a value and is none: a placeholder, a call, a variable."""
_OTHER = re.compile(
    r".*[(\[{].*[)\]}]|https?://.*|.*\.(?:com|org|html?|py|md|json|txt|ya?ml)"
    # An address, whose password it is about; a date, a version, a measure.
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|v?\d+(?:\.\d+)+\S*|\d{1,2}:\d\d.*|\d+[A-Za-z%]{1,4}|[A-Za-z]\d{1,3}"
)
"""What else stands in a sentence about a secret."""
_SYMBOLS = frozenset("!@#$%^&*+?~")
_SPELT = re.compile(r"[a-z]{3}|[^\w\s()+./-]")
ENOUGH_TURNS = 0.33
"""Of a word's characters: a word of random letters and digits changes between their kinds at every second one, names of
things at every tenth."""
_MIXED_WORD = re.compile(r"[A-Za-z]\d|\d[A-Za-z]")


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


def is_value(text: str) -> bool:
    """Whether `text` is one, and does not only stand for one: a placeholder, a variable, a word such as `null`."""
    return text.lower() not in _PLAIN and _REFERENCE.fullmatch(text) is None


def is_secret(kind: str, value: str, tie: int = FIELD) -> bool:
    """Whether `value`, which is tied to a name that `named` calls `kind`, is to be taken out, rather than a word about
    the secret or what stands in for it."""
    digits = sum(map(str.isdigit, value))
    if kind in PERSONAL_KINDS:
        return (7 if kind == "phone" else 4) <= digits <= 20 and len(value) <= 32 and not _SPELT.search(value)
    if not is_value(value) or len(value) < 3:
        return False
    if kind == "header":
        return len(value) > 8 and not value.isalpha()
    if any(map(str.isspace, value)):
        return kind == "password" and tie >= QUOTED and len(value) < 64 and bool(_MIXED_WORD.search(value))
    if kind == "code" and tie in (FAR, FIELD):
        return digits > 2 and value.isalnum() and len(value) <= 8
    if tie == FIELD:
        return len(value) >= (3 if kind == "password" else 6 if digits else 20)
    return _looks_secret(kind, value, tie, digits)


def turns(word: str) -> float:
    """The share of its letters and digits that are of another kind than the one before."""
    kinds = [0 if one.isdigit() else 1 if one.isupper() else 2 for one in word if one.isalnum()]
    return sum(first != second for first, second in pairwise(kinds)) / max(1, len(kinds))


def _looks_secret(kind: str, value: str, tie: int, digits: int) -> bool:
    if len(value) < 4:
        return digits == 3 and tie > FAR
    if tie <= NEAR and _OTHER.fullmatch(value):
        return False
    if digits:
        if tie == NEAR:
            return len(value) > 4 or value.isdigit()
        return tie > FAR or (len(value) >= (7 if kind == "password" else 12) and any(map(str.isalpha, value)))
    low = value.lower()
    if tie >= ALONE and kind == "password" and value.isalpha():
        return len(value) > 4 and low not in _ABOUT and not any(word in low for word in ("pass", "pwd", "secret"))
    if tie == QUOTED:
        return not _SYMBOLS.isdisjoint(value) or not (value.islower() or value.istitle() or value.isupper())
    if not any(map(str.isalpha, value)):
        return False
    mixed = value.isalpha() and value.isascii() and len(value) >= 12 and turns(value) > ENOUGH_TURNS
    marked = not _SYMBOLS.isdisjoint(value[1:-1]) and len(value) >= 8 and (tie > FAR or not value.istitle())
    return marked or mixed or (kind == "password" and value.count("-") >= 2 and len(value) >= 16)  # a passphrase
