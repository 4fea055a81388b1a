"""The Kubernetes manifests: what the API server would say of them (its OpenAPI schemas, offline), and whether they fit
each other and our settings."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.engines import vllm_server
from daemon.cli import main as cli
from daemon.settings.config import Config, load

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "ops/kubernetes").rglob("*.yaml"))
VALIDATE = ROOT / ".venv-k8s/bin/kubernetes-validate"
OURS = ("tap", "daemon", "learner")


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return [one for file in FILES for one in yaml.safe_load_all(file.read_text())]


@pytest.fixture(scope="module")
def config(objects: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Config:
    (one,) = [item for item in objects if item["kind"] == "ConfigMap"]
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(one["data"]["config.toml"])
    return load(path)


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"}
    return found | {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Pod"}


@pytest.mark.parametrize("version", ["1.37", "1.29"])
def test_the_schemas_of_kubernetes_take_every_manifest(version: str) -> None:
    done = subprocess.run(
        [str(VALIDATE), "--strict", "--version", version, *map(str, FILES)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schemas_would_refuse_a_key_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((ROOT / "ops/kubernetes/30-tap.yaml").read_text().replace("  replicas:", "  replica:"))
    assert subprocess.run([str(VALIDATE), "--strict", str(wrong)], capture_output=True, timeout=100).returncode != 0


def test_every_container_runs_a_subcommand_that_there_is(objects: list[dict[str, Any]]) -> None:
    for name, pod in pods(objects).items():
        (container,) = pod["containers"]
        if container["args"][0] == "engine":
            told = vllm_server.parser().parse_args(container["args"][1:])
            assert told.private_network, name
            assert {"name": "http", "containerPort": told.port} in container["ports"]
        else:
            assert cli.parser().parse_args(container["args"]).run, name


def test_every_file_that_the_settings_name_is_mounted_and_is_a_key_of_its_secret(
    objects: list[dict[str, Any]], config: Config
) -> None:
    secrets = {one["metadata"]["name"]: set(one["stringData"]) for one in objects if one["kind"] == "Secret"}
    named = [
        config.bus.password_file, config.bus.ca_file, config.control.admin_key_file,
        config.engines.serving.api_key_file, config.engines.shadow.api_key_file,
    ]  # fmt: skip
    assert all(named)
    for name in OURS:
        pod = pods(objects)[name]
        mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert config.state_dir in mounts
        for file in map(Path, named):
            secret = volumes[mounts[str(file.parent)]]["secret"]["secretName"]
            assert file.name in secrets[secret], (name, file)


def test_volumes_claims_and_secrets_that_are_used_exist(objects: list[dict[str, Any]]) -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for pod in pods(objects).values():
        assert {one["name"] for one in pod["containers"][0]["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        for volume in pod["volumes"]:
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in there
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
        if "priorityClassName" in pod:
            assert ("PriorityClass", pod["priorityClassName"]) in there


def test_ports_agree_between_settings_containers_services_and_policies(
    objects: list[dict[str, Any]], config: Config
) -> None:
    ports = {
        name: {one["name"]: one["containerPort"] for one in pod["containers"][0].get("ports", [])}
        for name, pod in pods(objects).items()
    }
    assert ports["tap"] == {"agents": config.tap.port, "admin": config.tap.admin_port}
    assert ports["daemon"] == {"control": config.control.port}
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] == "Service":
            assert {port["targetPort"]: port["port"] for port in one["spec"]["ports"]} == ports[name]
        if one["kind"] == "NetworkPolicy" and one["spec"]["podSelector"]:
            open_ports = {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]}
            assert open_ports == set(ports[name].values())
    hosts = {f"http://{name}.evolved.svc:8000" for name in ("engine", "shadow")}
    assert {config.engines.serving.url, config.engines.shadow.url} == hosts
    assert config.tap.upstream == config.engines.serving.url


def test_nobody_but_tap_and_daemon_reaches_an_engine(objects: list[dict[str, Any]]) -> None:
    allowed: dict[str, set[str]] = {}
    for one in objects:
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] in ("engine", "shadow"):
            for rule in one["spec"]["ingress"]:
                for peer in rule["from"]:
                    component = peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
                    allowed.setdefault(one["metadata"]["name"], set()).add(component)
    assert allowed == {"engine": {"tap", "daemon"}, "shadow": {"daemon"}}


def test_no_pod_may_do_more_than_the_restricted_standard_allows(objects: list[dict[str, Any]]) -> None:
    for name, pod in pods(objects).items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


def test_production_goes_before_learning(objects: list[dict[str, Any]]) -> None:
    value = {one["metadata"]["name"]: one["value"] for one in objects if one["kind"] == "PriorityClass"}
    rank = {name: value[pod["priorityClassName"]] for name, pod in pods(objects).items() if "priorityClassName" in pod}
    assert rank["engine"] == rank["tap"] > rank["daemon"] > rank["learner"] == rank["shadow"]
