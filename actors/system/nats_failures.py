"""What a NATS answered, as one of our errors: whether waiting can cure it, which setting it is about, what to do.

TLS failures are told apart by OpenSSL's verification codes (X509_V_ERR_*), JetStream's by its err_code (nats-server,
server/errors.json), the rest by the text of the server's -ERR line, which has no code.
"""

import ssl

import nats.errors
from nats.js.errors import APIError, BadRequestError

from actors.system.errors import BusMisconfigured, BusRefused, BusUnavailable, StreamFull
from actors.system.nats_access import AccessUnusable, PlainServer
from actors.system.nats_settings import BusSettings

CONNECTION_ERRORS = (TimeoutError, OSError, nats.errors.Error, RuntimeError)
"""What a call of nats-py raises when the connection fails. RuntimeError is uvloop's word for a write to a connection
that the server has closed, before nats-py has heard of it."""

_VERIFY = {
    9: "the server's certificate is not valid yet: compare the clocks of both machines",
    10: "the server's certificate has expired: renew it there (our clock, if it is wrong, would say the same)",
    18: "the server's certificate signed itself: name it, or its authority, in nats.ca_file",
    19: "the server's authority is not known here: name the file that holds it in nats.ca_file",
    20: "the server's authority is not known here: name the file that holds it in nats.ca_file",
    21: "the server's authority is not known here: name the file that holds it in nats.ca_file",
    62: "the server's certificate is for another host name: write the name that it has into nats.url",
    64: "the server's certificate is not for this address: write a name that it has into nats.url",
}
"""OpenSSL verification code -> what is wrong, and the remedy."""

_API = {
    10002: "the account's limits leave no room: raise its JetStream limits, or free space",
    10023: "the servers have no room for it: raise max_file_store, or free space",
    10026: "the account may have no more consumers: raise its limit",
    10027: "the account may have no more streams: raise its limit; we need seven",
    10035: "the account is not known to the servers: see their configuration",
    10039: "JetStream is off for this account: enable it there, or log in to another account",
    10047: "the streams need more disk than the servers may use: raise max_file_store (jetstream {}), or "
    "limits.streams_gb of our own",
    10065: "another stream holds these subjects: give each installation an account of its own",
    10074: "this server is in no cluster and keeps one copy: set nats.replicas = 1, or name a cluster in nats.url",
    10076: "JetStream is off: start the servers with jetstream {} in their configuration",
    10113: "the account wants max_bytes, and we set it: see the account's limits",
    10122: "the stream is larger than the account lets one be: raise its max_stream_bytes",
}
"""JetStream's err_code -> what to do where waiting cures nothing."""

_CURABLE = {
    10005: "fewer servers are up than nats.replicas wants",
    10008: "the cluster has no leader: fewer than half of its servers are up",
}
"""err_code -> what it is that we wait for."""


def connect_refusal(error: BaseException, settings: BusSettings) -> str:
    """Why trying again is useless, with the setting and the remedy; empty if it may help."""
    if isinstance(error, AccessUnusable):
        return str(error)
    if isinstance(error, PlainServer):
        return (
            f"{error}, and nats.url (tls://) or nats.ca_file wants it: configure tls {{}} there, or write nats:// here"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _VERIFY.get(error.verify_code, f"the server's certificate is refused: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return _alert(error)
    text = str(error).lower()
    if "account authentication expired" in text or "user authentication expired" in text:
        return "the JWT in nats.secret_file has expired: make a new one"
    if "authorization violation" in text or "authentication" in text:
        return f"the server refuses our login: {_login(settings)}"
    return ""


def _alert(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "the server wants a client certificate, and evolved shows none: let it take a user or a .creds file"
    return ""


def _login(settings: BusSettings) -> str:
    if settings.credentials_file:
        return f"see nats.secret_file = {settings.credentials_file}; it may have expired or been revoked"
    if settings.user:
        return f"see the user {settings.user!r} in nats.url and nats.secret_file = {settings.password_file}"
    if settings.url:
        return (
            "write the user into nats.url (nats://USER@HOST) and his password into nats.secret_file, or name a .creds "
            "file there"
        )
    return "its credentials.json is not that server's: another NATS may have taken the port of `evolved broker`"


def api_failure(error: APIError, what: str) -> BusUnavailable | BusMisconfigured:
    """JetStream's answer as one of our errors."""
    text = f"{what}: {error.description} ({error.code}, {error.err_code})"
    code = error.err_code or 0
    if "maximum" in (error.description or "") and "exceeded" in (error.description or ""):
        return StreamFull(text)
    if code in _CURABLE:
        return BusUnavailable(f"{text}: {_CURABLE[code]}")
    if code in _API:
        return BusRefused(f"{text}: {_API[code]}")
    if isinstance(error, BadRequestError) or error.code == 400:
        return BusMisconfigured(text)
    return BusUnavailable(text)


def silence(error: BaseException, what: str, *, jetstream: bool, reported: str) -> BusUnavailable | BusRefused:
    """JetStream's API does not answer."""
    if "permissions violation" in reported.lower():
        return BusRefused(
            f"{what}: {reported}; our user needs to publish and subscribe to $JS.API.>, _INBOX.> and our subjects"
        )
    if isinstance(error, nats.errors.NoRespondersError) and not jetstream:
        return BusRefused(f"{what}: {_API[10076]}")
    return BusUnavailable(f"{what}: {error!r}")


def publish_failure(outcome: Exception, subject: str) -> BusUnavailable:
    """Why a record is not confirmed."""
    if isinstance(outcome, APIError):
        failure = api_failure(outcome, subject)
        if isinstance(failure, BusUnavailable):
            return failure
        if isinstance(failure, BusRefused):
            # A limit reached while we run is an outage: the records wait in spool and outbox until it is raised.
            return BusUnavailable(str(failure))
        raise failure from outcome
    if isinstance(outcome, nats.errors.NoRespondersError):
        return BusUnavailable(f"{subject}: JetStream is not up")
    return BusUnavailable(f"{subject}: {outcome!r}")
