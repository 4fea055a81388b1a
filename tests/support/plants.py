"""Planted secrets and personal data, and ordinary traffic that must stay as it is; all drawn from a seed."""

import base64
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import NamedTuple

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
ALNUM = UPPER + LOWER + DIGITS
URLSAFE = ALNUM + "-_"
_FIRST = ("anna", "joao", "mei.lin", "o.neill", "priya", "tom", "s.kowalska", "li", "fatima", "bjorn")
_HOSTS = ("example.com", "mail.example.org", "firma.de", "corp.co.uk", "uni-koeln.de", "gmail.com", "acme.io")


class Plant(NamedTuple):
    kind: str
    value: str
    """What must not be found afterwards."""
    text: str
    """The text that carries it."""


def some(rng: random.Random, alphabet: str, length: int) -> str:
    """Random characters, at least one digit and one letter among them where the alphabet has both."""
    drawn = [rng.choice(alphabet) for _ in range(length)]
    if set(DIGITS) <= set(alphabet) and length > 3:
        drawn[length // 2] = rng.choice(DIGITS)
        drawn[length // 3] = rng.choice([letter for letter in alphabet if letter.isalpha()] or [DIGITS[0]])
    return "".join(drawn)


def hexes(rng: random.Random, length: int) -> str:
    return some(rng, "0123456789abcdef", length)


def _luhn(digits: str) -> str:
    """The check digit."""
    total = 0
    for position, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (2 if position % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return str(-total % 10)


def card(rng: random.Random) -> str:
    prefix, length = rng.choice((("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("34", 15), ("37", 15), ("6011", 16)))
    digits = prefix + "".join(rng.choice(DIGITS) for _ in range(length - len(prefix) - 1))
    return digits + _luhn(digits)


def grouped(digits: str, by: str) -> str:
    sizes = (4, 6, 5) if len(digits) == 15 else (4, 4, 4, 4)
    parts, at = [], 0
    for size in sizes:
        parts.append(digits[at : at + size])
        at += size
    return by.join(parts)


def iban(rng: random.Random, country: str) -> str:
    bank = {"DE": "37040044", "GB": "NWBK"}[country]
    account = bank + "".join(rng.choice(DIGITS) for _ in range(18 - len(bank)))
    numeric = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{country}{98 - int(numeric) % 97:02d}{account}"


def spaced(text: str, by: str = " ") -> str:
    return by.join(text[at : at + 4] for at in range(0, len(text), 4))


def email(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)}{rng.randrange(1000)}@{rng.choice(_HOSTS)}"


def password(rng: random.Random) -> str:
    return rng.choice(LOWER) + some(rng, ALNUM + "!#%*_-", rng.randrange(7, 14)) + rng.choice(DIGITS)


def ssn(rng: random.Random, by: str = "-") -> str:
    area = rng.choice([number for number in range(101, 899) if number != 666])
    return f"{area:03d}{by}{rng.randrange(11, 99)}{by}{rng.randrange(1001, 9999)}"


def us_phone(rng: random.Random, form: str) -> str:
    area, exchange, line = rng.choice((212, 415, 312, 617, 206)), rng.randrange(220, 899), rng.randrange(1000, 9999)
    if exchange % 100 == 11:
        exchange += 1
    return form.format(area, exchange, line)


def jwt(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = part({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{part({'sub': hexes(rng, 8), 'iat': 1700000000})}.{some(rng, URLSAFE, 43)}"


def pem(rng: random.Random, label: str = "RSA PRIVATE KEY", newline: str = "\n") -> str:
    lines = [some(rng, ALNUM + "+/", 64) for _ in range(6)]
    return newline.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


Maker = Callable[[random.Random], tuple[str, str]]
"""(value, text that carries it)"""


def _in(template: str, make: Callable[[random.Random], str]) -> Maker:
    def made(rng: random.Random) -> tuple[str, str]:
        value = make(rng)
        return value, template.replace("@@", value)

    return made


def _key(template: str, prefix: str, alphabet: str, length: int) -> Maker:
    return _in(template, lambda rng: prefix + some(rng, alphabet, length))


FORMS: dict[str, tuple[Maker, ...]] = {
    "api_key": (
        _key("use @@ for this", "sk-", ALNUM, 48),
        _key("OPENAI_API_KEY=@@", "sk-proj-", URLSAFE, 80),
        _key("the key (@@) was rotated", "sk-ant-api03-", URLSAFE, 90),
        _key("aws id @@, region eu-west-1", "AKIA", UPPER + "234567", 16),
        _key("maps: @@.", "AIza", URLSAFE, 35),
        _key("git clone https://@@@github.com/acme/app".replace("@@@", "@@:x-oauth-basic@"), "ghp_", ALNUM, 36),
        _key('{"pat": "@@"}', "github_pat_", ALNUM + "_", 82),
        _key("glab auth login -t @@", "glpat-", URLSAFE, 20),
        _key("slack says @@ is revoked", "xoxb-1234567890-", ALNUM + "-", 36),
        _key("stripe @@ in live mode", "sk_live_", ALNUM, 24),
        _key("HF login with @@", "hf_", ALNUM, 34),
        _key("//registry.npmjs.org/:_authToken=@@", "npm_", ALNUM, 36),
        _key("twine -p @@", "pypi-AgEIcHlwaS5vcmc", URLSAFE, 120),
        _in("sendgrid @@", lambda rng: f"SG.{some(rng, URLSAFE, 22)}.{some(rng, URLSAFE, 43)}"),
        _in("bot @@ says hi", lambda rng: f"{rng.randrange(10**9, 10**10)}:AA{some(rng, URLSAFE, 33)}"),
        _in("twilio @@ (main)", lambda rng: "SK" + hexes(rng, 32)),
        _key("MAPBOX=@@", "sk.eyJ1Ijoi", URLSAFE, 60),
        _key("dropbox long-lived: @@", "sl.B", URLSAFE, 134),
        _in(
            "discord bot @@ joined",
            lambda rng: f"M{some(rng, ALNUM, 23)}.{some(rng, URLSAFE, 6)}.{some(rng, URLSAFE, 38)}",
        ),
        _key("buildkite agent start --token @@", "bkua_", "0123456789abcdef", 40),
        _key("heroku: @@", "HRKU-", URLSAFE, 60),
    ),
    "private_key": (
        _in("here is the key:\n@@\nkeep it", pem),
        _in("id_ed25519 = @@", lambda rng: pem(rng, "OPENSSH PRIVATE KEY")),
    ),
    "jwt": (_in("session @@ expires", jwt), _in("?token=@@&x=1", jwt)),
    "bearer": (
        _in("Authorization: Bearer @@", lambda rng: some(rng, URLSAFE, 40)),
        _in("curl -H 'authorization: bearer @@' https://api.example.com", lambda rng: some(rng, ALNUM, 32)),
    ),
    "credentials": (
        _in("postgres://app:@@@db.internal:5432/prod".replace("@@@", "@@\x40"), lambda rng: some(rng, ALNUM, 14)),
        _in("set REDIS_URL=redis://:@@@cache:6379/0".replace("@@@", "@@\x40"), lambda rng: some(rng, ALNUM, 20)),
    ),
    "secret": (
        _in("password=@@", password),
        _in('{"user": "ann", "password": "@@"}', password),
        _in("DB_PASSWORD: '@@'", password),
        _in('{"client_secret": "@@", "grant_type": "client_credentials"}', lambda rng: some(rng, ALNUM, 32)),
        _in('api_key = "@@"', lambda rng: some(rng, ALNUM, 32)),
        _in("Server=db;User Id=sa;Password=@@;Encrypt=true", password),
        _in("aws_secret_access_key = @@", lambda rng: some(rng, ALNUM + "+/", 40)),
        _in("my password is @@, please log in", password),
    ),
    "email": (
        _in("write to @@ today", email),
        _in('{"customer": {"email": "@@"}}', email),
        _in("From: Ann <@@>, yesterday", email),
    ),
    "phone": (
        _in("call +49 30 @@ now", lambda rng: f"90182{rng.randrange(100, 999)}"),
        _in("mobile: @@", lambda rng: f"+4477009{rng.randrange(10000, 99999)}"),
        _in("reach me at @@.", lambda rng: us_phone(rng, "({}) {}-{}")),
        _in('{"phone": "@@"}', lambda rng: us_phone(rng, "{}-{}-{}")),
    ),
    "card": (
        _in("pay with @@ please", card),
        _in("card @@ exp 04/29", lambda rng: grouped(card(rng), " ")),
        _in('{"number": "@@"}', lambda rng: grouped(card(rng), "-")),
    ),
    "iban": (
        _in("IBAN @@", lambda rng: iban(rng, "DE")),
        _in("to @@ BIC COBADEFF", lambda rng: spaced(iban(rng, "DE"))),
        _in('{"account": "@@"}', lambda rng: iban(rng, "GB")),
    ),
    "ssn": (_in("SSN @@", ssn), _in('{"ssn": "@@"}', ssn), _in("his number is @@ he says", ssn)),
}


def plants(seed: int, rounds: int = 20) -> list[Plant]:
    """Every form `rounds` times, each time with another value."""
    rng = random.Random(seed)
    return [Plant(kind, *make(rng)) for kind, makers in FORMS.items() for make in makers for _ in range(rounds)]


def ordinary(seed: int, count: int = 1000) -> list[str]:
    """Texts of messages, tool results and tool arguments in which there is nothing to take out."""
    rng = random.Random(seed)
    return [rng.choice(_ORDINARY)(rng) for _ in range(count)]


def _digits(rng: random.Random, length: int) -> str:
    return str(rng.randrange(1, 10)) + "".join(rng.choice(DIGITS) for _ in range(length - 1))


_ORDINARY: tuple[Callable[[random.Random], str], ...] = (
    lambda r: json.dumps({"order_id": _digits(r, r.randrange(6, 13)), "status": "shipped", "items": r.randrange(9)}),
    lambda r: json.dumps({"id": str(uuid.UUID(int=r.getrandbits(128))), "created_at": 1700000000 + r.randrange(10**7)}),
    lambda r: f"commit {hexes(r, 40)}\nAuthor: ci\nDate: Tue Jan 2 10:11:12 2024 +0100\n\n    fix",
    lambda r: f"sha256:{hexes(r, 64)} pulled, {r.randrange(10**9)} bytes in {r.random() * 9:.6f}s",
    lambda r: json.dumps({"lat": round(r.uniform(-90, 90), 7), "lon": round(r.uniform(-180, 180), 7), "alt": 12.5}),
    lambda r: f"flight LH{r.randrange(100, 9999)} on 2024-0{r.randrange(1, 9)}-1{r.randrange(9)}T10:30:00+02:00,"
    f" booking {some(r, UPPER + DIGITS, 6)}, seat {r.randrange(1, 40)}A, EUR {r.randrange(50, 2000)}.00",
    lambda r: json.dumps({"id": f"call_{some(r, ALNUM, 24)}", "type": "function", "name": "search_flights"}),
    lambda r: f"request chatcmpl-{hexes(r, 32)} took {r.randrange(10**4)} ms, {r.randrange(4096)} tokens",
    lambda r: f"toolu_{some(r, ALNUM, 24)} returned 200 in step {r.randrange(30)} of run_{some(r, ALNUM, 24)}",
    lambda r: json.dumps(
        {"type": "object", "required": ["user", "password"], "properties": {
            "user": {"type": "string", "description": "login name or e-mail"},
            "password": {"type": "string", "description": "The password of the account"},
            "next_page_token": {"type": "string"}, "max_tokens": {"type": "integer", "default": 4096}}}
    ),
    lambda r: json.dumps({"next_page_token": some(r, ALNUM, 28), "results": [r.randrange(10**6) for _ in range(5)]}),
    lambda r: json.dumps({"usage": {"prompt_tokens": r.randrange(9999), "completion_tokens": 17, "total_tokens": 42}}),
    lambda r: "data:image/png;base64," + base64.b64encode(r.randbytes(600)).decode(),
    lambda r: base64.b64encode(r.randbytes(1500)).decode(),
    lambda r: f"2024-03-0{r.randrange(1, 9)} 10:11:12,{r.randrange(999):03d} INFO worker-{r.randrange(9)} [main]"
    f" c.e.Service - handled {_digits(r, 6)} in {r.randrange(900)}ms (p99 {r.random() * 100:.2f})",
    lambda r: f"$ pip install msgspec=={r.randrange(9)}.{r.randrange(30)}.{r.randrange(9)} react@18.2.{r.randrange(9)}",
    lambda r: f"def login(user, password=None, token=os.environ['APP_TOKEN']):\n"
    f"    return auth(user, password)  # {r.random()}",
    lambda r: "The password must have at least 12 characters and a digit; the token expires after 60 minutes.",
    lambda r: f"Your order {_digits(r, 3)}-{_digits(r, 7)}-{_digits(r, 7)} ships to warehouse {r.randrange(99)}.",
    lambda r: f"ISBN 978-3-16-{_digits(r, 6)}-{r.randrange(9)},"
    f" EAN 400{_digits(r, 10)}, part no. {some(r, UPPER, 3)}-{_digits(r, 8)}",
    lambda r: f"at /usr/lib/python3.11/site-packages/httpx/_client.py:{r.randrange(2000)}"
    " in send_single_request_with_retries",
    lambda r: f"k8s: pod/api-{hexes(r, 9)}-{some(r, LOWER + DIGITS, 5)} 1/1 Running"
    f" 0 {r.randrange(30)}d 10.244.{r.randrange(255)}.7",
    lambda r: f"git@github.com:acme/app.git pushed to refs/heads/main {hexes(r, 7)}..{hexes(r, 7)}",
    lambda r: f"trace {hexes(r, 32)} span {hexes(r, 16)} etag W/\"{hexes(r, 20)}\""
    f" x-request-id: {uuid.UUID(int=r.getrandbits(128))}",
    lambda r: ", ".join(str(round(r.gauss(0, 1), 8)) for _ in range(12)),
    lambda r: " ".join(str(r.randrange(100, 10**5)) for _ in range(20)),
    lambda r: f"| {r.randrange(999)} | {r.randrange(9999)} | 2023-12-{r.randrange(10, 28)}"
    f" | {r.random() * 10**6:,.2f} | +{r.random() * 9:.1f} % |",
    lambda r: f"epoch {1700000000000 + r.randrange(10**9)} ms = {1700000000000000000 + r.randrange(10**15)} ns",
    lambda r: f"SELECT token, password_hash FROM users WHERE id = {r.randrange(10**6)} AND api_key IS NOT NULL;",
    lambda r: f"I found {r.randrange(9)} trains from Köln to Zürich; the"
    f" cheapest costs {r.randrange(20, 200)},90 € and takes 6:1{r.randrange(9)} h.",
    lambda r: f"arn:aws:iam::{_digits(r, 12)}:role/app s3://bucket-{r.randrange(99)}/2024/01/02/part-0000{r.randrange(9)}.parquet",
    lambda r: f"https://example.com/p/{_digits(r, 9)}?utm_source=x&ref={some(r, LOWER, 8)}#section-{r.randrange(20)}",
)  # fmt: skip
