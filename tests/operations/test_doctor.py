"""`evolved doctor`: silent about an installation that is well, and for each planted fault its name and its remedy."""

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from actors.messages import Feedback, new_id
from actors.messages.codec import encode
from actors.store import Store
from actors.system.broker import server_binary
from daemon.cli.main import main
from daemon.doctor.files import network_file_system
from daemon.tap.spool import Record, SpoolWriter
from tests.support import checkpoints, troubled
from tests.support.certificates import self_signed
from tests.support.engines import embedded_engine
from tests.support.installation import Installation
from tests.support.patience import within
from tests.support.ports import free_port
from tests.support.process import Process, run
from tests.support.tapping import BODY

pytestmark = pytest.mark.torch
SECONDS = f"{within():g}"
"""That each check may take."""


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation that runs, with a real engine, broker, tap and daemon, and has seen a call."""
    directory = tmp_path_factory.mktemp("doctor")
    checkpoints.write_all(directory / "models")
    with ExitStack() as stack:
        url = stack.enter_context(embedded_engine(directory / "models" / "a", "--dev-mode", name="desk"))
        here = Installation(
            directory, engines={"url": url}, shadow={"url": url},
            embeddings={"model": "small", "url": f"{url}/v1"},
        )  # fmt: skip
        here.config.state.mkdir(mode=0o700)
        broker, tap = stack.enter_context(here.running("broker")), stack.enter_context(here.running("tap"))
        broker.until(lambda: (here.config.state / "broker" / "credentials.json").exists())
        daemon = stack.enter_context(here.running("run"))
        tap.until_listens(here.ports["tap"])
        daemon.until_said("system_ready")
        called = httpx.post(
            f"http://127.0.0.1:{here.ports['tap']}/v1/chat/completions",
            json={**BODY, "max_tokens": 4},
            timeout=within(),
        )
        assert called.status_code == 200, called.text
        daemon.until_listens(here.ports["control"])
        yield here


class Told:
    """What the doctor said."""

    def __init__(self, status: int, told: dict[str, Any]) -> None:
        self.status, self.checks = status, {one["check"]: one for one in told["checks"]}
        self.findings = told["findings"]

    def has(self, check: str, severity: str, what: str, remedy: str) -> None:
        assert any(
            one["check"] == check and one["severity"] == severity and what in one["what"] and remedy in one["remedy"]
            for one in self.findings
        ), (check, self.findings, self.checks.get(check))
        assert self.status == (1 if any(one["severity"] == "fault" for one in self.findings) else 0)


@pytest.fixture
def ask(well: Installation, capsys: pytest.CaptureFixture[str]):
    """The doctor about that installation, with `settings` over its own."""

    def asked(*arguments: str, **settings: object) -> Told:
        given = [f"{key.replace('__', '.')}={json.dumps(value)}" for key, value in settings.items()]
        sets = [part for one in given for part in ("--set", one)]
        capsys.readouterr()
        status = main(["doctor", "--config", str(well.file), "--json", "--seconds", SECONDS, *sets, *arguments])
        return Told(status, json.loads(capsys.readouterr().out))

    return asked


def test_an_installation_that_is_well_has_no_finding(ask, well: Installation, capsys) -> None:
    told = ask("--root", str(well.directory))
    assert (told.status, told.findings) == (0, [])
    looked = {name for name, one in told.checks.items() if one["state"] == "well"}
    assert len(looked) >= 12, told.checks
    assert main(["doctor", "--config", str(well.file), "--seconds", SECONDS, "--root", str(well.directory)]) == 0
    assert "nothing found" in capsys.readouterr().out


def test_development_endpoints_that_are_closed(ask, well: Installation) -> None:
    # A common mistake: the daemon is pointed at the tap, which passes no development endpoint.
    told = ask(engines__url=f"http://127.0.0.1:{well.ports['tap']}")
    told.has("engine endpoints", "fault", "development endpoints are closed", "VLLM_SERVER_DEV_MODE=1")


@pytest.mark.parametrize(
    ("trouble", "check", "severity", "what", "remedy"),
    [
        ("key", "engine endpoints", "fault", "401", "engines: key_file of serving"),
        ("tokens", "engine answers", "fault", "without token ids", "vLLM 0.32 or newer"),
        ("tools", "engine answers", "fault", "agents' tools are refused", "--tool-call-parser"),
        ("paused", "engine endpoints", "warning", "is paused", "/resume"),
    ],
)
def test_an_engine_with_one_thing_wrong(ask, trouble, check, severity, what, remedy) -> None:
    with troubled.engine(trouble) as engine:
        ask("--only", check, engines__url=engine.url).has(check, severity, what, remedy)


@contextmanager
def nats_server(directory: Path, text: str) -> Iterator[int]:
    """One of the user's own: its port."""
    port = free_port()
    path = directory / "own.conf"
    path.write_text(f"listen: 127.0.0.1:{port}\n{text}\n")
    with Process([server_binary(), "-c", path], directory / "own.log") as server:
        server.until_listens(port)
        yield port


