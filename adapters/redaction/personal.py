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

from adapters.redaction.detector import Detector, Spans, Words, form, labelled, listed, lowered

_MOST_CHECKS = 2000
"""Candidates of a kind in one text that are asked whether they are one (up to 90 us each)."""
_DOMAIN = re.compile(
    # In scripts without spaces the words around an address touch it: then its ASCII is one.
    r"(?!\d+[.x])(?:(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w@])"
    r"|(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9_@]))"
)
_SAID_DOMAIN = re.compile(
    r"(?i)(?:[\w-]{2,63} dot |[\w-]{2,63}\.){1,3}"
    r"(?:com|org|net|io|de|fr|uk|es|it|nl|eu|co|edu|gov|info|me|ch|at|pl)(?!\w)"
)
_LOCAL = ".%+'_-"
_LONGEST_LOCAL = 128
_ISSUER = re.compile(
    r"(?:4|5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720|6011|65|64[4-9]|62|35[2-8])(?<=\d)\d{9,15}(?<=\d{16})"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
)
_IBAN = re.compile(
    # From the two check digits on: to begin with any two letters takes four times as long.
    r"\d\d(?<=[A-Za-z]{2}\d\d)(?<![A-Za-z0-9][A-Za-z]{2}\d\d)"
    r"(?:[ \u00a0-]?[A-Za-z0-9]{4}){2,7}(?:[ \u00a0-]?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])"
)
_PHONES = (
    *(f"{whose} n(?:[uú]mm?ero?|uméro|ummer|umber)" for whose in listed("my, meine, mon, mi, il mio, mijn, meu, moj")),
    *listed(
        r"tel(?:ephone|efon|éfono|éphone|em[oó]vel)?, phone, mobile?, móvil, handy, cell(?:ulare)?, celular,"
        r"fax, whatsapp, caller, msisdn, llam\w+ al, llám\w+ al, 电话, 手机, 電話, телефон"
    ),
    *(f"{whom} (?:back )?(?:at|on|under|unter|au)" for whom in listed("me, us, mich, uns, moi, nous")),
)
_NATIONAL = (
    *(f"id{sign}card" for sign in (" ", "_", "-", "")),
    *(rf"id(?={sign}n(?:umber|ummer|o)\b)" for sign in " _-"),
    *listed(
        r"social.?security(?: number)?, ssn, nhs, national insurance, ni(?= n(?:umber|o)), nino, passport, passeport,"
        r"pasaporte, passaporto?, paszport, reisepass, passnummer, driver'?s?.?licen[cs]e, driving.?licen[cs]e,"
        r"führerschein, permis de conduire, personalausweis, ausweis(?:nummer|nr)?, identity card, identity number,"
        r"national.?id, cpf, cnh, dni, nie, nif, curp, rut, pesel, dow[oó]d, aadha+r, pan(?=[ _-](?:number|card|no)),"
        r"nric, personnummer, henkilötunnus, cpr, fødselsnummer, bsn, burgerservicenummer, codice fiscale, ahv, sin,"
        r"sécurité sociale, num[ée]ro (?:fiscal|de identidad), steuer.?(?:id|nummer), steueridentifikationsnummer,"
        r"sozialversicherungsnummer, social insurance, medicare, health insurance, kvnr,"
        r"krankenversicher\w*, (?:kranken)?versicherten, tarjeta sanitaria, tessera sanitaria, tfn, tax.?file, tax.?id,"
        r"taxpayer, itin, taj, oib, jmbg, egn, cnp, kimlik(?: numaras[ıi]m?)?, tckimlik, cédula, cedula, инн, "
        r"снилс, паспорт\w?\w?, 身份证, マイナンバー, 주민등록번호"
    ),
)


def _emails(sign: str, domain: re.Pattern[str], local: re.Pattern[str], text: str) -> Spans:
    """From each sign outwards: twenty times faster than a pattern that begins with every letter of the text."""
    for at, end in Words(sign).places(lowered(text)):
        start, floor = at, max(0, at - _LONGEST_LOCAL)
        while start > floor and (text[start - 1].isalnum() or text[start - 1] in _LOCAL):
            start -= 1
        if (found := domain.match(text, end)) and local.fullmatch(text, start, at):
            yield start, found.end()


def is_card(number: str) -> bool:
    """Whether the digits of `number` have an issuer and the right check digit."""
    digits = "".join(character for character in number if character.isdigit())
    return bool(_ISSUER.fullmatch(digits)) and luhn.is_valid(digits)


def _ibans(text: str) -> Spans:
    for number, match in enumerate(_IBAN.finditer(text)):
        start = match.start() - 2
        found = text[start : match.end()]
        # The word after an account number looks like its last group: take groups away until the check holds.
        while found and number < _MOST_CHECKS and not iban.is_valid(found.replace("-", "").replace("\u00a0", "")):
            found = found[: max(0, *map(found.rfind, " -\u00a0"))]
        if found:
            yield start, start + len(found)


def _is_phone(number: str) -> bool:
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


def _is_national(number: str) -> bool:
    return any(country.is_valid(number) for country in (cpf, nir, dni, nie, codicefiscale))


