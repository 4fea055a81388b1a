"""A secret in a file of its own, which one setting names: a key, a token."""

from pathlib import Path

from daemon.errors import ConfigError


def secret(file: str, setting: str, remedy: str) -> str:
    """The one word in `file`, empty if no file is named. Raises ConfigError: names `setting`, `file` and `remedy`."""
    if not file:
        return ""
    try:
        word = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting} {file}: {error}; {remedy}") from error
    if len(word.split()) != 1 or not word.isprintable():
        raise ConfigError(f"{setting} {file}: it must hold one word; {remedy}")
    return word
