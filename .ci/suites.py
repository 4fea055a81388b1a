"""The suites, and what runs them.

    python3 .ci/suites.py ci             all of them, as far as 40 minutes allow; what `.ci/run` does
    python3 .ci/suites.py run NAME ...   these; what `make test` and `make test-NAME` do
    python3 .ci/suites.py list           their names
    python3 .ci/suites.py prove          what the runner says of tests that fail on purpose

Logs: build/ci/NAME/GO/log. Standard library only: it makes the environments.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from runner import ROOT, Runner, Suite

REGISTRY_PAUSE_SECONDS = 30.0
"""Between tries: a registry's bad minute is not the change's fault."""
POSTGRES = (("initdb", "postgresql"),)
NPM = (("npm", "nodejs npm"),)
COMPILER = (("cc", "gcc libc6-dev"),)
SUITES = (
    # A runner that would not say so is not believed: this is the first thing that it shows.
    Suite("runner", 60, tier=1, command=("python3", ".ci/suites.py", "prove"), must_end=True),
    Suite("check", 55, tier=1, command=("make", "check"), must_end=True, retries=False),
    Suite(
        "unit", 190, tier=1, cores=2, must_end=True,
        tests=("tests/unit", "tests/contract", "-n", "3", "--dist", "loadfile"),
        # On busy cores, several threads wait for each other over small matrices six times as long as they compute.
        environment=(("OMP_NUM_THREADS", "1"),),
    ),
    Suite("chaos", 600, tier=1, tests=("tests/chaos",), debian=(*POSTGRES, *COMPILER, ("mkfs.ext4", "e2fsprogs"))),
    # It waits most of the time: three at once, and beside another suite.
    Suite(
        "integration", 90, tier=1, tests=("tests/integration", "-n", "3", "--dist", "loadfile"),
        debian=(("chattr", "e2fsprogs"),),
    ),
    # All other actors ask the same methods of the store: they ran on SQLite.
    Suite(
        "postgres", 60, tier=1, debian=POSTGRES, environment=(("EVOLVED_TEST_DATABASE", "postgresql"),),
        tests=(
            "tests/postgres", "tests/unit/actors/store",
            "tests/unit/daemon/experience", "tests/unit/daemon/upkeep",
        ),
    ),
    Suite(
        "operations", 70, tier=1, tests=("tests/operations",),
        debian=(("mkfs.ext4", "e2fsprogs"), ("fsfreeze", "util-linux")),
    ),
    Suite("hostile", 35, tier=1, tests=("tests/hostile",)),
    Suite(
        "vllm", 460, cores=2, tests=("tests/vllm",), needs=("vllm",),
        watches=("tests/vllm", "adapters/engines", "adapters/weights", "daemon/tap"),
    ),
    Suite(
        "clients", 95, tests=("tests/clients",), needs=("clients",), debian=NPM,
        watches=("tests/clients", "daemon/tap", "actors/trajectories"),
    ),
    Suite(
        "browser", 85, tests=("tests/browser",), python=".venv-browser/bin/python",
        needs=(".venv-browser/ready", "tests/browser/node_modules/ready"), debian=(("chromium", "chromium"), *NPM),
        watches=("tests/browser", "daemon/api", "daemon/dashboard"),
    ),
    Suite(
        "appworld", 105, tests=("tests/appworld",), needs=("appworld",),
        watches=("tests/appworld", "adapters/environments", "adapters/live"),
    ),
    Suite(
        "docs", 85, tests=("tests/docs",), debian=(("curl", "curl"), ("openssl", "openssl"), ("xxd", "xxd")),
        watches=("tests/docs", "docs", "README.md", "config.toml", "daemon/cli"),
    ),
    Suite(
        "fuzz", 100, command=("make", "fuzz", "RUNS=400"), needs=(".venv-fuzz/ready",),
        watches=("tests/fuzz", "daemon/tap", "adapters"),
    ),
    Suite(
        "verl", 65, tests=("tests/verl",), python=".venv-verl/bin/python", needs=(".venv-verl/ready",),
        watches=("tests/verl", "learner"),
    ),
    Suite("bfcl", 40, tests=("tests/bfcl",), needs=("bfcl",), watches=("tests/bfcl", "adapters/environments")),
    Suite(
        "peers", 35, tests=("tests/peers",), watches=("tests/peers", "ops", "daemon/collectors"),
        debian=(("nginx", "nginx-light"), ("systemd-analyze", "systemd"), ("promtool", "prometheus")),
    ),
    Suite(
        "mcp", 25, tests=("tests/mcp",), needs=(".venv-mcp/ready", "tests/mcp/node_modules/ready"),
        debian=(*NPM, ("git", "git")), watches=("tests/mcp", "adapters/live"),
    ),
    Suite(
        "schemathesis", 20, tests=("tests/schemathesis",), needs=(".venv-schemathesis/ready",),
        watches=("tests/schemathesis", "tests/browser", "daemon/api"),
    ),
)  # fmt: skip


def missing(suites: tuple[Suite, ...]) -> dict[str, str]:
    """Commands that they want and this machine lacks, each with its Debian package."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    places += "".join(f":{path}" for path in Path("/usr/lib/postgresql").glob("*/bin"))
    wanted = {command: package for suite in suites for command, package in suite.debian}
    return {command: package for command, package in wanted.items() if not shutil.which(command, path=places)}


