"""Examples for the help of commands that have no page of help of their own, and descriptions where help says it all."""

import argparse
from collections.abc import Iterator

EXAMPLES = {
    "tap": """\
  evolved tap --config config.toml
  evolved tap --set engines.url=http://127.0.0.1:8000 --set tap.listen=127.0.0.1:8080
  kill -HUP PID                              read the settings again; nobody loses a request""",
    "run": """\
  evolved run --config config.toml
  evolved run --config config.toml --set control.listen=127.0.0.1:8091
  kill -HUP PID                              read the settings again; `evolved status` says what waits for a restart""",
    "broker": """\
  evolved broker --config config.toml        where [nats] names no NATS of your own""",
    "learner": """\
  evolved learner --config config.toml
  evolved learner --set model.path=/srv/models/qwen""",
    "engine": """\
  evolved engine --vllm /srv/models/qwen --port 8000
  evolved engine --model DIR --dev-mode      a small model, on the CPU, for trying things out""",
    "demo": """\
  evolved demo
  evolved demo --drift --seed 3 --json figures.json
  evolved demo --world service --traffic-only --feedback 0.2 --delay 60    few outcomes, a minute late, no sandbox""",
    "status": """\
  evolved status""",
    "freeze": """\
  evolved freeze --reason "incident 4711"    agents are served as before""",
    "thaw": """\
  evolved thaw --reason "4711 is closed\"""",
    "config": """\
  evolved config --config config.toml        check it, and see what is in force
  evolved config > config.toml               every setting with its default""",
}


def teach(top: argparse.ArgumentParser) -> None:
    """Give every subcommand of `top` a description, and those of `EXAMPLES` theirs."""
    for path, command, text in subcommands(top):
        command.description = command.description or text
        if len(path) == 1 and path[0] in EXAMPLES:
            command.epilog = f"examples:\n{EXAMPLES[path[0]]}"
            command.formatter_class = argparse.RawDescriptionHelpFormatter


def subcommands(
    top: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser, str]]:
    """Every subcommand below `top`: its words, its parser, its line of help."""
    for action in top._actions:  # pyright: ignore[reportPrivateUsage] - argparse has no other way to them
        if not isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            continue
        told = {one.dest: one.help or "" for one in action._choices_actions}  # pyright: ignore
        for name, command in action.choices.items():  # pyright: ignore
            yield (*path, str(name)), command, told.get(str(name), "")  # pyright: ignore
            yield from subcommands(command, (*path, str(name)))  # pyright: ignore
