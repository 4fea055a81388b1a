"""Detectors of personal data: addresses, telephone, card and account numbers.

A form alone is not enough for a number: order numbers have every form. The checks come from well-kept libraries and are
asked of candidates alone: `python-stdnum` for the checksums of cards, IBANs and SSNs (3 to 20 us each), `phonenumbers`
for the numbering plans that change every month (20 us; its own text matcher takes 0.8 ms per kilobyte).
"""

import ipaddress
import re
from functools import partial
from operator import attrgetter

import phonenumbers
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.it import codicefiscale
from stdnum.us import ssn

from adapters.redaction.detector import (
    MOST_CHECKS,
    Detector,
    Spans,
    checked,
    labelled,
    listed,
    lowered,
    matches,
    places,
    says,
)

_DOMAIN = re.compile(r"(?!\d+[.x])(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w@])")
_ASCII_DOMAIN = re.compile(r"(?!\d+[.x])(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9_@])")
"""Tried second: in scripts without spaces the words around an address touch it."""
_LOCAL = ".%+'_-"
_LONGEST_LOCAL = 128
_SPELT_EMAIL = re.compile(
    r"(?i)(?<![\w.+-])[\w.+-]{1,64} ?[(\[{] ?at ?[)\]}] ?[\w-]{1,63}(?: ?(?:[(\[{] ?dot ?[)\]}]"
    r"|\.) ?[\w-]{1,24}){1,4}"
)
_SAID_EMAIL = re.compile(
    r"(?i)(?<![\w.+-])(?=[^\s@]{0,63}[\d.][^\s@]{0,63} )[\w.+-]{2,64} at (?:[\w-]{2,63} dot |[\w-]{2,63}\.){1,3}"
    r"(?:com|org|net|io|de|fr|uk|es|it|nl|eu|co|edu|gov|info|me|ch|at|pl)(?!\w)"
)
_NO_MAILBOX = ("git@",)

_GAP = r"[ .\u00a0\u2009\u2011-]"
_CARD = re.compile(
    rf"(?=[2-6])(?<![\w.+-])(?:[2-6]\d{{12,18}}|[2-6]\d{{3}}(?P<gap>{_GAP}"
    rf"| - )\d{{4}}(?P=gap)\d{{4}}(?P=gap)\d{{1,7}}"
    rf"|3[47]\d\d(?P<wide>{_GAP}| - )\d{{6}}(?P=wide)\d{{5}})(?![\w-]|\.\d)"
)
_ISSUER = re.compile(
    r"(?:4|5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|6011|65|64[4-9]|62|35[2-8])(?<=\d)\d{9,15}(?<=\d{16})"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
)
_IBAN = re.compile(
    # From the two check digits on: to begin with any two letters takes four times as long.
    r"\d\d(?<=[A-Za-z]{2}\d\d)(?<![A-Za-z0-9][A-Za-z]{2}\d\d)"
    r"(?:[ \u00a0-]?[A-Za-z0-9]{4}){2,7}(?:[ \u00a0-]?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])"
)
_SSN = re.compile(r"\d(?<![\w.-]\d)\d\d([ -])\d{2}\1\d{4}(?![\w-]|\.\d)")
_LABELLED_SSN = re.compile(r"(?i)(?:\bssn|social.security)[^\d\n]{0,20}(\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)")
_INTERNATIONAL = re.compile(r"(?<![\w.+-])(?:\+|00)[1-9](?:[ .()/\u00a0\u2011-]{0,2}\d){6,14}(?![\w-]|\.\d)")
_AMERICAN = re.compile(
    r"(?<![\w.+/-])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d(?P<by>[.-]))[2-9]\d\d(?(by)(?P=by)|[-. ])\d{4}"
    r"(?![\w-]|[./]\d)"
)
_LABELLED_PHONE = re.compile(
    r"(?i)(?:(?<![a-z])(?:tel(?:ephone|efon|éfono|éphone)?|phone|mobile?|móvil|handy|cell|fax|whatsapp"
    r"|(?:me|us|mich|uns|moi|nous)(?: back)? (?:at|on|under|unter|au)|ll[aá]m\w{1,6} al|caller|msisdn"
    r"|(?:my|meine|mon|mi|il mio|mijn|meu|moj) (?:n[uú]mm?ero?|numéro|nummer|number))"
    r"|电话|手机|電話|телефон)(?:[ _-]?(?:number|nummer|no|nr))?\.?[\"']?\s{0,2}"
    r"(?:[:=：]|\b(?:is|ist|est|es|è|é)\b)?\s{0,2}[\"']?"
    r"(?P<number>(?!\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./]\d\d)[+(]?\d(?:[ .()/\u00a0\u2011-]{0,3}\d){6,14})(?![\w-]"
    r"|\.\d)"
)
_MOBILE = re.compile(
    r"(?<![\w.+/-])(?:0[67](?:[ .-]\d\d){4}|01[5-7]\d[ /-]\d{6,8}|07\d{3} \d{3} ?\d{3}|02\d \d{4} \d{4})"
    r"(?![\w-]|\.\d)"
)
"""As people write the numbers of French, German and British mobiles, and of British cities."""
_PHONE_WORDS = listed(
    "tel, phone, mobil, móvil, handy, cell, fax, whatsapp, call, num, me at, me on, us at, us on, unter, back at,"
    "back on, back unter,"
    "-moi, nous, llam, llám, núm, 电话, 手机, 電話, телефон"
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?![\w:])")