def test_a_broker_without_jetstream_and_one_that_wants_a_password(ask, tmp_path: Path) -> None:
    with nats_server(tmp_path, "authorization { user: a, password: b }") as port:
        told = ask("--only", "broker", nats__url=f"nats://127.0.0.1:{port}")
    told.has("broker", "fault", "JetStream off", "-js")
    store = json.dumps(str(tmp_path / "js"))
    with nats_server(tmp_path, f"authorization {{ user: a, password: b }}\njetstream {{ store_dir: {store} }}") as port:
        told = ask("--only", "broker", nats__url=f"nats://127.0.0.1:{port}")
    told.has("broker", "fault", "does not let us in", "nats.secret_file")


def test_a_database_of_another_schema(ask, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'future.db'}"
    anyio.run(Store(url, clock=time.time).open)
    with closing(sqlite3.connect(tmp_path / "future.db")) as database:
        database.execute("UPDATE state SET value = ? WHERE key = 'store.schema'", (b"999",))
        database.commit()
    told = ask("--only", "store", database__url=url)
    told.has("store", "fault", "schema 999", "install the evolved that wrote it")


def test_sqlite_on_a_network_disk(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n40 22 0:51 / /srv/with\\040space rw - nfs4 box:/vol rw\n"
        "41 40 0:52 / /srv/with\\040space/fast rw - xfs /dev/vdb rw\n"
    )
    assert network_file_system(Path("/srv/with space/evolved.db"), mounts) == "nfs4"
    assert network_file_system(Path("/srv/with space/fast/evolved.db"), mounts) == ""
    assert network_file_system(Path("/srv/without/evolved.db"), mounts) == ""


