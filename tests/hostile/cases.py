"""Requests that may be read in two ways, as bytes, each with what may come of it."""

import msgspec

POST = b"POST /v1/embeddings HTTP/1.1\r\nHost: tap\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: tap\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: tap\r\n\r\n"
ENDED = b"0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
HELLO = (b"POST", b"/v1/embeddings", b"hello")
EMPTY = (b"POST", b"/v1/embeddings", b"")
LIST = (b"GET", b"/v1/models", b"")

Meant = tuple[bytes, bytes, bytes]


class Case(msgspec.Struct, frozen=True):
    """Bytes, and what may come of them."""

    name: str
    sent: bytes
    meant: tuple[Meant, ...] = ()
    """What the engine gets if the tap lets it pass; empty: it must not pass."""
    refusable: bool = False
    """The tap may as well refuse it."""


def refused(name: str, sent: bytes) -> Case:
    """The tap answers 4xx and closes, and the engine gets nothing."""
    return Case(name, sent)


def passes(name: str, sent: bytes, *meant: Meant) -> Case:
    """The engine gets exactly `meant`."""
    return Case(name, sent, meant or (HELLO,))


def either(name: str, sent: bytes, *meant: Meant) -> Case:
    """Standards leave it open."""
    return Case(name, sent, meant or (HELLO,), refusable=True)


HELLO_CHUNKED = b"5\r\nhello\r\n" + ENDED
AROUND = {
    "length": (POST + b"Content-Length:", b"\r\n\r\nhello" + SMUGGLED),
    "coding": (POST + b"Transfer-Encoding:", b"\r\n\r\n" + HELLO_CHUNKED),
    "coding line": (POST, b"\r\n\r\n" + HELLO_CHUNKED),
    "chunk": (POST + CHUNKED + b"\r\n", b""),
    "line": (b"", b"\r\nHost: tap\r\n\r\n"),
    "field": (GET, b"\r\n\r\n"),
}
"""What stands before and behind a value, a line or a body for which a request is refused."""


def each_refused(kind: str, inside: dict[str, bytes]) -> list[Case]:
    before, behind = AROUND[kind]
    return [refused(f"{kind} {name}", before + value + behind) for name, value in inside.items()]


