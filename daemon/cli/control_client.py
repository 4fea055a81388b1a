"""How commands reach the daemon's control API: its address, its certificate, our key."""

import ssl
from typing import TYPE_CHECKING

from daemon.errors import ConfigError, ControlUnreachable
from daemon.settings.secret import secret
from daemon.tap.key_form import PREFIX

if TYPE_CHECKING:
    import httpx

    from daemon.settings.control import ControlSettings


def address(settings: "ControlSettings") -> str:
    """The control API's URL, without a slash at its end."""
    if settings.url:
        return settings.url.rstrip("/")
    scheme = "https" if settings.tls_cert else "http"
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - nothing listens here
    return f"{scheme}://{host}:{settings.port}"


def control_client(settings: "ControlSettings", timeout: float) -> "httpx.Client":
    """A client of the control API, for paths below `address`; close it.

    Raises:
        ConfigError: a file of [control] that cannot be used.
    """
    import httpx

    url = address(settings)
    verify = _verifying(settings) if url.startswith("https:") else True
    return httpx.Client(base_url=url, headers=key_headers(settings.admin_key_file), timeout=timeout, verify=verify)


def key_headers(file: str) -> dict[str, str]:
    """What shows the key in `file` to the control API; nothing if no file is named.

    Raises:
        ConfigError: the file cannot be read or holds no key.
    """
    key = secret(file, "EVOLVED_KEY_FILE", "give a file that holds an admin key alone")
    if file and not key.startswith(PREFIX.decode()):
        raise ConfigError(f"EVOLVED_KEY_FILE {file}: no key in it; give a file that holds an admin key alone")
    return {"x-evolved-key": key} if key else {}


def unreachable(settings: "ControlSettings", error: Exception) -> ControlUnreachable:
    """What to tell of an `error` in place of an answer."""
    where, cause = address(settings), str(error)
    if "CERTIFICATE_VERIFY_FAILED" in cause or "certificate required" in cause or "bad certificate" in cause:
        return ControlUnreachable(
            f"{where}: {cause}; name the file of its authority in SSL_CERT_FILE, and the "
            "address with the name that is in its certificate in EVOLVED_URL"
        )
    return ControlUnreachable(
        f"no daemon at {where} ({cause}); start it with `evolved run`, or name its address with --set "
        "control.listen=HOST:PORT or EVOLVED_URL=https://HOST:PORT"
    )


def refusal(error: "httpx.HTTPStatusError") -> str:
    """What to do about an answer that is an error."""
    said = f"{error.request.url}: {error.response.status_code}"
    if error.response.status_code == 401:
        return f"{said}: it takes an admin key; put one into a file and name it: EVOLVED_KEY_FILE=FILE"
    return f"{said} {error.response.text[:300]}"


def _verifying(settings: "ControlSettings") -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"SSL_CERT_FILE {settings.ca_file}: {error}; give a PEM file of authorities") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
