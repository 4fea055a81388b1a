# ruff: noqa: E501 - a table of what people write, in many languages
"""Two lists of planted secrets that were frozen before any pattern was looked at: 200 to work with (`frozen`), and 100 of
other shapes (`sealed`) that are measured once the work is done.

They are made at run time, for a repository with keys in it is refused by whoever scans it; a test holds their digests.

    python -m tests.support.planted > plants.jsonl        one JSON object a line: text, place, secret
    python -m tests.support.planted --sealed
"""

import base64
import binascii
import html
import json
import random
import re
import sys
import uuid
from collections.abc import Callable
from urllib.parse import unquote

import msgspec

from actors.messages import Feedback
from actors.messages.spool import RawExchange
from adapters.redaction import Redactor
from tests.support.plants import (
    ALNUM,
    DIGITS,
    LOWER,
    UPPER,
    URLSAFE,
    card,
    email,
    grouped,
    hexes,
    iban,
    jwt,
    pem,
    some,
    spaced,
    ssn,
)  # fmt: skip

Draw = Callable[[random.Random], str]
Shape = tuple[str, str, Draw, str]
"""(kind, place, the secret, the text around it: `{}` is the secret, `{b64}` the base64 of `around:secret`)."""


class Planted(msgspec.Struct, frozen=True):
    text: str
    place: str
    secret: str
    kind: str = ""


def _key(prefix: str, alphabet: str, length: int) -> Draw:
    return lambda rng: prefix + some(rng, alphabet, length)


def _digits(pattern: str) -> Draw:
    """`#` is a digit."""
    return lambda rng: "".join(rng.choice("123456789") if one == "#" else one for one in pattern)


def _words(rng: random.Random) -> str:
    return "-".join(rng.choice(("correct", "horse", "battery", "staple", "lemon", "tiger", "copper")) for _ in range(4))


def _nhs(rng: random.Random) -> str:
    while True:
        nine = "".join(rng.choice("123456789") for _ in range(9))
        check = 11 - sum(int(one) * (10 - at) for at, one in enumerate(nine)) % 11
        if check != 10:
            return f"{nine[:3]} {nine[3:6]} {nine[6:]}{0 if check == 11 else check}"


def _cpf(rng: random.Random) -> str:
    digits = [rng.randrange(1, 10) for _ in range(9)]
    for _ in range(2):
        rest = sum(one * (len(digits) + 1 - at) for at, one in enumerate(digits)) * 10 % 11
        digits.append(rest % 10)
    text = "".join(map(str, digits))
    return f"{text[:3]}.{text[3:6]}.{text[6:9]}-{text[9:]}"


def _dni(rng: random.Random) -> str:
    number = rng.randrange(10_000_000, 99_999_999)
    return f"{number}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def _aadhaar(rng: random.Random) -> str:
    table = ("0123456789", "1234067895", "2340178956", "3401289567", "4012395678", "5987604321", "6598710432",
             "7659821043", "8765932104", "9876543210")  # fmt: skip
    turn = (
        "0123456789",
        "1576283094",
        "5803796142",
        "8916043527",
        "9453126870",
        "4286573901",
        "2793806415",
        "7046913258",
    )
    digits = str(rng.randrange(2, 10)) + "".join(rng.choice(DIGITS) for _ in range(10))
    check = next(c for c in DIGITS if _verhoeff(digits + c, table, turn) == 0)
    text = digits + check
    return f"{text[:4]} {text[4:8]} {text[8:]}"


def _verhoeff(digits: str, table: tuple[str, ...], turn: tuple[str, ...]) -> int:
    state = 0
    for at, one in enumerate(reversed(digits)):
        state = int(table[state][int(turn[at % 8][int(one)])])
    return state


def _pesel(rng: random.Random) -> str:
    ten = f"{rng.randrange(50, 99)}{rng.randrange(1, 13):02d}{rng.randrange(1, 28):02d}{rng.randrange(1000, 9999)}"
    return ten + str(
        -sum(int(one) * weight for one, weight in zip(ten, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), strict=True)) % 10
    )


