"""What a command line names, held against what there is: options of `evolved`, targets of make, modules, files.

This is how commands are checked that no test can carry out (a GPU, root, hours), and those that prose names.
"""

import argparse
import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from adapters.engines.embedded.command import parser as embedded_parser
from adapters.engines.vllm_server import parser as vllm_parser
from daemon.cli.main import parser
from tests.docs.blocks import ROOT

_OPERATORS = {"&&", "||", ";", "|", "&", "(", ")", ";;"}
_BEFORE = {"sudo", "nohup", "exec", "time", "env"}
_OURS = re.compile(r"^(?:\./)?((?:adapters|actors|daemon|learner|ops|docs|locks|tests)/[\w./-]+)$")


def simple_commands(script: str) -> Iterator[list[str]]:
    """The simple commands of a shell script, words with their quotes off, redirections and assignments left out."""
    joined = re.sub(r"\\\n\s*", " ", script)
    joined = re.sub(r"(?ms)<<'?(\w+)'?.*?^\1$", "", joined)
    for line in joined.splitlines():
        lexer = shlex.shlex(re.sub(r"\s\d?>>?\s*(&\d|[^\s&]+)", "", line), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word not in _OPERATORS:
                words.append(word)
            elif words:
                yield _without_prefix(words)
                words = []


def _without_prefix(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and (words[at] in _BEFORE or re.match(r"^\w+=", words[at])):
        at += 1
    return words[at:]


def faults(words: Sequence[str]) -> list[str]:
    """What is wrong with one simple command; empty if nothing can be said against it."""
    if not words:
        return []
    program, rest = words[0].rpartition("/")[2], list(words[1:])
    found: list[str] = []
    if program == "evolved":
        found += _refused(rest)
    elif program == "make":
        targets = [word for word in rest if "=" not in word and not word.startswith("-")]
        found += [f"no target {name} in the Makefile" for name in targets if name not in make_targets()]
    elif program.startswith(("python", "torchrun")) and "-m" in rest:
        module = rest[rest.index("-m") + 1]
        if module.startswith(("tests.", "daemon.", "learner.", "adapters.")):
            found += [] if importlib.util.find_spec(module) else [f"no module {module}"]
        if module == "daemon.cli":
            found += _refused(rest[rest.index("-m") + 2 :])
    named = [match[1] for word in rest if (match := _OURS.match(word))]
    return found + [f"no file {name}" for name in named if not (ROOT / name).exists()]


def mentioned_faults(text: str) -> list[str]:
    """What is wrong with a command that prose names, which may leave arguments out or put options in brackets."""
    words = text.replace("[", " ").replace("]", " ").replace("|", " ").split()
    found = _parser()
    path = "evolved"
    for word in words[1:]:
        known = _subparsers(found)
        if word.startswith("--"):
            option = word.partition("=")[0]
            if option not in found._option_string_actions:  # pyright: ignore[reportPrivateUsage]
                return [f"{path} has no {option}"]
        elif known and re.fullmatch(r"[a-z][a-z-]*", word):
            if word not in known:
                return [f"{path} has no {word}"]
            found, path = known[word], f"{path} {word}"
            if not found._option_string_actions:  # pyright: ignore[reportPrivateUsage]
                return []  # `evolved engine` has a parser of its own
    return []


def _subparsers(found: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in found._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            return dict(action.choices)
    return {}


def _refused(words: list[str]) -> list[str]:
    """What the parser says of `evolved WORDS`."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if words[:1] != ["engine"]:
                _parser().parse_args(words)
            elif any(word.partition("=")[0] == "--vllm" for word in words):
                vllm_parser().parse_known_args(words[1:])
            else:
                embedded_parser().parse_args(words[1:])
    except SystemExit as end:
        return [said.getvalue().strip().splitlines()[-1]] if end.code else []
    return []


@cache
def _parser() -> argparse.ArgumentParser:
    return parser()


@cache
def make_targets() -> set[str]:
    """What `make` makes: its rules, and `test-NAME` for each suite."""
    listed = subprocess.run(
        [sys.executable, ROOT / ".ci" / "suites.py", "list"], capture_output=True, text=True, check=True
    )
    rules = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M)
    return {*rules, *(f"test-{suite}" for suite in listed.stdout.split())}
