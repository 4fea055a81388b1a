"""The settings: their defaults, what is laid over them, what cannot work, and what the parts take of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.cli.main import main
from daemon.composition import values
from daemon.composition.checks import faults
from daemon.errors import ConfigError
from daemon.processes.bus_connection import access
from daemon.processes.tap_settings import tap
from daemon.settings.reading import address, control, defaults, load
from daemon.settings.tables import Tenant


def written(directory: Path, text: str) -> Path:
    path = directory / "mine.toml"
    path.write_text(text)
    return path


def test_the_file_has_every_key_and_no_other_and_nobody_else_reaches_what_listens() -> None:
    config = load(None)
    assert set(defaults()) == set(config.__struct_fields__)
    assert {address(at, "x")[0] for at in (config.control.listen, config.tap.listen, config.tap.admin)} == {"127.0.0.1"}


def test_it_imports_msgspec_alone() -> None:
    code = "import sys; before = {*sys.modules}; import daemon.settings.reading; print(*{*sys.modules} - before)"
    found = {
        name.partition(".")[0] for name in subprocess.check_output([sys.executable, "-c", code], text=True).split()
    }
    assert found - sys.stdlib_module_names <= {"msgspec", "typing_extensions", "daemon"}


def test_engines_and_tenants_have_the_defaults_of_what_they_leave_out(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[[engines]]\nname = "a"\nurl = "http://a:8000"\n[[engines]]\nname = "b"\nurl = "http://b:8000"\nweight = 3\n'
        "[tenants]\nshare = 0.5\n[tenants.acme]\nshare = 0.1\n",
    )
    config = load(file)
    assert [(one.name, one.weight, one.logprobs) for one in config.engines] == [("a", 1.0, "raw"), ("b", 3.0, "raw")]
    assert config.tenants == {"": Tenant(0.5), "acme": Tenant(0.1)}
    assert tap(config).door.sampling == {"": 0.5, "acme": 0.1}
    assert load(None, ["engines.url=http://c:1"]).engines[0].url == "http://c:1"
    with pytest.raises(ConfigError, match="there are 2"):
        load(file, ["engines.url=http://c:1"])


def test_an_order_reads_where_the_daemon_is_whatever_else_is_wrong(tmp_path: Path) -> None:
    file = written(tmp_path, '[judge]\nnonsense = 1\n[control]\nlisten = "127.0.0.1:9"\n')
    assert control(file).listen == "127.0.0.1:9"
    assert control(file, ["control.listen=127.0.0.1:8"]).listen == "127.0.0.1:8"
    with pytest.raises(ConfigError, match=r"control\.listn; did you mean control\.listen"):
        control(None, ["control.listn=127.0.0.1:9"])


def test_options_belong_to_the_adapter_that_they_were_given_for(tmp_path: Path) -> None:
    file = written(tmp_path, '[judge]\nname = "llm"\n[judge.options]\nurl = "http://j/v1"\n')
    assert load(file).judge.options == {"url": "http://j/v1"}
    assert load(file, ["judge.options.model=m"]).judge.options == {"url": "http://j/v1", "model": "m"}
    assert load(file, ["judge.options.a=1", "judge.name=panel"]).judge.options == {"a": 1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train.learning_rat=1", r"train\.learning_rat; known here: .*lr"),
        ("train.lr=-1.0", r"train\.lr"),
        ("train.production_share=1.0", r"train\.production_share"),
        ("train.group_size=3", r"train\.group_size"),
        ("tenants.share=1.5", r"share: expected `float` <= 1\.0"),
        ("tap.listn=1", r"did you mean tap\.listen\?"),
        ("engines.url=http://h:8000/v1/", r"engines 'serving' url = .*: write 'http://h:8000'"),
        ("shadow.url=h:8000", r"shadow\.url = .*http://"),
        ("engines.name=shadow", "cannot be a name"),
        ("engines=[]", "name at least one"),
        ('engines=[{name="a"}, {name="a"}]', "each name once"),
        ("judge.options.api_key=s3cr3t", r"judge\.options\.api_key holds a secret; .* judge\.options\.api_key_file"),
        ("weights.token=s3cr3t", r"weights\.token holds a secret"),
        ("control.listen=127.0.0.1:8080", r"tap\.listen and control\.listen are both"),
        ("tap.admin=8081.5:x", r"tap\.admin = .*: write HOST:PORT"),
        ("tap.mirror=::1:80", r"tap\.mirror = .*: write HOST:PORT"),
        ("tap.tls_cert=/etc/chain.pem", r"tap\.tls_cert and tap\.tls_key go together"),
        ("lessons.rewrite=true", r"llm\.url is empty"),
        ("nats.replicas=2", "write 1, 3 or 5"),
        ("nats.url=nats://me:s3cr3t@host", r"nats\.secret_file"),
        ("nats.url=http://host", r"no address of a server; write nats://"),
        ('nats.url="nats://a,tls://b"', r"the same tls://"),
        ("nats.url=nats://me@a", r"nats\.secret_file"),
        ("nats.ca_file=c", r"set nats\.url as well"),
        ("database.url=postgresql+psycopg://me:s3cr3t@host/db", r"database\.password_file"),
        ("database.url=postgresql+psycopg://me@host/db?password=s3cr3t", r"database\.password_file"),
        ("keep.calls_days=5", r"keep\.calls_days = 5: .* write 31 or more"),
        ("train.lr=four", r"train\.lr: expected `float`, got `str`"),
        ('engines=[{ul="http://a"}]', r"engines\.ul; did you mean engines\.url\?"),
        ('engines=[{key="s3cr3t"}]', r"engines\.key holds a secret"),
        ("tenants.shar=1.0", r"tenants\.shar; did you mean tenants\.share\?"),
        ("tenants.acme={shar=1.0}", r"tenants\.acme\.shar; did you mean tenants\.acme\.share\?"),
        ("engines.weight=0.0", "every weight is 0"),
        ("apis.allow_hosts=3", r"apis\.allow_hosts = 3: write a list"),
        ("learner.lr=1e-5", r"\[learner\] is now \[model\], \[train\]"),
    ],
)
def test_what_cannot_work_is_refused_with_its_name_and_the_remedy(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(None, [line])
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("judge.options={tempreture=1}", r"judge: .*there is no option tempreture"),
        (
            'judge={name="llm",options={url="http://a/v1",model="m",tempreture=1}}',
            r"did you mean temperature\?",
        ),
        ('llm={url="http://a/v1",model="m"}', ""),
        (
            'sandbox={environment="travel",options={drift=1}}',
            r"sandbox\.options .*mean drift_file\?",
        ),
        ('sandbox={harness="sliding",harness_options={turn=3}}', r"harness_options .* did you mean turns\?"),
        ('sandbox={grader="open",grader_options={x=1}}', r"sandbox\.grader: .*there is no option x; known: url"),
        ("tasks.prefer={dificulty=1}", r"tasks\.prefer: .* did you mean difficulty\?"),
        ('redact.kinds=["emial"]', r"redact\.kinds: .* 'emial'; write some of .* email"),
        ('apis.shop={kind="openapi",documnt="x"}', r"did you mean apis\.shop\.document\?"),
        ('apis.shop={kind="openapi",document="x",policy={mod=1}}', r"did you mean apis\.shop\.policy\.mode\?"),
        ("apis.shop=3", r"\[apis\.shop\]: write a table"),
    ],
)
def test_what_the_takers_of_free_tables_cannot_do_with_is_told_before_they_start(line: str, said: str) -> None:
    found = "; ".join(faults(load(None, [line])))
    assert re.search(said, found) if said else not found


def test_a_machine_hands_out_versions_or_fetches_them() -> None:
    with pytest.raises(ConfigError, match="keep one"):
        load(None, ["weights.listen=127.0.0.1:8095", "weights.source=http://h:8095"])


def test_addresses_of_the_sixth_version_have_brackets() -> None:
    assert address("[::1]:0", "tap.listen") == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "said"), [("[train\n", "line 1"), ("a = " + "[" * 5000, "no TOML"), ("a = " + "9" * 5000, "no TOML")]
)
def test_a_file_that_is_no_toml_is_told_and_an_assignment_that_is_none_is_text(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match="--config"):
        load(tmp_path / "mine.toml")
    with pytest.raises(ConfigError, match=said):
        load(written(tmp_path, text))
    value = text.removeprefix("a = ")
    assert load(None, [f"state_dir={value}"]).state_dir == value


def test_the_settings_are_shown_as_toml_that_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["config"]) == 0
    assert load(written(tmp_path, capsys.readouterr().out)) == load(None)


def test_one_engine_is_called_serving_and_several_are_the_taps_too(tmp_path: Path) -> None:
    assert load(None).serving == {"serving": "http://127.0.0.1:8000"}
    told = [f"state_dir={tmp_path}", 'engines=[{name="a",url="http://a:1"}, {name="b",url="http://b:1",weight=2.0}]']
    config = load(None, [*told, "tap.mirror=127.0.0.2:8082"])
    assert config.serving == {"a": "http://a:1", "b": "http://b:1"}
    told = tap(config)
    assert [(one.name, one.url, one.weight) for one in told.upstreams] == [
        ("a", "http://a:1", 1.0), ("b", "http://b:1", 2.0),
    ]  # fmt: skip
    assert (told.mirror_host, told.mirror_port, told.host) == ("127.0.0.2", 8082, "127.0.0.1")
    assert (told.routes_file, told.spool_dir) == (str(tmp_path / "routes.json"), str(tmp_path / "spool"))


def test_without_a_sandbox_no_group_is_waited_for() -> None:
    assert values.curator(load(None)).groups_per_batch == 0
    assert values.curator(load(None, ["sandbox.environment=travel"])).groups_per_batch == 8


def test_whoever_has_a_user_at_the_servers_has_his_password_and_else_a_credentials_file() -> None:
    named = access(load(None, ["nats.url=tls://me@a:1, tls://me@b:1", "nats.secret_file=s"]))
    assert (named.servers, named.user, named.secret_file) == (("tls://a:1", "tls://b:1"), "me", "s")
    assert access(load(None, ["nats.url=tls://a:1", "nats.secret_file=s"])).user == ""


def test_keys_count_when_they_are_there_and_where_nobody_may_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [f"state_dir={tmp_path}"]
    assert load(None, told).keys is None
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "keys.json").touch()
    assert load(None, told).keys == tmp_path / "keys" / "keys.json"

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    config = load(None, [f"state_dir={tmp_path}/nothing"])
    monkeypatch.setattr(Path, "exists", denied)
    assert config.keys is not None


def test_an_endpoint_of_ones_own_never_gets_the_key_of_the_shared_one() -> None:
    shared = ["llm.url=http://l/v1", "llm.model=m", "llm.key_file=k", "judge.name=llm"]
    asked = {"url": "http://l/v1", "model": "m", "key_file": "k"}
    assert values.adapter(load(None, shared), "judge")[1] == asked
    assert values.adapter(load(None, [*shared, "judge.options.model=n"]), "judge")[1] == {**asked, "model": "n"}
    own = ["judge.options.url=http://j/v1", "judge.options.model=n"]
    assert values.adapter(load(None, [*shared, *own]), "judge")[1] == {"url": "http://j/v1", "model": "n"}