def _insee(rng: random.Random) -> str:
    body = f"{rng.choice('12')}{rng.randrange(50, 99)}{rng.randrange(1, 13):02d}75{rng.randrange(100, 999)}{rng.randrange(100, 999)}"
    text = body + f"{97 - int(body) % 97:02d}"
    return f"{text[0]} {text[1:3]} {text[3:5]} {text[5:7]} {text[7:10]} {text[10:13]} {text[13:]}"


def _codice(rng: random.Random) -> str:
    six = "".join(rng.choice("BCDFGLMNPRSTVZ") for _ in range(6))
    body = f"{six}{rng.randrange(50, 99)}{rng.choice('ABCDEHLMPRST')}{rng.randrange(10, 29)}H501"
    odd = dict(zip("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21,
               2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23), strict=True))  # fmt: skip
    total = sum(
        odd[one] if at % 2 == 0 else (int(one) if one.isdigit() else ord(one) - 65) for at, one in enumerate(body)
    )
    return body + chr(65 + total % 26)


def _odd_email(rng: random.Random) -> str:
    return rng.choice(("{}+invoices@{}", "{}_x.y@sub.{}", "{}-1999@{}", "o'{}@{}")).format(
        some(rng, LOWER, 6), rng.choice(("posteo.de", "proton.me", "seznam.cz"))
    )


def _strong(rng: random.Random) -> str:
    return some(rng, UPPER + LOWER + DIGITS, 9) + rng.choice("!#%+?") + some(rng, LOWER, 3)


def _aws_secret(rng: random.Random) -> str:
    return some(rng, ALNUM + "/+", 40)


def _name_then(rng: random.Random) -> str:
    return (
        rng.choice(("Sommer", "Geheim", "Hannover", "Bello", "Dragon", "Winter"))
        + str(rng.randrange(10, 9999))
        + rng.choice(("!", "", "#", "?"))
    )


_JSON_USER = '{{"user": {{"id": 18, "name": "R. Falk", "contact": "{}"}}, "ok": true}}'

