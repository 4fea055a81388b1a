"""Detectors of personal data: addresses, telephone, card and account numbers.

A form alone is not enough for a number: order numbers have every form. The checks come from well-kept libraries and are
asked of candidates alone: `python-stdnum` for the checksums of cards, IBANs and SSNs (3 to 20 us each), `phonenumbers`
for the numbering plans that change every month (20 us; its own text matcher takes 0.8 ms per kilobyte).
"""

import ipaddress
import re

import phonenumbers
from stdnum import iban, luhn
from stdnum.us import ssn

from adapters.redaction.detector import Detector, Spans, lowered, matches, places, says

_DOMAIN = re.compile(r"(?!\d+[.x])(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w@])")
_ASCII_DOMAIN = re.compile(r"(?!\d+[.x])(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9_@])")
"""Tried second: in scripts without spaces the words around an address touch it."""
_LOCAL = ".%+'_-"
_LONGEST_LOCAL = 128
_SPELT_EMAIL = re.compile(
    r"(?i)(?<![\w.+-])[\w.+-]{1,64} ?[(\[{] ?at ?[)\]}] ?[\w-]{1,63}(?: ?(?:[(\[{] ?dot ?[)\]}]|\.) ?[\w-]{1,24}){1,4}"
)
_SAID_EMAIL = re.compile(
    r"(?i)(?<![\w.+-])(?=[^\s@]{0,63}[\d.][^\s@]{0,63} )[\w.+-]{2,64} at (?:[\w-]{2,63} dot |[\w-]{2,63}\.){1,3}"
    r"(?:com|org|net|io|de|fr|uk|es|it|nl|eu|co|edu|gov|info|me|ch|at|pl)(?!\w)"
)
_MOST_CHECKS = 2000
"""Candidates of a kind in one text that are asked whether they are one (up to 90 us each); more are taken out by their
form alone. A text with so many is an export, or was made to cost time."""
_NO_MAILBOX = ("git@",)

_GAP = r"[ .\u00a0\u2009\u2011-]"
_CARD = re.compile(
    rf"(?=[2-6])(?<![\w.+-])(?:[2-6]\d{{12,18}}|[2-6]\d{{3}}(?P<gap>{_GAP}| - )\d{{4}}(?P=gap)\d{{4}}(?P=gap)\d{{1,7}}"
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
_SSN = re.compile(r"(?<![\w.-])\d{3}([ -])\d{2}\1\d{4}(?![\w-]|\.\d)")
_LABELLED_SSN = re.compile(r"(?i)(?:\bssn|social.security)[^\d\n]{0,20}(\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)")
_INTERNATIONAL = re.compile(r"(?<![\w.+-])(?:\+|00)[1-9](?:[ .()/\u00a0\u2011-]{0,2}\d){6,14}(?![\w-]|\.\d)")
_AMERICAN = re.compile(
    r"(?<![\w.+/-])(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d(?P<by>[.-]))[2-9]\d\d(?(by)(?P=by)|[-. ])\d{4}"
    r"(?![\w-]|[./]\d)"
)
_LABELLED_PHONE = re.compile(
    r"(?i)(?:(?<![a-z])(?:tel(?:ephone|efon|éfono|éphone)?|phone|mobile?|móvil|handy|cell|fax|whatsapp"
    r"|call (?:me|us) (?:at|on)|caller|msisdn"
    r"|(?:my|meine|mon|mi|il mio|mijn|meu|moj) (?:n[uú]mm?ero?|numéro|nummer|number))"
    r"|电话|手机|電話|телефон)(?:[ _-]?(?:number|nummer|no|nr))?\.?[\"']?\s{0,2}"
    r"(?:[:=：]|\b(?:is|ist|est|es|è|é)\b)?\s{0,2}[\"']?"
    r"(?P<number>[+(]?\d(?:[ .()/\u00a0\u2011-]{0,3}\d){6,14})(?![\w-]|\.\d)"
)
_MOBILE = re.compile(r"(?<![\w.+/-])(?:0[67](?:[ .-]\d\d){4}|01[5-7]\d[ /-]\d{6,8}|07\d{3} \d{3} ?\d{3})(?![\w-]|\.\d)")
"""As people write the numbers of French, German and British mobiles."""
_PHONE_WORDS = (
    "tel", "phone", "mobil", "móvil", "handy", "cell", "fax", "whatsapp", "call", "num", "núm",
    "电话", "手机", "電話", "телефон",
)  # fmt: skip
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
    for at in places(lowered(text), (" at ",)):
        start = text.rfind(" ", max(0, at - 64), at) + 1
        if match := _SAID_EMAIL.match(text, max(start, at - 64)):
            yield match.span()


def _cards(text: str) -> Spans:
    for number, match in enumerate(_CARD.finditer(text)):
        if number >= _MOST_CHECKS or is_card(match[0]):
            yield match.span()


def is_card(number: str) -> bool:
    """Whether the digits of `number` have an issuer and the right check digit."""
    digits = "".join(character for character in number if character.isdigit())
    return bool(_ISSUER.fullmatch(digits)) and luhn.is_valid(digits)


def _ibans(text: str) -> Spans:
    for number, match in enumerate(_IBAN.finditer(text)):
        start = match.start() - 2
        if number >= _MOST_CHECKS:
            yield start, match.end()
            continue
        found = text[start : match.end()]
        # The word after an account number looks like its last group: take groups away until the check holds.
        for _ in range(6):
            if iban.is_valid(found.replace("-", "").replace("\u00a0", "")):
                yield start, start + len(found)
                break
            cut = max(found.rfind(" "), found.rfind("-"), found.rfind("\u00a0"))
            if cut < 0:
                break
            found = found[:cut]


def _ssns(text: str) -> Spans:
    yield from matches(_SSN, text, keep=lambda found: ssn.is_valid(found.replace(" ", "-")))
    if "ssn" in (low := text.lower()) or "social" in low:
        yield from matches(_LABELLED_SSN, text, 1)


def _phones(text: str) -> Spans:
    for number, match in enumerate(_INTERNATIONAL.finditer(text)):
        if number >= _MOST_CHECKS or is_phone(match[0]):
            yield match.span()
    yield from matches(_AMERICAN, text)
    yield from matches(_MOBILE, text)
    low = text.lower()
    if any(word in low for word in _PHONE_WORDS):
        yield from matches(_LABELLED_PHONE, text, "number")


def is_phone(number: str) -> bool:
    """Whether `number`, with the code of its country, is one that its country gives out."""
    written = "+" + number[2:] if number.startswith("00") else number
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(written))
    except phonenumbers.NumberParseException:
        return False


def _addresses(text: str) -> Spans:
    for pattern in (_IPV4, _IPV6):
        yield from matches(pattern, text, keep=_is_public)


def _is_public(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_global
    except ValueError:
        return False


DETECTORS = (
    Detector("email", lambda clues: "@" in clues.text, _emails),
    Detector("email", says(("at)", "at]", " at ")), _spelt_emails),
    Detector("iban", lambda clues: clues.long_run or clues.long_number, _ibans),
    Detector("card", lambda clues: clues.long_number, _cards),
    Detector("ssn", lambda clues: clues.long_number or "ssn" in clues.low or "social" in clues.low, _ssns),
    Detector("phone", lambda clues: clues.long_number or "+" in clues.text or "00" in clues.text, _phones),
    Detector("ip", lambda clues: clues.text.count(".") > 2 or clues.text.count(":") > 1, _addresses),
)
