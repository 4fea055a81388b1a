"""What is taken out, what is not, and how it is marked."""

import re

import msgspec

KINDS = (
    "private_key", "jwt", "api_key", "bearer", "credentials", "secret", "email", "iban", "card", "ssn", "national_id",
    "phone", "ip",
)  # fmt: skip
"""All kinds. Where two finds overlap, the kind that stands first names the placeholder."""
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind != "ip")
"""Addresses of machines are what an agent that runs servers works with: whoever counts them as personal adds `ip`."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_SHORTEST_KEY = 16


class InvalidRedaction(Exception):
    """A setting that cannot be used; the text names it and says what to write instead. No traffic makes redaction
    raise."""


class PatternSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[redact.patterns]]`: something that only this user has."""

    name: str
    """Kind of the finds, in the placeholder and in the counters: small letters, digits, `_`."""
    regex: str
    """Python's syntax, searched in each text. What its group `value` covers is taken out, or all of the match."""


class RedactionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[redact]` in config.toml."""

    strict: bool = False
    """Keep no free text at all: messages, arguments, tool results, schemas and comments become placeholders, and token
    ids go; roles, names of tools and models, counts, times, versions and outcomes stay. Monitoring goes on; nothing is
    trained on, and no lesson is learned. Needs `key_file`, the same one for every process."""
    kinds: tuple[str, ...] = DEFAULT_KINDS
    """What is searched for: private_key, jwt, api_key, bearer, credentials (passwords in URLs), secret (fields that
    are named password, token and the like), email, iban, card, ssn, national_id (tax, passport and health
    numbers), phone, ip."""
    patterns: tuple[PatternSettings, ...] = ()
    """Own patterns. One that backtracks without end costs the calls that it hangs on, nothing else."""
    allow: tuple[str, ...] = ()
    """Values that always stay, exactly as written here, say the address of your own support desk; `/.../` is a regex,
    and what it matches as a whole stays."""
    key_file: str = ""
    """File with a secret of at least 16 bytes. With it a placeholder ends in 8 hex digits of an HMAC, so that equal
    values can be told from others across calls, and not be guessed without the file. Without it all values of a kind
    look alike."""


def require_valid(settings: RedactionSettings) -> None:
    """
    Raises:
        InvalidRedaction: an unknown kind, or an own pattern that cannot be used.
    """
    for kind in settings.kinds:
        if kind not in KINDS:
            raise InvalidRedaction(f"redact.kinds: unknown kind {kind!r}; write some of {', '.join(KINDS)}")
    if settings.strict and not settings.key_file:
        raise InvalidRedaction(
            'redact.kinds has "text", which needs a key for its digests: openssl rand -hex 32 > STATE_DIR/keys/'
            "placeholders.key, readable for tap and daemon"
        )
    names: set[str] = set()
    for number, pattern in enumerate(settings.patterns):
        where = f"redact.patterns[{number}]"
        if not _NAME.fullmatch(pattern.name) or pattern.name in KINDS or pattern.name in names:
            raise InvalidRedaction(
                f"{where}.name {pattern.name!r}: write a name of its own, in small letters, digits and _,"
                " that no kind has"
            )
        names.add(pattern.name)
        if compiled(pattern.regex, f"{where}.regex").search(""):
            raise InvalidRedaction(
                f"{where}.regex {pattern.regex!r} matches nothing at all; ask for a character at least"
            )


def compiled(regex: str, where: str) -> re.Pattern[str]:
    """
    Raises:
        InvalidRedaction: `regex`, which stands at `where`, is none.
    """
    try:
        return re.compile(regex)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRedaction(
            f"{where} {regex!r} is no regular expression ({error}); try it in Python's re"
        ) from error


def read_key(settings: RedactionSettings) -> bytes:
    """What `key_file` holds, without white space around it; empty if none is set.

    Raises:
        InvalidRedaction: it cannot be read, or is too short to keep values from being guessed.
    """
    if not settings.key_file:
        return b""
    try:
        with open(settings.key_file, "rb") as file:
            key = file.read().strip()
    except OSError as error:
        raise InvalidRedaction(
            f"{settings.key_file!r} cannot be read ({error.strerror}); make one with"
            " `openssl rand -hex 32`, readable for the tap's user"
        ) from error
    if len(key) < _SHORTEST_KEY:
        raise InvalidRedaction(
            f"{settings.key_file!r} holds {len(key)} bytes; write at least {_SHORTEST_KEY},"
            " say with `openssl rand -hex 32`"
        )
    return key