FROZEN: tuple[Shape, ...] = (
    # Cloud and vendors.
    ("api_key", "tool_result", _key("AKIA", UPPER + "234567", 16), "[default]\naws_access_key_id = {}\nregion = eu-west-1"),
    ("secret", "tool_result", _aws_secret, "[default]\naws_secret_access_key = {}\nregion = eu-west-1"),
    ("secret", "user", _aws_secret, "the AWS secret access key is {} and the bucket is media-prod"),
    ("api_key", "user", _key("AIza", URLSAFE, 35), "maps does not load, we use {} on the page"),
    ("api_key", "tool_arguments", _key("ghp_", ALNUM, 36), '{{"repo": "acme/site", "command": "git clone https://{}@github.com/acme/site"}}'),
    ("api_key", "stream", _key("glpat-", URLSAFE, 20), "Use the token {} for the pipeline."),
    ("api_key", "assistant", _key("sk-proj-", URLSAFE, 48), "I will call it with {} as before."),
    ("api_key", "user", _key("sk-ant-api03-", URLSAFE, 93), "export ANTHROPIC_API_KEY={}"),
    ("api_key", "tool_result", lambda r: f"xoxb-{some(r, DIGITS, 12)}-{some(r, DIGITS, 13)}-{some(r, ALNUM, 24)}", "slack:\n  bot_token: {}\n  channel: ops"),
    ("api_key", "tool_result", _key("sk_live_", ALNUM, 24), "id,name,stripe\n7,Nord,{}\n8,Sued,-"),
    ("api_key", "user", lambda r: f"SG.{some(r, URLSAFE, 22)}.{some(r, URLSAFE, 43)}", "sendgrid says 401 with {}"),
    ("api_key", "tool_arguments", lambda r: f"AC{hexes(r, 32)}:{hexes(r, 32)}", '{{"command": "curl -u {} https://api.twilio.com/2010-04-01/Accounts"}}'),
    ("api_key", "tool_result", _key("hf_", ALNUM, 34), "HF_TOKEN={}\nHF_HOME=/data"),
    ("api_key", "user", _key("npm_", ALNUM, 36), "//registry.npmjs.org/:_authToken={}"),
    ("api_key", "tool_result", _key("dop_v1_", "0123456789abcdef", 64), "doctl auth init -t {}"),
    ("secret", "tool_result", lambda r: f"DefaultEndpointsProtocol=https;AccountName=media;AccountKey={base64.b64encode(r.randbytes(64)).decode()};EndpointSuffix=core.windows.net", "conn = {}"),
    ("secret", "user", lambda r: some(r, URLSAFE, 3) + "8Q~" + some(r, URLSAFE, 34), "Azure client secret: {}, tenant is contoso"),
    ("api_key", "tool_result", lambda r: f"https://hooks.slack.com/services/T{some(r, UPPER + DIGITS, 8)}/B{some(r, UPPER + DIGITS, 10)}/{some(r, ALNUM, 24)}", "webhook: {}"),
    ("api_key", "user", lambda r: f"{some(r, DIGITS, 10)}:AA{some(r, URLSAFE, 33)}", "my telegram bot {} stopped answering"),
    ("api_key", "tool_result", _key("dd_api_key ", "0123456789abcdef", 32), "datadog: {}"),
    ("secret", "tool_result", lambda r: hexes(r, 32), '{{"DD_API_KEY": "{}", "DD_SITE": "datadoghq.eu"}}'),
    ("secret", "header", _key("", ALNUM, 40), "x-api-key: {}"),
    ("secret", "tool_result", lambda r: str(uuid.UUID(int=r.getrandbits(128), version=4)), "HEROKU_API_KEY={}"),
    ("secret", "tool_result", lambda r: hexes(r, 37), "cloudflare_global_api_key: {}"),
    ("api_key", "tool_result", lambda r: f"eyJrIjoi{some(r, ALNUM, 60)}==", "grafana api key {} (Editor)"),
    # Tokens and keys of no vendor.
    ("jwt", "user", jwt, "curl -H 'Authorization: Bearer {}' https://api.acme.io/me gives 403"),
    ("jwt", "tool_result", jwt, '{{"access_token": "{}", "expires_in": 3600}}'),
    ("private_key", "user", lambda r: pem(r), "here is the deploy key:\n{}\nthanks"),
    ("private_key", "tool_arguments", lambda r: pem(r, "OPENSSH PRIVATE KEY"), '{{"path": "/root/.ssh/id_ed25519", "content": {json}}}'),
    ("private_key", "tool_result", lambda r: pem(r, "PRIVATE KEY", "\\n"), '{{"type": "service_account", "private_key": "{}"}}'),
    ("secret", "user", lambda r: base64.b64encode(r.randbytes(24)).decode(), "SECRET_KEY_BASE: {}"),
    ("secret", "tool_result", lambda r: "0x" + hexes(r, 64), "wallet private key {}"),
    ("secret", "user", lambda r: " ".join(r.choice(("abandon", "ladder", "zebra", "orbit", "velvet", "cactus", "thunder", "noodle")) for _ in range(12)), "my seed phrase is {}"),
    ("secret", "tool_result", lambda r: some(r, UPPER + "234567", 32), "otpauth://totp/Acme:falk?secret={}&issuer=Acme"),
    ("secret", "assistant", _key("", URLSAFE, 43), "Set-Cookie: session={}; HttpOnly; Path=/"),
    ("secret", "tool_result", _key("", ALNUM, 26), "Cookie: PHPSESSID={}; lang=de"),
    # Connection strings and URLs.
    ("secret", "tool_result", _strong, "DATABASE_URL=postgres://app:{}@db.internal:5432/shop"),
    ("secret", "user", _name_then, "mongodb+srv://falk:{}@cluster0.ab1cd.mongodb.net/test"),
    ("secret", "tool_result", _strong, "Server=db1;Database=crm;User Id=sa;Password={};Encrypt=true"),
    ("secret", "tool_result", _strong, "jdbc:mysql://db1/crm?user=app&password={}&useSSL=true"),
    ("secret", "tool_arguments", _strong, '{{"url": "redis://:{}@cache:6379/0"}}'),
    ("secret", "user", _key("", ALNUM, 32), "GET https://api.weather.io/v1/now?city=Oslo&api_key={}&units=m"),
    ("secret", "tool_result", lambda r: some(r, ALNUM, 42) + "%3D", "https://media.blob.core.windows.net/x?sv=2022-11-02&se=2026-01-01&sig={}"),
    # Passwords in prose.
    ("secret", "user", _name_then, "My password is {} but it does not let me in."),
    ("secret", "user", _strong, "password is: {}"),
    ("secret", "user", _name_then, "Login falk, pw {} please check"),
    ("secret", "user", _name_then, "Mein Passwort lautet {}, können Sie es zurücksetzen?"),
    ("secret", "user", _name_then, "Das Kennwort für den Drucker ist {}."),
    ("secret", "user", _name_then, "mon mot de passe est {} merci"),
    ("secret", "user", _name_then, "la contraseña es {} y el usuario falk"),
    ("secret", "user", _name_then, "minha senha é {}"),
    ("secret", "user", _name_then, "la password del portale è {}"),
    ("secret", "user", _name_then, "mijn wachtwoord is {}"),
    ("secret", "user", _name_then, "moje hasło to {}"),
    ("secret", "user", _name_then, "мой пароль: {}"),
    ("secret", "user", _name_then, "我的密码是{}，请帮我重置"),
    ("secret", "user", _name_then, "パスワードは{}です"),
    ("secret", "user", _name_then, "I changed it from {} to something else, the old password was {}"),
    ("secret", "stream", _strong, "Your temporary password: {}\nChange it at first login."),
    ("secret", "assistant", _words, "The passphrase is {}, keep it safe."),
    ("secret", "user", _digits("####"), "the PIN of my card is {}"),
    ("secret", "user", _digits("######"), "your verification code is {}"),
    ("secret", "tool_arguments", _strong, '{{"username": "falk", "password": "{}"}}'),
    ("secret", "tool_arguments", _name_then, '{{"login": {{"user": "falk", "pass": "{}"}}}}'),
    ("secret", "tool_arguments", _digits("####"), '{{"account": "main", "pin": {}}}'),
    ("secret", "tool_result", lambda r: base64.b64encode(r.randbytes(15)).decode(), '{{"db_password": "{}"}}'),
    ("secret", "tool_result", _strong, "host,user,password\ndb1,app,{}\ndb2,app,-"),
    ("secret", "tool_result", _name_then, "| host | password |\n|------|----------|\n| db1 | {} |"),
    ("secret", "tool_result", _strong, "users:\n  - name: falk\n    password: '{}'"),
    ("secret", "tool_result", _strong, "<user><name>falk</name><password>{}</password></user>"),
    ("secret", "feedback", _name_then, "it asked for my password twice, it is {}"),
    ("secret", "user", _strong, "mysql -u root -p{} shop < dump.sql"),
    # Encodings.
    ("secret", "tool_result", _strong, "kind: Secret\ndata:\n  password: {b64}"),
    ("secret", "tool_arguments", _strong, '{{"headers": {{"Authorization": "Basic {b64}"}}}}'),
    ("email", "user", email, "attached: {b64}"),
    # Personal data.
    ("email", "user", email, "please write to {} when it is done"),
    ("email", "user", _odd_email, "Kontakt: {}; Danke"),
    ("email", "tool_result", email, "id,email,plan\n1,{},pro"),
    ("email", "tool_result", lambda r: email(r).replace("@", "%40"), "https://shop.acme.io/login?user={}"),
    ("email", "tool_arguments", email, '{{"to": ["{}"], "subject": "Re: order"}}'),
    ("email", "stream", email, "I have sent it to {}."),
    ("card", "user", card, "charge {} please, exp 04/27"),
    ("card", "tool_arguments", card, '{{"number": {}, "amount": 20}}'),
    ("card", "user", lambda r: grouped(some(r, DIGITS, 1) and card(r), " "), "my card {} was declined"),
    ("card", "tool_result", lambda r: grouped(card(r), "-"), "name;card\nFalk;{}"),
    ("iban", "user", lambda r: spaced(iban(r, "DE")), "bitte auf {} überweisen"),
    ("iban", "tool_arguments", lambda r: iban(r, "GB"), '{{"beneficiary": "R Falk", "account": "{}"}}'),
    ("phone", "user", _digits("+49 171 #######"), "ruf mich an: {}"),
    ("phone", "user", _digits("(212) 2##-####"), "call me at {} after five"),
    ("phone", "tool_result", _digits("+447#########"), "name,phone\nFalk,{}"),
    ("phone", "tool_arguments", _digits("+336########"), '{{"to": "{}", "body": "on my way"}}'),
    ("ssn", "user", lambda r: ssn(r), "SSN {} for the form"),
    ("national_id", "user", _nhs, "NHS number {}"),
    ("national_id", "user", _cpf, "meu CPF é {}"),
    ("national_id", "user", _dni, "mi DNI es {}"),
    ("national_id", "tool_result", _pesel, '{{"pesel": "{}"}}'),
    ("national_id", "user", _aadhaar, "Aadhaar: {}"),
    ("national_id", "user", _insee, "mon numéro de sécurité sociale : {}"),
    ("national_id", "tool_result", _codice, "codice fiscale {}"),
    ("passport", "user", _key("C0", UPPER + DIGITS, 7), "passport number {}"),
)  # fmt: skip