def _number(value: str) -> str:
    """What may be a number of a person's in `value`, which stands behind the name of one. The word after it looks like
    its last group: up to the last group with a digit, or one letter."""
    while " " in value and len(last := value.rpartition(" ")[2]) > 1 and not any(map(str.isdigit, last)):
        value = value.rpartition(" ")[0]
    digits, bare = sum(map(str.isdigit, value)), sum(map(str.isalnum, value))
    told = digits >= 4 or (digits >= 2 and value.isupper() and " " not in value)
    return value if 6 <= bare <= 20 and told else ""


_long_number = attrgetter("long_number")
_GAP = r"[ .\u00a0\u2009\u2011-]"
_checked = partial(form, most=_MOST_CHECKS)
DETECTORS = (
    Detector("email", lambda clues: "@" in clues.text, partial(_emails, "@", _DOMAIN, re.compile(r"(?!git\Z).+"))),
    Detector("email", Words(" at "), partial(_emails, " at ", _SAID_DOMAIN, re.compile(r"(?=.*[\d.])[\w.+-]{2,}"))),
    form(
        "email", Words("at)", "at]", "at }", "at )", "at ]"),
        r"(?i)(?<![\w.+-])[\w.+-]{1,64} ?[(\[{] ?at ?[)\]}] ?[\w-]{1,63}"
        r"(?: ?(?:[(\[{] ?dot ?[)\]}]|\.) ?[\w-]{1,24}){1,4}",
    ),
    Detector("iban", lambda clues: clues.long_run or clues.long_number, _ibans),
    labelled(
        "ssn", ("social.security", "ssn"), r"[^\d\n]{0,20}(?P<value>\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)"
    ),
    labelled(
        "phone", _PHONES,
        r"(?:[ _-]?(?:number|nummer|no|nr))?\.?[\"']?\s{0,2}(?:[:=：]|\b(?:is|ist|est|es|è|é)\b)?\s{0,2}[\"']?"
        r"(?P<value>(?!\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./]\d\d)[+(]?\d(?:[ .()/\u00a0\u2011-]{0,3}\d){6,14})"
        r"(?![\w-]|\.\d)",
    ),
    labelled(
        "national_id", _NATIONAL,
        r"(?=n(?:ummer|umber|r)|[^a-z]|\Z)(?:\s(?:del|de la|do|da|of the)\s[a-z]{3,12})?"
        r"[ _-]?(?:number|nummer|nr|no|num|n°|id|card)?\.?[\"']?"
        r"(?:\s?[:=：#]\s?|\s(?:is|was|ist|lautet|est|es|è|é|to|nr|no\.?)\s?:?\s?|是|は|\s{1,2}|\s?\(?[^\d\n]{0,3})[\"']?"
        r"(?P<value>(?=[^\n]{0,24}\d)[A-Z0-9](?:[ ./-]?[A-Z0-9]){4,20})(?![\w-])",
        _number,
    ),
    _checked(
        "card", _long_number,
        rf"(?=[2-6])(?<![\w.+-])(?:[2-6]\d{{12,18}}|[2-6]\d{{3}}(?P<gap>{_GAP}"
        rf"| - )\d{{4}}(?P=gap)\d{{4}}(?P=gap)\d{{1,7}}"
        rf"|3[47]\d\d(?P<wide>{_GAP}| - )\d{{6}}(?P=wide)\d{{5}})(?![\w-]|\.\d)",
        is_card,
    ),
    _checked(
        "ssn", _long_number, r"\d(?<![\w.-]\d)\d\d([ -])\d{2}\1\d{4}(?![\w-]|\.\d)",
        lambda found: ssn.is_valid(found.replace(" ", "-")),
    ),
    _checked(
        "phone", lambda clues: "+" in clues.text or "00" in clues.text,
        r"(?<![\w.+-])(?:\+|00)[1-9](?:[ .()/\u00a0\u2011-]{0,2}\d){6,14}(?![\w-]|\.\d)", _is_phone,
    ),
    # As people write American numbers, those of French, German and British mobiles, and of British cities.
    form(
        "phone", _long_number,
        r"(?<![\w.+/-])(?:(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d(?P<by>[.-]))[2-9]\d\d(?(by)(?P=by)|[-. ])\d{4}(?!/\d)"
        r"|0[67](?:[ .-]\d\d){4}|01[5-7]\d[ /-]\d{6,8}|07\d{3} \d{3} ?\d{3}|02\d \d{4} \d{4})(?![\w-]|\.\d)",
    ),
    _checked(
        "ip", lambda clues: clues.text.count(".") > 2, r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)", _is_public
    ),
    _checked("ip", lambda clues: clues.text.count(":") > 1, r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?![\w:])", _is_public),
    # CPF and NIR, DNI and NIE, codice fiscale.
    _checked(
        "national_id", _long_number,
        r"\d(?<![\w.-]\d)(?:\d\d\.\d{3}\.\d{3}-\d\d|(?<=[12]) \d\d \d\d \d[\dAB] \d{3} \d{3} \d\d)(?![\w-])",
        _is_national,
    ),
    _checked(
        "national_id", lambda clues: clues.number, r"(?<![\w.-])(?:\d{8}-?[A-Z]|[XYZ]-?\d{7}-?[A-Z])(?![\w-])",
        _is_national,
    ),
    _checked(
        "national_id", lambda clues: clues.long_run,
        r"(?<![\w.-])[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?![\w-])", _is_national,
    ),
)  # fmt: skip
