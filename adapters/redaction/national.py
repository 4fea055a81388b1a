"""Detectors of numbers that states give to people: by a checksum where the form is its own, else by the word before.

Checks come from `python-stdnum`. One number in ten or so has a good checksum by chance, so only forms with letters,
dots or groups of their own are taken without a word.
"""

import re

from stdnum.br import cpf
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.it import codicefiscale

from adapters.redaction.detector import Detector, Spans, long_words, lowered, matches, places, says

_LABEL = (
    r"(?:social.?security(?: number)?|ssn|nhs|national insurance|ni(?= (?:number|no))|nino|passport|passeport|pasaporte"
    r"|passaporto?|paszport|reisepass|passnummer|driver'?s?.?licen[cs]e|driving.?licen[cs]e|führerschein"
    r"|permis de conduire"
    r"|personalausweis|ausweis(?:nummer|nr)?|identity card|id.?card|national.?id|identity number|cpf|cnh|dni|nie|nif"
    r"|curp"
    r"|rut|pesel|dow[oó]d|aadha+r|pan(?=[ _-]?(?:number|card|no))|nric|personnummer|henkilötunnus|cpr|fødselsnummer|bsn"
    r"|burgerservicenummer|codice fiscale|sécurité sociale|num[ée]ro fiscal|steuer.?(?:id|nummer)"
    r"|steueridentifikationsnummer"
    r"|sozialversicherungsnummer|ahv|sin|social insurance|medicare|tfn|tax.?file|tax.?id|taxpayer|itin|taj|oib"
    r"|jmbg|egn|cnp"
    r"|(?:t\.?c\.? ?)?kimlik(?: numaras[ıi]m?)?|id(?=[ _-](?:number|no|nummer)\b)|num[eé]ro de identidad|c[eé]dula"
    r"|身份证|マイナンバー|주민등록번호|инн|снилс|паспорт\w{0,2})"
)
_WORDS = (
    "social", "sozialv", "ssn", "nhs", "insurance", "ni n",
    "nino", "pass", "pasa", "paszport", "licen", "driv", "führerschein",
    "permis",
    "ausweis", "identity", "id card", "id_card", "idcard", "national", "cpf", "cnh", "dni", "nie", "nif", "curp", "rut",
    "pesel", "dow", "aadha", "pan", "nric", "personnummer", "tunnus", "cpr", "selsnummer", "bsn", "burgerservice",
    "codice",
    "sécurité", "fiscal", "steuer", "ahv", "sin", "medicare", "tfn", "tax", "itin", "taj", "oib", "jmbg", "egn", "cnp",
    "kimlik", "t.c", "tc ", "id num", "id no", "id-num", "id_num", "identidad", "dula",
    "身份证", "マイナンバー", "주민", "инн", "снилс",
)  # fmt: skip
_LABELLED = re.compile(
    rf"(?i){_LABEL}(?![a-z])(?:\s(?:del|de la|do|da|of the)\s[a-z]{{3,12}})?"
    r"[ _-]?(?:number|nummer|nr|no|num|n°|id|card)?\.?[\"']?"
    r"(?:\s?[:=：#]\s?|\s(?:is|was|ist|lautet|est|es|è|é|to|nr|no\.?)\s?:?\s?|是|は|\s{1,2}|\s?\(?[^\d\n]{0,3})[\"']?"
    r"(?P<value>(?=[^\n]{0,24}\d)[A-Z0-9](?:[ ./-]?[A-Z0-9]){4,20})(?![\w-])"
)
_DIGITS = 4
_REACH = 72
"""Characters from the beginning of the word, within which the number must begin."""
_CPF = re.compile(r"(?<![\w.-])\d{3}\.\d{3}\.\d{3}-\d{2}(?![\w-])")
_DNI = re.compile(r"(?<![\w.-])(?:\d{8}-?[A-Z]|[XYZ]-?\d{7}-?[A-Z])(?![\w-])")
_CODICE = re.compile(r"(?<![\w.-])[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?![\w-])")
_NIR = re.compile(r"(?<![\w.-])[12] \d{2} \d{2} \d[\dAB] \d{3} \d{3} \d{2}(?![\w-])")


def _grouped(text: str) -> Spans:
    if "." in text:
        yield from matches(_CPF, text, keep=cpf.is_valid)
    yield from matches(_NIR, text, keep=nir.is_valid)


def _lettered(text: str) -> Spans:
    return matches(_DNI, text, keep=lambda found: dni.is_valid(found) or nie.is_valid(found))


def _labelled(text: str) -> Spans:
    low = lowered(text)
    for at in places(low, _WORDS):
        if at and text[at - 1].isascii() and text[at - 1].isalpha():
            continue
        if not any(map(str.isdigit, text[at : at + _REACH])) or not (match := _LABELLED.match(text, at)):
            continue
        value = match["value"]
        start = match.start("value")
        # The word after a number looks like its last group: up to the last group with a digit, or one letter.
        while (
            " " in value and not any(map(str.isdigit, value.rpartition(" ")[2])) and len(value.rpartition(" ")[2]) > 1
        ):
            value = value.rpartition(" ")[0]
        if is_number(value):
            yield start, start + len(value)


def is_number(value: str) -> bool:
    """Whether `value`, after the name of such a number, may be one."""
    digits = sum(map(str.isdigit, value))
    bare = sum(map(str.isalnum, value))
    return 6 <= bare <= 20 and (digits >= _DIGITS or (digits >= 2 and value.isupper() and " " not in value))


def _codici(text: str) -> Spans:
    for at, word in long_words(text, 16):
        for match in _CODICE.finditer(word):
            if codicefiscale.is_valid(match[0]):
                yield at + match.start(), at + match.end()


DETECTORS = (
    Detector("national_id", lambda clues: clues.long_number, _grouped),
    Detector("national_id", lambda clues: clues.number, _lettered),
    Detector("national_id", lambda clues: clues.long_run, _codici),
    Detector("national_id", says(_WORDS), _labelled),
)
