"""`evolved provenance`: public keys carried between nodes, keys exchanged, old versions signed."""

import argparse
import sys
from typing import Any

from daemon.cli.options import json_option

PROVENANCE_HELP = """\
Keys that versions and verdicts are signed with. On one machine they make themselves; this is for the rest.

examples:
  evolved provenance show                         which keys there are, and which are trusted
  evolved provenance show learner > learner.pem   the learner's public key, to be carried to the daemon's node
  evolved provenance trust learner learner.pem    there: versions that it signs may be loaded
  evolved provenance rotate learner               a new key; the old one stays trusted until you take it out
  evolved provenance sign                         sign versions from before signatures, or again after a rotation

To give a key up: rotate, carry the new public key to the other nodes, sign, then delete the old block from the
*-public.pem files. A running daemon sees a change of a public file at once; a signer takes up its new key when it is
started again.
"""


def add_provenance(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("provenance", run_provenance, "Keys that versions and verdicts are signed with.")
    command.description, command.formatter_class = PROVENANCE_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("action", choices=("show", "trust", "rotate", "sign"))
    command.add_argument("role", nargs="?", choices=("learner", "gate"), help="whose key")
    command.add_argument("file", nargs="?", metavar="FILE", help="trust: public keys in PEM, - for standard input")
    json_option(command, help="show: one JSON document instead")


def run_provenance(arguments: argparse.Namespace) -> int:
    """Exit status 0."""
    from actors.messages.signing import BadKey
    from daemon.errors import ConfigError
    from daemon.settings.reading import load
    from daemon.upkeep.provenance import Provenance

    config = load(arguments.config, arguments.set)
    provenance = Provenance(config.state)
    if arguments.action in ("trust", "rotate") and arguments.role is None:
        raise ConfigError(f"whose key? write: evolved provenance {arguments.action} learner, or gate")
    try:
        match arguments.action:
            case "show":
                _show(arguments, provenance)
            case "trust":
                _trust(arguments, provenance)
            case "rotate":
                _rotate(arguments, provenance)
            case _:
                _sign(config, provenance)
    except (BadKey, OSError) as error:
        raise ConfigError(str(error)) from error
    return 0


def _show(arguments: argparse.Namespace, provenance: Any) -> None:
    from actors.messages.signing import BadKey, fingerprint
    from daemon.upkeep.provenance import ROLES

    if arguments.role is not None and not arguments.json:
        # The key that signs here, alone on standard output; not those that are only trusted.
        print(provenance.key(arguments.role).public_pem, end="")
        return
    told: list[dict[str, Any]] = []
    for role in (arguments.role,) if arguments.role else ROLES:
        path, trusted = provenance.private_path(role), provenance.trusted(role)
        try:
            keys, problem = list(map(fingerprint, trusted.keys())), ""
        except BadKey as error:
            keys, problem = [], str(error)
        signs = provenance.key(role).fingerprint if path.exists() else None
        told.append(
            {"role": role, "signs_with": signs, "key": str(path), "trusted_file": str(trusted.path), "trusted": keys}
            | ({"problem": problem} if problem else {})
        )
    if arguments.json:
        from daemon.cli.output import print_json

        print_json(told)
        return
    for item in told:
        print(f"{item['role']}: signs with {item['signs_with'] or 'no key here'} ({item['key']})")
        print(f"  trusted: {', '.join(item['trusted']) or item.get('problem', 'none')} ({item['trusted_file']})")


def _trust(arguments: argparse.Namespace, provenance: Any) -> None:
    from pathlib import Path

    from actors.messages.signing import trust
    from daemon.errors import ConfigError

    if arguments.file is None:
        raise ConfigError("which key? write: evolved provenance trust learner FILE, or - for standard input")
    text = sys.stdin.read() if arguments.file == "-" else Path(arguments.file).read_text()
    path = provenance.trusted(arguments.role).path
    print(f"{path}: {'added' if trust(path, text) else 'was trusted already'}")


def _rotate(arguments: argparse.Namespace, provenance: Any) -> None:
    path = provenance.private_path(arguments.role)
    if path.exists():
        before = provenance.key(arguments.role)  # refuses to put away what is no key
        path.rename(path.with_name(f"{path.stem}-{before.fingerprint}{path.suffix}"))
    key = provenance.key(arguments.role)
    print(f"{path}: signs with {key.fingerprint} once it is started again; the key before lies beside it")


def _sign(config: Any, provenance: Any) -> None:
    from learner.versions import Versions

    versions = Versions(config.state / "versions", key=provenance.key("learner"))
    for version in versions.numbers():
        versions.sign(version)
        print(f"v{version:06d}: signed")
