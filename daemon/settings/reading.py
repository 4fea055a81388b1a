"""From files to `Config`: the defaults, an installation's file laid over them, and the command line's over both.

Everything that can be known to be wrong from the file alone is refused here, before anything starts.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daemon.errors import ConfigError
from daemon.settings import toml
from daemon.settings.tables import ALLOW_HOSTS, Config, Control, Nats

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OWNERS = {
    ("judge", "options"): "name",
    ("sandbox", "options"): "environment",
    ("sandbox", "harness_options"): "harness",
    ("sandbox", "grader_options"): "grader",
}
"""Options belong to what another key of their table names: another name begins with none."""
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(:[1-9][0-9]{0,4})?/?")
_PASSWORD = re.compile(r"://[^/?]*:[^/?]*@|[?&]password=")
LEAST_DAYS = 31
"""Streams deliver again for up to 30 days: what is taken out earlier could come back."""
_REFERS = re.compile(r"$|env:|file:|secret:")
_SECRET = re.compile(r"(^|_)(key|token|password|secret)$", re.IGNORECASE)
_OLD = {
    "learner": "[model], [train] and keep.versions", "bus": "[nats]", "store": "[database]", "redaction": "[redact]",
    "broker": "limits.streams_gb", "intake": "[otlp]", "assembler": "[runs]", "attributor": "[judge]",
    "curator": "[train]", "rollout": "[sandbox] and [train]", "experiencer": "[lessons]", "navigator": "[lessons]",
    "extractor": "[lessons] and [llm]", "rewriter": "[lessons] and [llm]", "embedder": "[embeddings]",
    "grader": "[sandbox]", "questioner": "[tasks]", "wording": "[tasks] and [llm]", "probe": "[sandbox]",
    "swapper": "[trial] and limits.swap_seconds", "sentinel": "[watch]", "retention": "[keep]",
    "adapters": "[apis]", "live": "apis.allow_hosts",
}  # fmt: skip
"""Tables of the file's earlier shape, and where what they set most is now."""


def load(path: Path | None, assignments: Sequence[str] = ()) -> Config:
    """The settings in the file at `path`, with `table.key=value` assignments laid over it.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    return checked(whole(path, assignments), source_of(path))


def source_of(path: Path | None) -> str:
    """What errors call the settings."""
    return str(path) if path is not None else "--set"


def control(path: Path | None, assignments: Sequence[str] = ()) -> Control:
    """The table [control] as `load` would read it. What is wrong elsewhere in the file does not matter: whoever wants
    to stop learning must not have to mend a setting of the judge's first.

    Raises:
        ConfigError: this table cannot be read.
    """
    source = source_of(path)
    theirs = toml.read(path) if path is not None else {}
    table = laid_over(defaults(), {name: theirs[name] for name in theirs if name == "control"}, source)
    return toml.convert(laid_over(table, _given(assignments), source)["control"], Control, source, ("control",))


def whole(path: Path | None, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """The defaults, the file's keys and the assignments, one over the other.

    Raises:
        ConfigError: no file, no TOML, or a file of an earlier shape.
    """
    source = source_of(path)
    table = defaults()
    for over in (toml.read(path) if path is not None else {}, _given(assignments)):
        _refuse_old(over, source)
        table = laid_over(table, over, source)
    return table


def checked(table: Mapping[str, Any], source: str) -> Config:
    """`table`, which is whole, as settings.

    Raises:
        ConfigError: names `source`, the key and the remedy.
    """
    _refuse_secrets(table, source)
    config = toml.convert(_by_name(table), Config, source)
    _check(config, source)
    return config


def _given(assignments: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in assignments:
        given = toml.merge(given, toml.assignment(text))
    return given


def defaults() -> dict[str, Any]:
    """The file that ships with evolved."""
    here = Path(__file__)
    shipped = here.with_name("config.toml")  # in a wheel
    return toml.read(shipped if shipped.exists() else here.parents[2] / "config.toml")


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any], source: str) -> dict[str, Any]:
    """`base` with the keys of `over`; an engine has the shipped one's keys where it has none of its own."""
    out = dict(base)
    for name, value in over.items():
        if name == "engines":
            out[name] = _engines(base, value, source)
        elif isinstance(value, Mapping) and isinstance(out.get(name), Mapping):
            kept = dict(out[name])
            for (table, options), owner in _OWNERS.items():
                if table == name and owner in value and value[owner] != kept.get(owner):
                    kept[options] = {}
            out[name] = toml.merge(kept, value)
        else:
            out[name] = value
    return out


def _engines(base: Mapping[str, Any], value: Any, source: str) -> Any:
    """`--set engines.url=...` and [engines] mean the only one."""
    if isinstance(value, Mapping):
        if len(base["engines"]) > 1:
            raise ConfigError(f"{source}: engines: there are {len(base['engines'])}; write [[engines]] for each")
        return [dict(base["engines"][0]) | dict(value)]
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        return value  # its type is refused later
    (shipped,) = defaults()["engines"]
    return [shipped | dict(one) for one in value]


def _by_name(table: Mapping[str, Any]) -> dict[str, Any]:
    """[tenants] and [tenants.NAME] side by side, the latter filled from the former."""
    tenants = table["tenants"]
    if not isinstance(tenants, Mapping):
        return dict(table)
    for_all = {key: value for key, value in tenants.items() if not isinstance(value, Mapping)}
    named = {key: for_all | dict(value) for key, value in tenants.items() if isinstance(value, Mapping)}
    return {**table, "tenants": {"": for_all, **named}}


def _refuse_old(table: Mapping[str, Any], source: str) -> None:
    moved = [f"[{name}] is now {_OLD[name]}" for name in table if name in _OLD]
    if moved:
        raise ConfigError(
            f"{source} has the shape of an earlier version: {'; '.join(moved)}; write it anew from `evolved config`"
        )


