"""Classes of secrets that strangers planted and found again: by the name of a field or a column, in sentences, in other
spellings, in commands. And what only looks like one."""

import gzip
import json
import time
import zlib

import msgspec
import pytest

from adapters.redaction import RedactionSettings, Redactor
from tests.support.planted import frozen, kept_of, raw, sealed

pytestmark = pytest.mark.promise

_BODY = json.dumps({"messages": [{"role": "user", "content": "password: Haus!Baum9"}]})
REDACTOR = Redactor(RedactionSettings())


def test_of_the_frozen_lists_nine_in_ten_are_taken_out() -> None:
    for plants in (frozen(), sealed()):
        stayed = [one.text for one in plants if kept_of(REDACTOR, one.text, one.place, one.secret)]
        assert len(stayed) <= len(plants) // 10, stayed


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password is: Haus!Baum9", "Haus!Baum9"),
        ("Das Passwort für den Drucker ist: sommerRegen44", "sommerRegen44"),
        ("log in as user jdoe, password hunter2", "hunter2"),
        ("The PIN of the card is 4821.", "4821"),
        ("G-482193 is your verification code", "482193"),
        ("name;pw\nmax;Haus!Baum9\nmia;Berg&Tal77", "Berg&Tal77"),
        ("| user | token |\n|---|---|\n| max | a8f5f167f44f4964e6c9 |", "a8f5f167f44f4964e6c9"),
        (" password \n----------\n Haus!Baum9\n(1 row)", "Haus!Baum9"),
        ("bWF4OkhhdXMhQmF1bTk=", "bWF4OkhhdXMhQmF1bTk="),
        ("next=https%3A%2F%2Fx.io%2F%3Fuser%3Djane%40firma.de", "jane%40firma.de"),
        ("<td>jane&#64;firma.de</td>", "jane&#64;firma.de"),
        ("mysqldump -u root -pHaus9 shop", "Haus9"),
        ("kubectl --token abc123def456 get pods", "abc123def456"),
        ("Cookie: sid=38afes7a8abcd1234efgh; lang=de", "38afes7a8abcd1234efgh"),
        ("Steuer-ID: 86 095 742 719", "86 095 742 719"),
        ("CPF 111.444.777-35", "111.444.777-35"),
        ('<add key="Password" value="Haus!Baum9"/>', "Haus!Baum9"),
        ("db1:5432:shop:app:Haus!Baum9", "Haus!Baum9"),
        ("PASSWORD=correcthorse", "correcthorse"),
    ],
)
def test_it_is_taken_out(text: str, secret: str) -> None:
    assert secret not in REDACTOR.text(text)[0]


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        ({"fields": [{"name": "password", "value": "Haus!Baum9"}]}, "Haus!Baum9"),
        ({"pin": 4821}, "4821"),
        ({"tax_id": 67797759111}, "67797759111"),
        ({"phone_number": "0171 2345678"}, "0171 2345678"),
    ],
)
def test_a_fields_name_decides(body: object, secret: str) -> None:
    assert secret not in REDACTOR.text(json.dumps(body))[0]


@pytest.mark.parametrize(
    "text",
    [
        "The flight BA1234 leaves at 9:40; confirmation XK3F9Q.",
        "Your password reset request for order A-12345 was received.",
        "exit code 137, status code: 404, zip code 50667",
        "if password is None:\n    raise ValueError('no password')",
        '{"next_cursor": "bmV4dF90czoxNTEyMDg1ODYxMDAwNTQz"}',
        "pass\n    else:\n        return",
        "id,name,price\n1,key ring,4.90\n2,token of love,3.10",
        "sha512-9aBcD3fGh1JkLmN0pQrStUvWxYz2AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
        "The token bucket is 20 requests per 10 seconds.",
        "The keys of the house are at Main Street 12, is that far?",
        "The answer is 42 and the PIN pad has 12 keys.",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    ],
)
def test_it_stays(text: str) -> None:
    assert REDACTOR.text(text) == (text, {})


@pytest.mark.parametrize(
    "packed",
    [
        _BODY.encode("utf-16"),
        _BODY.encode("utf-16-le"),
        zlib.compress(_BODY.encode()),
        gzip.compress(_BODY.encode()),
        zlib.compressobj(wbits=-15).compress(_BODY.encode()) + b"\xff",
        b"\x28\xb5\x2f\xfd" + _BODY.encode() + b"\xff",
    ],
    # gzip writes the time into its bytes, and a test's id must not change with the time.
    ids=["utf-16", "utf-16-le", "zlib", "gzip", "deflate", "zstd"],
)
def test_a_packed_request_is_unpacked_or_left_out(packed: bytes) -> None:
    kept = REDACTOR.exchange(msgspec.structs.replace(raw({}, b""), request=packed)).request
    assert kept != packed
    assert b"Haus" not in kept


def test_an_address_is_no_password() -> None:
    assert REDACTOR.text("i lost my password, my account is tipi@box.io")[1] == {"email": 1}


def test_kinds_that_are_not_asked_for_are_not_taken_out_by_a_name_either() -> None:
    redactor = Redactor(RedactionSettings(kinds=("secret",)))
    assert redactor.text('{"phone": "0171 2345678"}')[1] == {}
    assert redactor.text('{"password": "Haus!Baum9"}')[1] == {"secret": 1}


def test_a_text_of_numbers_costs_no_more_than_its_length() -> None:
    """A megabyte of numbers that all look like telephones' took six seconds of CPU, and a recorder with it."""
    text = " ".join(f"00{49171000000 + number}" for number in range(20_000))
    began = time.process_time()
    REDACTOR.text(text)
    assert time.process_time() - began < 1.5