def install_packages() -> None:
    """With apt, up to three times. What fails is told by the suite that lacks it."""
    packages = sorted({name for package in missing(SUITES).values() for name in package.split()})
    for number in range(3 if packages else 0):
        time.sleep(REGISTRY_PAUSE_SECONDS if number else 0)
        words = ["apt-get", "install", "-y", "-qq", *packages]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        updated = subprocess.run(["apt-get", "update", "-qq"]).returncode == 0
        if updated and subprocess.run(words, env=environment, stdout=subprocess.DEVNULL).returncode == 0:
            return


def set_up() -> bool:
    """The environment that every suite wants, before two of them make it at once."""
    for number in range(3):
        time.sleep(REGISTRY_PAUSE_SECONDS if number else 0)
        made = subprocess.run(["make", "--no-print-directory", "setup"], cwd=ROOT, stdin=subprocess.DEVNULL)
        if made.returncode == 0:
            return True
    return False


def prove() -> int:
    """Run tests that fail on purpose, and a suite whose set-up cannot be made; 0 if the runner says what it should."""
    with tempfile.TemporaryDirectory() as directory:
        told = (("EVOLVED_PLANTED", directory),)
        suites = (
            Suite(
                "planted", 20, tier=1, tests=(".ci/planted", "-k", "not breaks_a_promise"), environment=told,
                hang_seconds=2.0,
            ),
            Suite("planted-promise", 20, tier=1, tests=(".ci/planted", "-k", "breaks_a_promise"), environment=told),
            Suite("no-set-up", 20, needs=("no-registry-has-this",), pause_seconds=0.1),
        )  # fmt: skip
        runner = Runner(suites, bounded=False, logs=ROOT / "build" / "ci-planted", ledger=None)
        status = runner.run()
    once = ("test_is_late_once", "test_is_late_with_a_promise_once", "test_hangs_in_python_once")
    planted, promise, bare = (runner.records[suite.name] for suite in suites)
    expected = {
        "the exit status": (status, 1),
        "red": ({_name(test): told.kind for test, told in planted.failing.items()},
                {"test_fails_always": "assertion", "test_hangs_in_c": "hang"}),
        "flaky": ({_name(test): told.kind for test, told in planted.flaky.items()},
                  dict.fromkeys(once, "weather")),
        "killed at the end": (any("SIG_IGN" in command for command in planted.left), True),
        "goes of the promise": (promise.goes, 1),
        "the promise": ([told.kind for told in promise.failing.values()], ["promise"]),
        "without a set-up": (bare.verdict, "not run"),
    }  # fmt: skip
    wrong = {what: pair for what, pair in expected.items() if pair[0] != pair[1]}
    for what, (said, should) in wrong.items():
        print(f"the runner is wrong about {what}: it says {said!r}, and should say {should!r}")
    print("the runner is not to be believed" if wrong else "the runner says of each planted fault what it should")
    return int(bool(wrong))


def _name(test: str) -> str:
    return test.rpartition("::")[2]


def main(words: list[str]) -> int:
    """The command line; returns the exit status."""
    names = {suite.name: suite for suite in SUITES}
    match words:
        case ["ci"]:
            install_packages()
            return Runner(SUITES, bounded=True).run() if set_up() else 1
        case ["list"]:
            print(*names)
            return 0
        case ["prove"]:
            return prove() if set_up() else 1
        case ["run", *wanted] if wanted and names.keys() >= set(wanted):
            suites = tuple(names[name] for name in wanted)
            if lacking := missing(suites):
                print(f"needed: {', '.join(lacking)} (Debian: apt install {' '.join(sorted(set(lacking.values())))})")
                return 2
            return Runner(suites, bounded=False).run() if set_up() else 1
    print(f"{__doc__}\nSuites: {', '.join(names)}")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