def _refuse_secrets(table: Mapping[str, Any], source: str, path: tuple[str, ...] = ()) -> None:
    for key, value in table.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping):
                _refuse_secrets(one, source, (*path, key))
        if _SECRET.search(key) and key != "tls_key" and isinstance(value, str) and not _REFERS.match(value):
            name = ".".join((*path, key))
            raise ConfigError(f"{source}: {name} holds a secret; write it into a file and name that: {name}_file")


def _check(config: Config, source: str) -> None:
    names = [one.name for one in config.engines]
    if not names:
        raise ConfigError(f"{source}: engines: name at least one, [[engines]] with a url")
    for name in names:
        if not _NAME.fullmatch(name) or name == "shadow" or names.count(name) > 1:
            raise ConfigError(
                f"{source}: engines: {name!r} cannot be a name; use letters, digits, - and _, each name once, and not "
                "'shadow'"
            )
    if not any(one.weight for one in config.engines):
        raise ConfigError(f"{source}: engines: every weight is 0, and no run would go anywhere; give one of them more")
    urls = {f"engines {one.name!r} url": one.url for one in config.engines} | {"shadow.url": config.shadow.url}
    for setting, url in urls.items():
        if url.rstrip("/").endswith("/v1"):
            raise ConfigError(f"{source}: {setting} = {url!r}: write {url.rstrip('/')[:-3]!r}, without /v1")
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"{source}: {setting} = {url!r}: write it with http:// or https://")
    _check_addresses(config, source)
    for table in ("control", "tap"):
        one = getattr(config, table)
        if bool(one.tls_cert) != bool(one.tls_key):
            raise ConfigError(f"{source}: {table}.tls_cert and {table}.tls_key go together; name both files or neither")
    if config.weights.listen and config.weights.source:
        raise ConfigError(
            f"{source}: weights.listen is for the learner's machine and weights.source for the daemon's; keep one"
        )
    for setting, wanted in {
        'lessons.draw has "llm"': "llm" in config.lessons.draw,
        "lessons.rewrite = true": config.lessons.rewrite,
    }.items():
        if wanted and not config.llm.url:
            raise ConfigError(f"{source}: {setting} and llm.url is empty; name a chat model in [llm]")
    hosts = config.apis.get(ALLOW_HOSTS, [])
    if not isinstance(hosts, list) or not all(isinstance(one, str) for one in hosts):
        raise ConfigError(f"{source}: apis.{ALLOW_HOSTS} = {hosts!r}: write a list of hosts, addresses and networks")
    _check_nats(config.nats, source)
    if _PASSWORD.search(config.database.url):
        # Not shown: the settings are printed and logged.
        raise ConfigError(
            f"{source}: database.url holds a password; take it out, and name a file that holds it: "
            "database.password_file"
        )
    for setting, days in {"runs_days": config.keep.runs_days, "calls_days": config.keep.calls_days}.items():
        if 0 < days < LEAST_DAYS:
            raise ConfigError(
                f"{source}: keep.{setting} = {days:g}: streams bring records back for 30 days; write {LEAST_DAYS} or "
                "more, or 0 for ever"
            )


def _check_nats(nats: Nats, source: str) -> None:
    servers = nats_servers(nats.url)
    for server in servers:
        scheme, _, rest = server.partition("://")
        user, _, host = rest.rpartition("@")
        if ":" in user:
            # Not shown: the settings are printed and logged.
            raise ConfigError(f"{source}: nats.url holds a password; write it into a file: nats.secret_file")
        if scheme not in ("nats", "tls") or not _HOST.fullmatch(host):
            raise ConfigError(
                f"{source}: nats.url: {server!r} is no address of a server; write nats://HOST:4222 or tls://HOST:4222"
            )
        if user and not nats.secret_file:
            raise ConfigError(f"{source}: nats.url names a user; name the file with his password: nats.secret_file")
    if len({server[: server.rfind("@") + 1] or server.partition("://")[0] for server in servers}) > 1:
        raise ConfigError(
            f"{source}: nats.url = {nats.url!r}: write the same tls:// and the same user before each server"
        )
    for setting in ("secret_file", "ca_file"):
        if getattr(nats, setting) and not servers:
            raise ConfigError(f"{source}: nats.{setting} is for a NATS of your own; set nats.url as well")
    if nats.replicas % 2 == 0:
        raise ConfigError(f"{source}: nats.replicas = {nats.replicas}: write 1, 3 or 5")


def nats_servers(url: str) -> list[str]:
    """The addresses in it one by one."""
    return [server.strip() for server in url.split(",") if server.strip()]


def _check_addresses(config: Config, source: str) -> None:
    addresses = {
        "control.listen": config.control.listen, "tap.listen": config.tap.listen, "tap.admin": config.tap.admin,
        "tap.mirror": config.tap.mirror, "otlp.listen": config.otlp.listen, "weights.listen": config.weights.listen,
        "train.metrics": config.train.metrics,
    }  # fmt: skip
    taken: dict[tuple[str, int], str] = {}
    for setting, text in addresses.items():
        if not text and setting not in ("control.listen", "tap.listen", "tap.admin"):
            continue
        at = address(text, setting, source)
        if at[1] and at in taken:
            raise ConfigError(f"{source}: {setting} and {taken[at]} are both {text!r}; give one of them another port")
        taken[at] = setting


def address(text: str, setting: str, source: str = "settings") -> tuple[str, int]:
    """Host and port of "HOST:PORT"; port 0 takes a free one.

    Raises:
        ConfigError: it is not written so.
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare) != (bare != host) or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{source}: {setting} = {text!r}: write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return bare, int(port)
