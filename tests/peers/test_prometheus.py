"""Our rules as Prometheus reads them, and against what our processes really export."""

import contextlib
import re
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.patience import wait_until, within
from tests.support.ports import free_port
from tests.support.process import Process, run, status

ROOT = Path(__file__).parents[2]
RULES, DASHBOARDS = ROOT / "ops" / "prometheus", ROOT / "ops" / "grafana" / "dashboards"
CASES = sorted(path.name for path in RULES.glob("*.test.yml"))
_METRIC = re.compile(r"\bevolved_[a-z0-9_]+")
_SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def promtool(*arguments: str) -> None:
    done = run(["promtool", *arguments], cwd=RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def scraped(port: int) -> str:
    """What is exported there, once it is."""
    wait_until(lambda: status(f"http://127.0.0.1:{port}/metrics") == 200, "something is exported", 120)
    return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=within()).text


def test_rules_and_scrape_configuration_are_valid() -> None:
    promtool("check", "rules", "recording.yml", "alerts.yml")
    promtool("check", "config", "prometheus.yml")


@pytest.mark.parametrize("cases", CASES)
def test_alerts_fire_when_they_should_and_not_before(cases: str) -> None:
    promtool("test", "rules", cases)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, quiet = set[str](), set[str]()
    for name in CASES:
        for case in yaml.safe_load((RULES / name).read_text())["tests"]:
            for look in case["alert_rule_test"]:
                (fires if look["exp_alerts"] else quiet).add(look["alertname"])
    names = {rule["alert"] for rule in alerts()}
    assert not names - fires, "without a case in which they fire"
    assert not names - quiet, "without a case in which they do not"
    assert fires | quiet == names, "cases of alerts that are none"


def test_every_metric_in_a_rule_or_a_dashboard_is_exported_by_one_of_our_processes(tmp_path: Path) -> None:
    tap, admin, control = free_port(), free_port(), free_port()
    (tmp_path / "config.toml").write_text(
        f'state_dir = "{tmp_path}/state"\n[tap]\nlisten = "127.0.0.1:{tap}"\nadmin = "127.0.0.1:{admin}"\n'
        f'[control]\nlisten = "127.0.0.1:{control}"\n'
        '[sandbox]\nenvironment = "travel"\n'
    )
    with contextlib.ExitStack() as stack:
        for command in ("broker", "run", "tap"):
            told = [sys.executable, "-m", "daemon.cli", command, "--config", tmp_path / "config.toml"]
            stack.enter_context(Process(told, tmp_path / f"{command}.log", cwd=ROOT))
        exported = scraped(control) + scraped(admin)
    # The learner's are named as they are in its source; it would need a GPU's worth of settings to start.
    exported += (ROOT / "learner" / "metrics.py").read_text()
    files = [RULES / "recording.yml", RULES / "alerts.yml", *DASHBOARDS.glob("*.json")]
    named = {name for file in files for name in _METRIC.findall(file.read_text())}
    bare = {name.removesuffix(next((end for end in _SUFFIXES if name.endswith(end)), "")) for name in named}
    assert not [name for name in sorted(bare) if name not in exported]
    assert len(bare) > 40


def test_every_alert_has_a_severity_and_a_section_in_the_runbook() -> None:
    sections = re.findall(r"^### (Evolved\w+)$", (ROOT / "docs" / "operate.md").read_text(), re.M)
    assert [rule["alert"] for rule in alerts()] == sections
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["runbook"] == f"docs/operate.md#{rule['alert'].lower()}"