def _emails(text: str) -> Spans:
    # From each @ outwards: twenty times faster than a pattern that begins with every letter of the text.
    at = text.find("@")
    while at >= 0:
        start, floor = at, max(0, at - _LONGEST_LOCAL)
        while start > floor and (text[start - 1].isalnum() or text[start - 1] in _LOCAL):
            start -= 1
        domain = _DOMAIN.match(text, at + 1) or _ASCII_DOMAIN.match(text, at + 1)
        if domain and start < at and not text.startswith(_NO_MAILBOX, start):
            yield start, domain.end()
        at = text.find("@", at + 1)


def _spelt_emails(text: str) -> Spans:
    if "at)" in text.lower() or "at]" in text.lower():
        yield from matches(_SPELT_EMAIL, text)
    for at, _ in places(lowered(text), (" at ",)):
        start = text.rfind(" ", max(0, at - 64), at) + 1
        if match := _SAID_EMAIL.match(text, max(start, at - 64)):
            yield match.span()


def is_card(number: str) -> bool:
    """Whether the digits of `number` have an issuer and the right check digit."""
    digits = "".join(character for character in number if character.isdigit())
    return bool(_ISSUER.fullmatch(digits)) and luhn.is_valid(digits)


def _ibans(text: str) -> Spans:
    for number, match in enumerate(_IBAN.finditer(text)):
        start = match.start() - 2
        found = text[start : match.end()]
        # The word after an account number looks like its last group: take groups away until the check holds.
        for _ in range(6):
            if number >= MOST_CHECKS or iban.is_valid(found.replace("-", "").replace("\u00a0", "")):
                yield start, start + len(found)
                break
            cut = max(map(found.rfind, " -\u00a0"))
            if cut < 0:
                break
            found = found[:cut]


def _ssns(text: str) -> Spans:
    return matches(_LABELLED_SSN, text, 1)


def _phones(text: str) -> Spans:
    return (match.span("number") for match in labelled(_LABELLED_PHONE, _PHONE_WORDS, 16, text))


def is_phone(number: str) -> bool:
    """Whether `number`, with the code of its country, is one that its country gives out."""
    written = "+" + number[2:] if number.startswith("00") else number
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(written))
    except phonenumbers.NumberParseException:
        return False


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


