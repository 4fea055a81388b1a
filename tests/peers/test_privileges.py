"""What each unit can read of an installation: users as systemd-sysusers makes them, directories and ACLs as
systemd-tmpfiles does, files as our processes write them. Each user tries to open them; root alone can run this."""

import os
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.messages.files import write_whole
from daemon.settings.reading import load
from daemon.tap.keys import add_key
from daemon.upkeep import install
from daemon.upkeep.provenance import ROLES, Provenance
from learner.versions import write_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes other users' parts: needs root")

UNITS = ("tap", "broker", "daemon", "learner", "engine")
THINGS = {
    "gate's key": ("var/lib/evolved/keys/gate/private.pem", "- - yes - -"),
    "learner's key": ("var/lib/evolved/keys/learner/private.pem", "- - - yes -"),
    "keys of agents and operators": ("var/lib/evolved/keys/keys.json", "yes yes yes yes -"),
    "public keys": ("var/lib/evolved/keys/gate-public.pem", "yes yes yes yes -"),
    "store": ("var/lib/evolved/evolved.db", "yes yes yes yes -"),
    "spool": ("var/lib/evolved/spool/0/1.seg", "yes yes yes yes -"),
    "broker's credentials": ("var/lib/evolved/broker/credentials.json", "yes yes yes yes -"),
    "weights from before": ("var/lib/evolved/versions/v000000/model.safetensors", "yes yes yes yes yes"),
    "weights": ("var/lib/evolved/versions/v000001/model.safetensors", "yes yes yes yes yes"),
    "credentials": ("etc/evolved/credentials/judge", "given given given given -"),
    "engine's credentials": ("etc/evolved/engine-credentials/tls", "- - - - given"),
    "engine's arguments": ("etc/evolved/engine.env", "- - - - -"),
    "engine's cache": ("var/lib/evolved-engine/cache", "- - - - yes"),
}
"""Where each lies, and how far each unit gets. yes: its user may open it, and its unit does not hide it. given: root's,
and systemd hands it over at the start."""


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """What `work` returns in a process of that user, with our services' umask."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.umask(0o077)
            told = pickle.dumps((True, work()))
        except BaseException as error:
            told = pickle.dumps((False, repr(error)))
        os.write(theirs, told)
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        good, found = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert good, found
    return found


def values(unit: str, name: str, root: Path) -> list[str]:
    text = (root / install.SYSTEM / install.service(unit)).read_text()
    lines = [line.partition("=")[2].split() for line in text.splitlines() if line.startswith(f"{name}=")]
    return [word for line in lines for word in line]


def users_of(root: Path) -> dict[str, int]:
    lines = (line.split(":") for line in (root / "etc/passwd").read_text().splitlines())
    return {fields[0]: int(fields[2]) for fields in lines}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """An installation of all units that has run for a while."""
    made = Path(tempfile.mkdtemp(prefix="evolved-root-", dir="/var/tmp"))
    try:
        made.chmod(0o755)
        settings = install.example()
        todo = install.plan(load(settings), settings.read_bytes(), install.UNITS, Path("/usr/bin/env"))
        install.install(todo, made)
        subprocess.run(["systemd-sysusers", "--root", made], check=True, capture_output=True)
        users, state = users_of(made), made / install.STATE
        as_root_makes_it(made, users)
        as_user(users["evolved"], lambda: fill(state, 0))
        # As a version from before this: made where there was no ACL yet, and no other user.
        old = state / "versions/v000000"
        for path in (old, *old.iterdir()):
            os.removexattr(path, "system.posix_acl_access")
            path.chmod(0o700 if path.is_dir() else 0o600)
        as_root_makes_it(made, users)
        as_user(users["evolved"], lambda: fill(state, 1))
        as_user(users["evolved-engine"], lambda: write_whole(made / THINGS["engine's cache"][0], b"x"))
        for name in ("credentials", "engine's credentials"):
            write_whole(made / THINGS[name][0], b"secret", mode=0o644)
        yield made
    finally:
        shutil.rmtree(made)


def as_root_makes_it(root: Path, users: dict[str, int]) -> None:
    """What systemd does before the units start. Names are looked up on this machine: numbers stand in their place."""
    conf = root / install.DIRECTORIES.lstrip("/")
    lines: list[str] = []
    for line in conf.read_text().splitlines():
        words = [str(users.get(word, word)) for word in line.split()]
        lines.append(" ".join(words).replace("user:evolved-engine:", f"user:{users['evolved-engine']}:"))
    numbers = conf.with_name("numbers.conf")
    numbers.write_text("\n".join(lines) + "\n")
    for unit in install.UNITS:
        user, directory, mode = (
            values(unit, f"{name}", root)[0] for name in ("User", "StateDirectory", "StateDirectoryMode")
        )
        path = root / "var/lib" / directory
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, users[user], users[user])
        path.chmod(int(mode, 8))
    done = subprocess.run(
        ["systemd-tmpfiles", "--root", root, "--create", numbers.name], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    if "system.posix_acl_access" not in os.listxattr(root / install.STATE / "versions"):
        pytest.skip("this file system keeps no ACLs")


def fill(state: Path, version: int) -> None:
    """What the daemon, the tap, the broker and the learner write."""
    write_directory(
        state / f"versions/v{version:06d}", lambda aside: (aside / "model.safetensors").write_bytes(b"weights")
    )
    if version:
        return
    for role in ROLES:
        Provenance(state).key(role)
    add_key(state / "keys/keys.json", tenant="acme", scope="agent", now=0.0, expires=None, note="")
    for name in ("evolved.db", "spool/0/1.seg", "broker/credentials.json"):
        (state / name).parent.mkdir(exist_ok=True, parents=True, mode=0o700)
        write_whole(state / name, b"x", mode=0o600)


def opens(path: Path) -> bool:
    try:
        path.open("rb").close()
    except PermissionError:
        return False
    return True


def reads(root: Path, unit: str, name: str, uid: int) -> str:
    path = f"/{THINGS[name][0]}"
    if str(Path(path).parent) in [given.partition(":")[2] for given in values(unit, "LoadCredential", root)]:
        return "given"
    hidden = (Path(one.lstrip("-")) for one in values(unit, "InaccessiblePaths", root))
    if any(one in Path(path).parents for one in hidden):
        return "-"
    return "yes" if as_user(uid, lambda: opens(root / path.lstrip("/"))) else "-"


def test_each_unit_reads_what_it_needs_and_the_engine_weights_alone(root: Path) -> None:
    assert UNITS == install.UNITS
    users = users_of(root)
    uids = {unit: users[values(unit, "User", root)[0]] for unit in UNITS}
    found = {name: " ".join(reads(root, unit, name, uids[unit]) for unit in UNITS) for name in THINGS}
    assert found == {name: reach for name, (_, reach) in THINGS.items()}


def test_the_engine_changes_no_weights_and_does_not_see_what_else_there_is(root: Path) -> None:
    state, engine = root / install.STATE, users_of(root)["evolved-engine"]
    for work in (
        lambda: list(state.iterdir()),
        lambda: (state / "versions/v000001/model.safetensors").write_bytes(b"other weights"),
        lambda: (state / "versions/v000002").mkdir(),
    ):
        with pytest.raises(AssertionError, match="PermissionError"):
            as_user(engine, work)