SEALED: tuple[Shape, ...] = (
    ("api_key", "tool_result", _key("glsa_", ALNUM, 41), "GRAFANA_TOKEN: {}"),
    ("api_key", "user", _key("shpat_", "0123456789abcdef", 32), "shopify admin {} does not work"),
    ("api_key", "tool_result", lambda r: f"NRAK-{some(r, UPPER + DIGITS, 27)}", "newrelic = {}"),
    ("api_key", "user", _key("rk_live_", ALNUM, 30), "restricted key {} please rotate"),
    ("api_key", "tool_arguments", _key("figd_", URLSAFE, 40), '{{"cmd": ["curl", "-H", "X-Figma-Token: {}"]}}'),
    ("api_key", "tool_result", _key("dapi", "0123456789abcdef", 32), "databricks token {}"),
    ("api_key", "tool_result", _key("atlasv1.", ALNUM, 60), "TFE_TOKEN={}"),
    ("api_key", "user", lambda r: some(r, ALNUM, 14) + ".atlasv1." + some(r, ALNUM, 60), "terraform cloud: {}"),
    ("api_key", "tool_result", _key("vercel_blob_rw_", ALNUM, 40), "BLOB_READ_WRITE_TOKEN={}"),
    ("api_key", "tool_result", _key("AQVN", URLSAFE, 36), "yandex api-key {}"),
    ("api_key", "user", _key("CFPAT-", URLSAFE, 43), "contentful {}"),
    ("api_key", "tool_result", lambda r: f"{hexes(r, 32)}-us14", "mailchimp: {}"),
    ("api_key", "tool_result", _key("pypi-AgEIcHlwaS5vcmc", URLSAFE, 100), "[pypi]\nusername = __token__\npassword = {}"),
    ("api_key", "user", _key("lin_api_", ALNUM, 40), "{} is the linear one"),
    ("api_key", "tool_result", lambda r: f"https://{hexes(r, 32)}@o450.ingest.sentry.io/45", "SENTRY_DSN={}"),
    ("secret", "tool_result", lambda r: hexes(r, 40), "circleci: token={}"),
    ("secret", "tool_result", lambda r: hexes(r, 64), "X-Auth-Token: {}"),
    ("secret", "header", lambda r: hexes(r, 64), "x-auth-token: {}"),
    ("secret", "tool_arguments", lambda r: hexes(r, 32), '{{"params": {{"appid": "{}", "q": "Oslo"}}}}'),
    ("secret", "tool_arguments", _key("", ALNUM, 30), '{{"client_id": "web", "client_secret": "{}"}}'),
    ("secret", "tool_result", _key("1//0", URLSAFE, 60), '{{"refresh_token": "{}"}}'),
    ("private_key", "tool_result", lambda r: pem(r, "EC PRIVATE KEY"), "{}"),
    ("private_key", "tool_result", lambda r: pem(r, "ENCRYPTED PRIVATE KEY"), '{{"key": {json}}}'),
    ("private_key", "user", lambda r: "AGE-SECRET-KEY-1" + some(r, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58), "{}"),
    ("private_key", "tool_result", lambda r: base64.b64encode(r.randbytes(32)).decode(), "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.2/32"),
    ("jwt", "tool_arguments", jwt, '{{"cookies": [{{"name": "sid", "value": "{}"}}]}}'),
    ("jwt", "stream", jwt, "token={}"),
    ("secret", "tool_result", _strong, "smtp://mailer:{}@smtp.acme.io:587"),
    ("secret", "tool_result", _strong, "sqlserver://db:1433;user=sa;password={};encrypt=false"),
    ("secret", "tool_result", _strong, "machine git.acme.io login falk password {}"),
    ("secret", "tool_result", _strong, "db1.internal:5432:shop:app:{}"),
    ("secret", "tool_arguments", _strong, '{{"command": "sshpass -p {} ssh falk@host"}}'),
    ("secret", "tool_arguments", _strong, '{{"command": "psql", "env": {{"PGPASSWORD": "{}"}}}}'),
    ("secret", "tool_arguments", _strong, '{{"fields": [{{"name": "password", "value": "{}"}}]}}'),
    ("secret", "tool_result", _strong, "docker login -u falk -p {} registry.acme.io"),
    ("secret", "tool_result", _strong, "wifi: SSID=Home, PSK={}"),
    ("secret", "tool_result", _strong, '<add key="Password" value="{}"/>'),
    ("secret", "tool_result", _strong, "user\tpass\nfalk\t{}\n"),
    ("secret", "tool_result", _strong, "password\n--------\n{}\n(1 row)"),
    ("secret", "user", _name_then, "use {} as the password"),
    ("secret", "user", _name_then, "The password for the VPN is still {}, right?"),
    ("secret", "user", _name_then, "username: falk\npassword:\n{}"),
    ("secret", "user", _name_then, "mein pw: {}"),
    ("secret", "user", _name_then, "Zugangsdaten: falk / {}"),
    ("secret", "user", _name_then, "login: falk mdp: {}"),
    ("secret", "user", _name_then, "mi clave es {}"),
    ("secret", "user", _name_then, "lösenordet är {}"),
    ("secret", "user", _name_then, "salasanani on {}"),
    ("secret", "user", _name_then, "heslo je {}"),
    ("secret", "user", _name_then, "parolam {}"),
    ("secret", "user", _name_then, "jelszavam: {}"),
    ("secret", "user", _name_then, "비밀번호는 {} 입니다"),
    ("secret", "user", _name_then, "कृपया देखें, पासवर्ड: {}"),
    ("secret", "user", _name_then, "كلمة المرور هي {}"),
    ("secret", "user", _name_then, "סיסמה: {}"),
    ("secret", "user", _name_then, "mật khẩu là {}"),
    ("secret", "user", _name_then, "kata sandi saya {}"),
    ("secret", "user", _digits("####"), "door code: {}"),
    ("secret", "user", _digits("###"), "CVV {}"),
    ("secret", "user", _digits("######"), "Use {} to verify your account. Do not share this code."),
    ("secret", "user", _digits("######"), "Ihre TAN lautet {}"),
    ("secret", "feedback", _strong, "wrong login data, password={}"),
    ("secret", "tool_result", _strong, "config: {b64}"),
    ("secret", "user", _strong, "here it is base64: {b64}"),
    ("email", "tool_result", email, "blob={b64}"),
    ("email", "tool_result", email, "<a href=\"mailto:{}\">contact</a>"),
    ("email", "user", lambda r: email(r).replace("@", " at ").replace(".com", " dot com"), "reach me: {}"),
    ("email", "user", lambda r: email(r).replace("@", "(at)"), "mail {}"),
    ("email", "tool_result", lambda r: email(r).upper(), "CONTACT {}"),
    ("email", "tool_result", lambda r: f"{some(r, LOWER, 5)}@müller-bau.de", "Kunde: {}"),
    ("email", "tool_result", lambda r: email(r).replace("@", "&#64;"), "<td>{}</td>"),
    ("email", "tool_result", email, "| 7 | {} | active |"),
    ("card", "tool_result", card, "order 7 paid with {} ok"),
    ("card", "tool_result", lambda r: grouped(card(r), " "), '{{"pan": "{}", "exp": "04/27"}}'),
    ("card", "stream", card, "I charged the card {}."),
    ("iban", "tool_result", lambda r: iban(r, "FR"), "date,iban\n2025-01-02,{}"),
    ("iban", "user", lambda r: iban(r, "DE").lower(), "iban {}"),
    ("iban", "assistant", lambda r: spaced(iban(r, "ES")), "Transferred to {}."),
    ("phone", "user", _digits("0171 #######"), "meine Nummer ist {}"),
    ("phone", "user", _digits("06 ## ## ## ##"), "mon numéro: {}"),
    ("phone", "user", _digits("07### ######"), "my mobile is {}"),
    ("phone", "tool_result", _digits("2#2-5##-####"), '{{"phone": "{}"}}'),
    ("phone", "tool_result", _digits("+1-4#5-5##-####"), "Caller: {}"),
    ("phone", "tool_arguments", _digits("9198########"), '{{"phone_number": {}}}'),
    ("phone", "tool_result", _digits("(0)30 ########"), "Tel.: {}"),
    ("ssn", "tool_result", lambda r: ssn(r, ""), '{{"ssn": "{}"}}'),
    ("ssn", "tool_result", lambda r: ssn(r, " "), "social security number: {}"),
    ("national_id", "user", lambda r: f"{some(r, UPPER, 2)} {some(r, DIGITS, 2)} {some(r, DIGITS, 2)} {some(r, DIGITS, 2)} C", "my NI number is {}"),
    ("national_id", "user", _digits("19######-####"), "personnummer {}"),
    ("national_id", "user", _digits("##.###.###-#"), "RUT {}"),
    ("national_id", "tool_result", lambda r: f"S{some(r, DIGITS, 7)}D", "NRIC: {}"),
    ("national_id", "tool_arguments", lambda r: f"ABCP{some(r, UPPER, 1)}{some(r, DIGITS, 4)}F", '{{"pan_number": "{}"}}'),
    ("national_id", "user", _digits("### ### ###"), "SIN: {}"),
    ("national_id", "user", _digits("##/###/#####"), "meine Steuernummer: {}"),
    ("national_id", "tool_result", _digits("###########"), '{{"tax_id": {}}}'),
    ("passport", "tool_result", _key("", DIGITS, 9), '{{"passport_no": "{}"}}'),
    ("licence", "tool_result", _key("D", DIGITS, 7), "driver's license {}"),
    ("ip", "user", lambda r: "2a02:" + ":".join(hexes(r, 4) for _ in range(7)), "my ip is {}"),
    ("mac", "tool_result", lambda r: ":".join(hexes(r, 2) for _ in range(6)), "client {} joined"),
    ("secret", "tool_result", _strong, "Username : falk\nPassword : {}\n"),
)  # fmt: skip