def test_a_state_directory_that_others_read_and_where_files_belong_to_somebody_else(ask, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    told = ask("--only", "state directory", state_dir=str(tmp_path))
    told.has("state directory", "warning", "others can look into it", f"chmod 700 {tmp_path}")
    assert os.geteuid() == 0, "to give a file away takes root"
    (tmp_path / "evolved.db").touch()
    os.chown(tmp_path / "evolved.db", 65534, 65534)
    told = ask("--only", "state directory", state_dir=str(tmp_path))
    told.has("state directory", "fault", "evolved.db belongs to nobody", "chown -R root")


def test_a_disk_that_is_nearly_full(well: Installation, tmp_path: Path) -> None:
    command = well.command("doctor", "--json", "--only", "disk", "--set", f"state_dir={tmp_path}")
    script = f'mount -t tmpfs -o size=8m none {tmp_path} && exec "$@"'
    done = run(["unshare", "--mount", "sh", "-c", script, "sh", *command])
    assert done.returncode == 1, f"it takes root and a mount namespace of its own: {done.stderr}"
    (finding,) = json.loads(done.stdout)["findings"]
    assert "nearly full" in finding["what"]
    assert "limits.spool_gb" in finding["remedy"]


def test_a_port_that_somebody_else_has(ask) -> None:
    with troubled.engine("") as engine:
        told = ask("--only", "ports", control__listen=engine.url.removeprefix("http://"))
    told.has("ports", "fault", f"somebody else listens at {engine.url}", "control.listen")


def test_keys_that_others_read_and_keys_that_are_not_there(ask, tmp_path: Path) -> None:
    secret = tmp_path / "engine.key"
    secret.write_text("sk-engine")
    secret.chmod(0o644)
    told = ask("--only", "keys", engines__key_file=str(secret), tap__require_key=True)
    told.has("keys", "warning", str(secret), f"chmod 600 {secret}")
    told.has("keys", "fault", "keys.json: no such file", "do not start")
    assert "sk-engine" not in json.dumps(told.findings)


def test_certificates_that_have_expired_or_will(ask, tmp_path: Path) -> None:
    gone, soon = (self_signed(tmp_path, name, days=days).chain for name, days in (("gone", -2), ("soon", 3.05)))
    told = ask(
        "--only", "certificates",
        tap__tls_cert=str(gone), tap__tls_key=str(gone.with_suffix(".key")), engines__ca_file=str(soon),
    )  # fmt: skip
    told.has("certificates", "fault", f"tap.tls_cert {gone}", "renew it")
    told.has("certificates", "warning", "expires in 3 days", "renew it")


def test_a_spool_that_nobody_reads(ask, tmp_path: Path) -> None:
    said = Feedback(id=new_id(), received=time.time() - 7200, response_id="r", outcome=1.0)
    SpoolWriter(tmp_path / "0").append([Record(bytes(16), encode(said))])
    told = ask("--only", "spool", tap__spool_dir=str(tmp_path))
    told.has("spool", "fault", "a call has waited for 120 min", "start the daemon")


NOWHERE = "http://127.0.0.1:9"
KEYLESS = {"model": "m", "url": f"{NOWHERE}/v1", "key_env": "EVOLVED_NO_SUCH_KEY"}


@pytest.mark.parametrize(
    ("check", "settings", "what", "remedy"),
    [
        ("engines", {"engines.url": NOWHERE}, f"does not answer at {NOWHERE}", "engines: url of serving"),
        ("broker", {"nats.url": "nats://127.0.0.1:9"}, "127.0.0.1:9", "set nats.url"),
        ("doors", {"control.listen": "0.0.0.0:8090"}, "control.listen", "--scope admin"),
        ("trainer", {"model.path": "/nowhere/model"}, "/nowhere/model: no such directory", "Hugging Face"),
        ("adapters", {"judge.name": "lml"}, "judge: no judge adapter 'lml'; did you mean llm?", "evolved config"),
        ("adapters", {"judge.name": "llm", **{f"judge.options.{name}": told for name, told in KEYLESS.items()}},
         "EVOLVED_NO_SUCH_KEY", "evolved config"),
    ],
)  # fmt: skip
def test_a_setting_that_leads_nowhere_is_a_fault(
    ask, check: str, settings: dict[str, str], what: str, remedy: str
) -> None:
    ask("--only", check, **settings).has(check, "fault", what, remedy)


def test_versions_that_nobody_signed(ask, tmp_path: Path) -> None:
    (tmp_path / "versions" / "v000001").mkdir(parents=True)
    (tmp_path / "versions" / "v000001" / "manifest.json").write_text("{}")
    (tmp_path / "keys").mkdir()
    told = ask("--only", "versions", state_dir=str(tmp_path))
    told.has("versions", "fault", "", "evolved provenance")


def test_a_setting_that_nothing_reads_does_not_keep_the_rest_from_being_looked_at(ask, well: Installation) -> None:
    told = ask(runs__idle_minute=5)
    told.has("settings", "fault", "no setting runs.idle_minute", "write runs.idle_minutes")
    assert told.checks["ports"]["state"] == "well", "the file's other settings hold"


def test_it_looks_while_nothing_runs(tmp_path: Path) -> None:
    done = Installation(tmp_path).run("doctor", "--json", "--seconds", SECONDS)
    told = Told(done.returncode, json.loads(done.stdout))
    assert done.stderr == ""
    told.has("ports", "warning", "`evolved run` does not run", "systemctl start evolved-daemon")
    assert told.status == 1


def test_each_check_has_its_deadline(tmp_path: Path) -> None:
    here = Installation(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        done = here.run("doctor", "--json", "--only", "engines", "--seconds", "0.5", "--set", f"engines.url={url}")
    told = Told(done.returncode, json.loads(done.stdout))
    told.has("engines", "warning", "no answer within 0.5 s", "that hangs")
    assert told.status == 0


def test_a_check_that_is_not_there_is_named(ask) -> None:
    assert main(["doctor", "--only", "broke"]) == 2