_LABEL = (
    r"(?:social.?security(?: number)?|ssn|nhs|national insurance|ni(?= (?:number|no))|nino|passport|passeport"
    r"|pasaporte"
    r"|passaporto?|paszport|reisepass|passnummer|driver'?s?.?licen[cs]e|driving.?licen[cs]e|führerschein"
    r"|permis de conduire"
    r"|personalausweis|ausweis(?:nummer|nr)?|identity card|id.?card|national.?id|identity number|cpf|cnh|dni|nie|nif"
    r"|curp"
    r"|rut|pesel|dow[oó]d|aadha+r|pan(?=[ _-]?(?:number|card|no))|nric|personnummer|henkilötunnus|cpr|fødselsnummer"
    r"|bsn"
    r"|burgerservicenummer|codice fiscale|sécurité sociale|num[ée]ro fiscal|steuer.?(?:id|nummer)"
    r"|steueridentifikationsnummer"
    r"|sozialversicherungsnummer|ahv|sin|social insurance|medicare|tfn|tax.?file|tax.?id|taxpayer|itin|taj|oib"
    r"|jmbg|egn|cnp"
    r"|(?:t\.?c\.? ?)?kimlik(?: numaras[ıi]m?)?|id(?=[ _-](?:number|no|nummer)\b)|num[eé]ro de identidad|c[eé]dula"
    r"|身份证|マイナンバー|주민등록번호|инн|снилс|паспорт\w{0,2})"
)
_WORDS = listed(
    "social, sozialv, ssn, nhs, insurance, ni n, nino, pass, pasa, paszport, licen, driv, führerschein, permis,"
    "ausweis, identity, id card, id_card, idcard, national, cpf, cnh, dni, nie, nif, curp, rut, pesel, dow, aadha,"
    "pan, nric, personnummer, tunnus, cpr, selsnummer, bsn, burgerservice, codice, sécurité, fiscal, steuer, ahv,"
    "sin, medicare, tfn, tax, itin, taj, oib, jmbg, egn, cnp, kimlik, t.c, tc, id num, id no, id-num, id_num,"
    "identidad, dula, 身份证, マイナンバー, 주민, инн, снилс"
)
_LABELLED = re.compile(
    rf"(?i){_LABEL}(?![a-z])(?:\s(?:del|de la|do|da|of the)\s[a-z]{{3,12}})?"
    r"[ _-]?(?:number|nummer|nr|no|num|n°|id|card)?\.?[\"']?"
    r"(?:\s?[:=：#]\s?|\s(?:is|was|ist|lautet|est|es|è|é|to|nr|no\.?)\s?:?\s?|是|は|\s{1,2}|\s?\(?[^\d\n]{0,3})[\"']?"
    r"(?P<value>(?=[^\n]{0,24}\d)[A-Z0-9](?:[ ./-]?[A-Z0-9]){4,20})(?![\w-])"
)
_DIGITS = 4
_CPF = re.compile(r"\d(?<![\w.-]\d)\d\d\.\d{3}\.\d{3}-\d{2}(?![\w-])")
_DNI = re.compile(r"(?<![\w.-])(?:\d{8}-?[A-Z]|[XYZ]-?\d{7}-?[A-Z])(?![\w-])")
_CODICE = re.compile(r"(?<![\w.-])[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?![\w-])")
_NIR = re.compile(r"[12](?<![\w.-][12]) \d{2} \d{2} \d[\dAB] \d{3} \d{3} \d{2}(?![\w-])")


def _national_ids(text: str) -> Spans:
    for match in labelled(_LABELLED, _WORDS, 0, text):
        value, start = match["value"], match.start("value")
        # The word after a number looks like its last group: up to the last group with a digit, or one letter.
        while " " in value and len(last := value.rpartition(" ")[2]) > 1 and not any(map(str.isdigit, last)):
            value = value.rpartition(" ")[0]
        if is_number(value):
            yield start, start + len(value)


def is_number(value: str) -> bool:
    """Whether `value`, after the name of such a number, may be one."""
    digits = sum(map(str.isdigit, value))
    bare = sum(map(str.isalnum, value))
    return 6 <= bare <= 20 and (digits >= _DIGITS or (digits >= 2 and value.isupper() and " " not in value))


_long_number = attrgetter("long_number")
_FORMS = (
    ("card", _long_number, _CARD, is_card),
    ("ssn", _long_number, _SSN, lambda found: ssn.is_valid(found.replace(" ", "-"))),
    ("phone", lambda clues: "+" in clues.text or "00" in clues.text, _INTERNATIONAL, is_phone),
    ("phone", _long_number, _AMERICAN, bool),
    ("phone", _long_number, _MOBILE, bool),
    ("ip", lambda clues: clues.text.count(".") > 2, _IPV4, _is_public),
    ("ip", lambda clues: clues.text.count(":") > 1, _IPV6, _is_public),
    ("national_id", _long_number, _CPF, cpf.is_valid),
    ("national_id", _long_number, _NIR, nir.is_valid),
    ("national_id", lambda clues: clues.number, _DNI, lambda found: dni.is_valid(found) or nie.is_valid(found)),
    ("national_id", lambda clues: clues.long_run, _CODICE, codicefiscale.is_valid),
)
"""(kind, whether it can be there, its form, whether it is one)."""
DETECTORS = (
    Detector("email", lambda clues: "@" in clues.text, _emails),
    Detector("email", says(("at)", "at]", " at ")), _spelt_emails),
    Detector("iban", lambda clues: clues.long_run or clues.long_number, _ibans),
    Detector("ssn", says(("ssn", "social")), _ssns),
    Detector("phone", says(_PHONE_WORDS), _phones),
    Detector("national_id", says(_WORDS), _national_ids),
    *(Detector(kind, possible, partial(checked, form, is_one)) for kind, possible, form, is_one in _FORMS),
)