def _planted(shapes: tuple[Shape, ...], seed: int, each: int) -> list[Planted]:
    rng = random.Random(seed)
    found: list[Planted] = []
    for kind, place, draw, around in shapes:
        for _ in range(each):
            secret = draw(rng)
            told = base64.b64encode(f"falk:{secret}".encode()).decode()
            # Longest first, as `{}` stands beside the braces of JSON, which are doubled.
            text = around.replace("{json}", "\x00").replace("{b64}", "\x01").replace("{}", "\x02")
            text = text.replace("{{", "{").replace("}}", "}").replace("\x02", secret)
            text = text.replace("\x00", json.dumps(secret)).replace("\x01", told)
            found.append(Planted(text, place, secret, kind))
    return found


def frozen() -> list[Planted]:
    """200, two of each shape of `FROZEN`."""
    return _planted(FROZEN, 2026, 2)


def sealed() -> list[Planted]:
    """100, of shapes of which none is in `frozen`."""
    return _planted(SEALED, 2027, 1)


def raw(request: object, response: bytes, content_type: str = "application/json") -> RawExchange:
    """A call as the tap records it."""
    return RawExchange(
        id="0" * 32, path="/v1/chat/completions", request=json.dumps(request).encode(), status=200, response=response,
        content_type=content_type, received=1.0, finished=2.0, tokens_requested=True,
    )  # fmt: skip