LENGTHS = [
    passes("length plain", POST + b"Content-Length: 5\r\n\r\nhello"),
    passes("length with space around", POST + b"Content-Length: \t 5 \t\r\n\r\nhello"),
    passes("length with leading zeros", POST + b"Content-Length: 0000005\r\n\r\nhello"),
    passes("length in odd case", POST + b"cOnTeNt-LeNgTh: 5\r\n\r\nhello"),
    passes("length 0 and a request behind", POST + b"Content-Length: 0\r\n\r\n" + GET + b"\r\n", EMPTY, LIST),
    passes("length with a request as body", POST + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
           (b"POST", b"/v1/embeddings", SMUGGLED)),
    passes("length, and 100 asked for with the body", POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"),
    passes("length 0, and 100 asked for", POST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", EMPTY),
    refused("length and coding", POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n" + ENDED + SMUGGLED),
    refused("coding and length", POST + CHUNKED + b"Content-Length: 5\r\n\r\n" + ENDED + SMUGGLED),
    refused("coding and length 0", POST + CHUNKED + b"Content-Length: 0\r\n\r\n" + HELLO_CHUNKED),
    refused("lengths that differ", POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + SMUGGLED),
    refused("lengths that differ, far apart",
            POST + b"Content-Length: 5\r\n" + b"A: b\r\n" * 50 + b"content-length: 0\r\n\r\nhello" + SMUGGLED),
    either("lengths that agree", POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    *each_refused("length", {
        "with plus": b" +5", "with minus": b" -5", "in hexadecimal": b" 0x5", "with space inside": b" 5 5",
        "with underscore": b" 1_0", "list that agrees": b" 5,5", "list that differs": b" 5, 6", "empty": b"",
        "in words": b" five", "with vertical tab": b" \x0b5", "with NUL": b" 5\x00", "in other digits": "５".encode(),
        "of 2^64+5": b" 18446744073709551621", "of 2^63": b" 9223372036854775808", "of 40 digits": b" " + b"9" * 40,
        "folded": b"\r\n 5",
    }),
    refused("length with space before the colon", POST + b"Content-Length : 5\r\n\r\nhello"),
    refused("length after a bare CR", POST + b"X: y\rContent-Length: 5\r\n\r\nhello"),
    passes("length by a name that gateways may mistake",
           POST + b"Content_Length: 5\r\nContent-Length: 0\r\n\r\n", EMPTY),
]  # fmt: skip

CODINGS = [
    passes("coding plain", POST + CHUNKED + b"\r\n" + HELLO_CHUNKED),
    passes("coding, and 100 asked for", POST + CHUNKED + b"Expect: 100-continue\r\n\r\n" + HELLO_CHUNKED),
    passes("coding in odd case", POST + b"tRANSFER-eNCODING: ChUnKeD\r\n\r\n" + HELLO_CHUNKED),
    passes("coding after a tab", POST + b"Transfer-Encoding:\tchunked\r\n\r\n" + HELLO_CHUNKED),
    either("coding before a tab", POST + b"Transfer-Encoding: chunked\t\r\n\r\n" + HELLO_CHUNKED),
    *each_refused("coding", {
        "xchunked": b" xchunked", "chunked, identity": b" chunked, identity",
        # What it is packed in would be lost on the way: the header ends here.
        "gzip, chunked": b" gzip, chunked",
        "chunked twice": b" chunked\r\nTransfer-Encoding: chunked",
        "chunked, then identity": b" chunked\r\nTransfer-Encoding: identity",
        "gzip, then chunked": b" gzip\r\nTransfer-Encoding: chunked",
        "identity": b" identity", "empty": b"", "quoted": b' "chunked"', "with parameter": b" chunked;q=1",
        "after vertical tab": b" \x0bchunked", "before vertical tab": b" chunked\x0b", "with NUL": b" chunked\x00",
        "folded": b"\r\n chunked", "with latin letters": " chunkéd".encode("latin-1"),
    }),
    *each_refused("coding line", {
        "with space before the colon": b"Transfer-Encoding : chunked",
        "with space before the name": b" Transfer-Encoding: chunked",
        "after a bare LF": b"X: y\nTransfer-Encoding: chunked",
        "after a bare CR": b"X: y\rTransfer-Encoding: chunked",
    }),
    either("coding identity, chunked", POST + b"Transfer-Encoding: identity, chunked\r\n\r\n" + HELLO_CHUNKED),
    either("coding with empty member", POST + b"Transfer-Encoding: , chunked\r\n\r\n" + HELLO_CHUNKED),
    refused("coding in HTTP/1.0",
            b"POST /v1/embeddings HTTP/1.0\r\nHost: tap\r\n" + CHUNKED + b"\r\n" + HELLO_CHUNKED + SMUGGLED),
    refused("coding and length in HTTP/1.0",
            b"POST /v1/embeddings HTTP/1.0\r\nContent-Length: 5\r\n" + CHUNKED + b"\r\nhello"),
    refused("coding unknown, and length", POST + b"Transfer-Encoding: cow\r\nContent-Length: 5\r\n\r\nhello"),
]  # fmt: skip

CHUNKS = [
    passes("chunk sizes with leading zeros", POST + CHUNKED + b"\r\n0005\r\nhello\r\n0000\r\n\r\n"),
    either("chunk size with a hundred zeros ahead", POST + CHUNKED + b"\r\n" + b"0" * 100 + b"5\r\nhello\r\n" + ENDED),
    passes("chunk sizes in both cases", POST + CHUNKED + b"\r\na\r\n0123456789\r\nA\r\n0123456789\r\n" + ENDED,
           (b"POST", b"/v1/embeddings", b"0123456789" * 2)),
    passes("chunk extension", POST + CHUNKED + b"\r\n5;a=b;c\r\nhello\r\n0;last\r\n\r\n"),
    either("chunk extension in quotes", POST + CHUNKED + b'\r\n5;a="b; c"\r\nhello\r\n' + ENDED),
    either("chunk extension of 10 KB", POST + CHUNKED + b"\r\n5;a=" + b"x" * 10_000 + b"\r\nhello\r\n" + ENDED),
    passes("chunk that holds a request", POST + CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(SMUGGLED), SMUGGLED) + ENDED,
           (b"POST", b"/v1/embeddings", SMUGGLED)),
    *each_refused("chunk", {
        "extension with a bare CR": b"5;a\rb\r\nhello\r\n" + ENDED,
        "extension that hides the end": b"5;\nxx\r\nhello\r\n" + ENDED + SMUGGLED,
        "size negative": b"-5\r\nhello\r\n" + ENDED, "size with plus": b"+5\r\nhello\r\n" + ENDED,
        "size with 0x": b"0x5\r\nhello\r\n" + ENDED, "size after space": b" 5\r\nhello\r\n" + ENDED,
        "size empty": b"\r\nhello\r\n" + ENDED, "size of letters behind": b"5g\r\nhello\r\n" + ENDED,
        "size with underscore": b"0_5\r\nhello\r\n" + ENDED,
        "size of 2^64+5": b"10000000000000005\r\nhello\r\n" + ENDED + SMUGGLED,
        "size ends in LF": b"5\nhello\r\n" + ENDED, "size ends in CR": b"5\rhello\r\n" + ENDED,
        "size with NUL": b"5\x00\r\nhello\r\n" + ENDED, "without its end": b"5\r\nhello0\r\n\r\n",
        "that ends in LF": b"5\r\nhello\n" + ENDED, "longer than its size": b"5\r\nhello world\r\n" + ENDED,
        "shorter than its size": b"6\r\nhello\r\n" + ENDED + SMUGGLED,
        "last with bare LFs": b"5\r\nhello\r\n0\n\n" + SMUGGLED,
        "last ends in LF": b"5\r\nhello\r\n0\r\n\n" + SMUGGLED,
    }),
    passes("trailer", POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"),
    either("trailer with length", POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n"),
    either("trailer with coding", POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    either("trailer with host and key",
           POST + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nHost: evil\r\nAuthorization: Bearer evil\r\n\r\n"),
    *each_refused("chunk", {
        "trailer without colon": b"5\r\nhello\r\n0\r\n" + SMUGGLED,
        "trailer folded": b"5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n",
        "trailer with bare LF": b"5\r\nhello\r\n0\r\nA: b\nC: d\r\n\r\n",
    }),
    passes("chunks, then a request", POST + CHUNKED + b"\r\n" + HELLO_CHUNKED + GET + b"\r\n", HELLO, LIST),
]  # fmt: skip

LINES = [
    passes("line plain", GET + b"\r\n", LIST),
    passes("100 asked for without a body", GET + b"Expect: 100-continue\r\n\r\n", LIST),
    either("line after an empty one", b"\r\n" + GET + b"\r\n", LIST),
    passes("query and fragment-free target", b"GET /v1/models?a=b&c=%2e%2e HTTP/1.1\r\nHost: tap\r\n\r\n",
           (b"GET", b"/v1/models?a=b&c=%2e%2e", b"")),
    *each_refused("line", {
        "with space in the target": b"GET /v1/mo dels HTTP/1.1", "with tabs": b"GET\t/v1/models\tHTTP/1.1",
        "with space before": b" GET /v1/models HTTP/1.1", "with space behind": b"GET /v1/models HTTP/1.1 ",
        "with NUL": b"GET /v1/mod\x00els HTTP/1.1", "with DEL": b"GET /v1/mod\x7fels HTTP/1.1",
        "with bare CR": b"GET /v1/mod\rels HTTP/1.1", "without target": b"GET  HTTP/1.1",
        "without version": b"GET /v1/models", "without slash": b"GET v1/models HTTP/1.1",
        "of HTTP/0.9": b"GET /v1/models HTTP/0.9", "of HTTP/1.2": b"GET /v1/models HTTP/1.2",
        "of HTTP/1.01": b"GET /v1/models HTTP/1.01", "of HTTP/2.0": b"GET /v1/models HTTP/2.0",
        "of http/1.1": b"GET /v1/models http/1.1", "with unknown method": b"FOO /v1/models HTTP/1.1",
        "with method in lower case": b"get /v1/models HTTP/1.1",
        "with a method of 9 KB": b"G" * 9000 + b" /v1/models HTTP/1.1",
    }),
    refused("preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
    refused("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32)),
    refused("a response", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    refused("CONNECT", b"CONNECT engine:443 HTTP/1.1\r\nHost: engine:443\r\n\r\n" + SMUGGLED),
    refused("CONNECT to a path", b"CONNECT /v1/models HTTP/1.1\r\nHost: tap\r\n\r\n" + SMUGGLED),
    either("an upgrade to h2c",
           GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", LIST),
    either("an upgrade to websocket",
           GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", LIST),
    either("an upgrade with a body",
           POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"),
    refused("line feeds alone", b"GET /v1/models HTTP/1.1\nHost: tap\n\n"),
    refused("line feed after the line", b"GET /v1/models HTTP/1.1\nHost: tap\r\n\r\n"),
    refused("line feed after a header", GET + b"A: b\nC: d\r\n\r\n"),
    refused("line feed for the empty line", GET + b"A: b\r\n\n"),
    refused("carriage returns alone", b"GET /v1/models HTTP/1.1\rHost: tap\r\r"),
]  # fmt: skip

FIELDS = [
    passes("field values with tab, latin letters and punctuation",
           GET + 'X-A: a\tb é "(),/:;<=>?@[]{}\\\r\n\r\n'.encode("latin-1"), LIST),
    passes("field empty", GET + b"X-Empty:\r\n\r\n", LIST),
    passes("field values that look percent-encoded", GET + b"x-evolved-trajectory: a%0d%0aX-B: c\r\n\r\n", LIST),
    *each_refused("field", {
        "folded": b"A: b\r\n c", "folded to nothing": b"A: b\r\n ", "without colon": b"Abc", "without name": b": b",
        "with space in the name": b"A B: c", "with space before the colon": b"A : b",
        "with NUL in the name": b"A\x00: b", "with NUL in the value": b"A: b\x00c",
        "with control byte in the value": b"A: b\x01c", "with DEL in the value": b"A: b\x7fc",
        "with latin letter in the name": b"\xc4: b", "with bare CR in the value": b"A: b\rc",
    }),
    refused("field before the line ends", b"GET /v1/models HTTP/1.1\r\n Host: tap\r\n\r\n"),
    either("no host", b"GET /v1/models HTTP/1.1\r\n\r\n", LIST),
    either("two hosts", GET + b"Host: evil\r\n\r\n", LIST),
    either("host with a path", b"GET /v1/models HTTP/1.1\r\nHost: evil/pause\r\n\r\n", LIST),
    either("host empty", b"GET /v1/models HTTP/1.1\r\nHost:\r\n\r\n", LIST),
    passes("connection names the length", POST + b"Connection: content-length\r\nContent-Length: 5\r\n\r\nhello"),
    passes("connection names the coding", POST + CHUNKED + b"Connection: transfer-encoding\r\n\r\n" + HELLO_CHUNKED),
    passes("connection names the host", GET + b"Connection: host\r\n\r\n", LIST),
    passes("connection names a key", GET + b"Connection: authorization\r\nAuthorization: Bearer k\r\n\r\n", LIST),
    passes("connection with nonsense", GET + b"Connection: ,,; =\"keep-alive\r\n\r\n", LIST),
    either("body on GET", GET + b"Content-Length: 5\r\n\r\nhello", (b"GET", b"/v1/models", b"hello")),
    either("chunks on GET", GET + CHUNKED + b"\r\n" + HELLO_CHUNKED, (b"GET", b"/v1/models", b"hello")),
    passes("body on DELETE", b"DELETE /v1/x HTTP/1.1\r\nHost: tap\r\nContent-Length: 5\r\n\r\nhello",
           (b"DELETE", b"/v1/x", b"hello")),
]  # fmt: skip

CASES = LENGTHS + CODINGS + CHUNKS + LINES + FIELDS