def stream(pieces: list[str]) -> RawExchange:
    """A call that is answered in as many events, each with a token id and its log-prob."""
    events: list[bytes] = []
    for number, piece in enumerate(pieces):
        logprob = {"token": piece, "logprob": -0.25 - number / 100, "bytes": list(piece.encode()), "top_logprobs": []}
        choice = {"index": 0, "delta": {"content": piece}, "logprobs": {"content": [logprob]}, "finish_reason": None,
                  "token_ids": [1000 + number]}  # fmt: skip
        event = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "object": "chat.completion.chunk",
                 "created": 1700000000, "model": "desk", "choices": [choice]}  # fmt: skip
        events.append(b"data: " + json.dumps(event).encode() + b"\n\n")
    return raw(
        {"messages": [], "stream": True}, b"".join((*events, b"data: [DONE]\n\n")), "text/event-stream; charset=utf-8"
    )


def recorded(redactor: Redactor, text: str, place: str) -> str:
    """What is kept of `text`, sent where `place` says."""
    place = place.lower()
    if "feedback" in place:
        return redactor.feedback(Feedback(id="0" * 32, received=1.0, text=text)).text
    if "header" in place:
        return ""  # no header is kept
    if any(word in place for word in ("stream", "chunk", "split", "sse")):
        answered = redactor.exchange(stream([text[at : at + 3] for at in range(0, len(text), 3)])).response
        events = [json.loads(line[6:]) for line in answered.split(b"\n\n") if line[6:7] == b"{"]
        return "".join(one["choices"][0]["delta"].get("content") or "" for one in events)
    if "argument" in place or "call" in place:
        try:
            named = isinstance(json.loads(text), dict)
        except ValueError:
            named = False
        arguments = text if named else json.dumps({"text": text}, ensure_ascii=False)
        call = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": arguments}}
        messages: list[dict[str, object]] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    elif "tool" in place or "result" in place:
        messages = [{"role": "tool", "tool_call_id": "call_1", "content": text}]
    elif "answer" in place or "assistant" in place or "response" in place:
        body = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
        answered = redactor.exchange(raw({"messages": []}, json.dumps(body).encode())).response
        return str(json.loads(answered)["choices"][0]["message"]["content"])
    else:
        messages = [{"role": "system" if "system" in place else "user", "content": text}]
    kept = json.loads(redactor.exchange(raw({"messages": messages}, b"")).request)["messages"][0]
    if kept["content"] is None:
        return str(kept["tool_calls"][0]["function"]["arguments"])
    return str(kept["content"])


def readable(text: str) -> list[str]:
    """`text`, and what anybody reads in it: JSON's and HTML's escapes, percent signs, base64."""
    forms = [
        text,
        unquote(text),
        html.unescape(text),
        re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text),
    ]
    forms.append(text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
    for found in re.findall(r"[A-Za-z0-9+/_-]{8,}={0,2}", text):
        try:
            forms.append(base64.b64decode(found.rstrip("=") + "=" * (-len(found.rstrip("=")) % 4), b"-_").decode())
        except (binascii.Error, ValueError):
            continue
    return forms


def kept_of(redactor: Redactor, text: str, place: str, secret: str) -> bool:
    """Whether the secret can still be read where it was sent."""
    return any(secret in form for form in readable(recorded(redactor, text, place)))


if __name__ == "__main__":
    for one in sealed() if "--sealed" in sys.argv else frozen():
        print(json.dumps({"text": one.text, "place": one.place, "secret": one.secret}, ensure_ascii=False))
