"""`evolved plan`: what a model takes to learn from so much traffic, before anything is rented or started."""

import argparse
from pathlib import Path
from typing import Any

from daemon.cli.options import json_option

PLAN_HELP = """\
What it takes to learn with a model from so much traffic: memory, seconds and bytes of an update, updates a day, how
old a run is when it is learned from, and what judge and shadow engine are asked. Nothing is loaded or started.

Every figure says what it is from: counted (exact, of the shape), formula (with its measured error, where there is
one), measured (on the machine of docs/measured.md), or assumed: then an option of yours replaces the assumption. No GPU
was at hand: what one does is a formula, or assumed.

MODEL is a Qwen2.5 by its size, or the directory of a checkpoint: its config.json is enough. The settings are those of
--config, or the defaults; several GPUs mean the verl trainer. Where an update does not fit as set, but would with other
settings of the learner, these are named and the figures count with them.

examples:
  evolved plan --model 7b --gpus 8 --runs-per-hour 2000
  evolved plan --model 1.5b --gpus 1 --gpu H100 --tokens 4000 --reported 0.2 --delay 5
  evolved plan --model /srv/models/qwen --gpus 8 --config ops/a100/7b.toml
  evolved plan --model warmstart --gpus 0 --machine-memory 24      a small model, on the CPU
  evolved plan --model 14b --gpus 8 --json | jq '.figures[] | {key, value, unit, basis}'

Exit status: 0 it fits, 1 no setting makes it fit (the remedies say what would), 2 no such model.
"""


def add_plan(add: Any) -> None:
    """Declare it, by the command line's `add`."""
    command = add("plan", run_plan, "What a model takes to learn from your traffic: memory, time, bytes, tokens.")
    command.description, command.formatter_class = PLAN_HELP, argparse.RawDescriptionHelpFormatter
    command.add_argument("--model", required=True, metavar="MODEL", help="0.5b, 1.5b, 3b, 7b, 14b, or a directory")
    command.add_argument("--gpus", type=_count, default=8, help="of the learner, one node; 0 for the CPU (8)")
    command.add_argument("--gpu", default="A100", help="their name, for what they can do at most (A100)")
    command.add_argument("--gpu-memory", type=_positive, default=80.0, metavar="GB", help="of one, in 1e9 bytes (80)")
    command.add_argument(
        "--machine-memory", type=_positive, metavar="GB", help="of the machine (with --gpus 0: this one's)"
    )
    command.add_argument(
        "--utilisation",
        type=_share,
        default=0.3,
        metavar="SHARE",
        help="of what the GPUs can do at most (0.3, assumed)",
    )
    command.add_argument("--cores", type=_positive_count, default=1, help="with --gpus 0: that compute (1)")
    command.add_argument("--runs-per-hour", type=_positive, default=600.0, metavar="N", help="of your agents (600)")
    command.add_argument(
        "--tokens", type=_positive_count, default=8000, help="of a run, its prompt included (8000, assumed)"
    )
    command.add_argument(
        "--said", type=_share, default=0.3, metavar="SHARE", help="of them that the model said (0.3, assumed)"
    )
    command.add_argument("--steps", type=_positive_count, default=8, help="of a run (8, assumed)")
    command.add_argument(
        "--reported",
        type=_share,
        default=0.05,
        metavar="SHARE",
        help="of the runs whose outcome is told (0.05, assumed)",
    )
    command.add_argument(
        "--delay", type=_positive, default=60.0, metavar="MINUTES", help="until an outcome is told (60, assumed)"
    )
    command.add_argument(
        "--disk", type=_positive, default=1.0, metavar="GB", help="written in a second, in 1e9 bytes (1, assumed)"
    )
    json_option(command)


def run_plan(arguments: argparse.Namespace) -> int:
    """Exit status 0, or 1 if it does not fit."""
    import msgspec

    from daemon.cli.output import print_json
    from daemon.cli.planning import Given, plan
    from daemon.errors import ConfigError
    from daemon.settings.reading import load
    from learner.errors import ShapeUnknown
    from learner.fit import GIGA, machine_memory
    from learner.sizing import MODELS, PEAKS, peak_flops, read_shape

    name = arguments.model
    shape = MODELS.get(name.lower())
    if shape is None:
        if not Path(name).is_dir():
            raise ShapeUnknown(f"--model {name}: neither one of {', '.join(MODELS)} nor a directory with a config.json")
        shape = read_shape(Path(name))
    if arguments.gpus and peak_flops(arguments.gpu) is None:
        raise ConfigError(f"--gpu {arguments.gpu}: unknown; known are {', '.join(known for known, _ in PEAKS)}")
    machine = arguments.machine_memory or (0.0 if arguments.gpus else machine_memory() / GIGA)
    given = Given(
        gpus=arguments.gpus, gpu=arguments.gpu, gpu_gb=arguments.gpu_memory, machine_gb=machine,
        utilisation=arguments.utilisation, cores=arguments.cores, runs_per_hour=arguments.runs_per_hour,
        tokens=arguments.tokens, said=arguments.said, steps=arguments.steps, reported=arguments.reported,
        delay_minutes=arguments.delay, disk_gb=arguments.disk,
    )  # fmt: skip
    found = plan(name, shape, given, load(arguments.config, arguments.set))
    if arguments.json:
        print_json(msgspec.to_builtins(found))
    else:
        show(found)
    return 0 if found.fits else 1


def show(found: Any) -> None:
    """Print a `Plan` as tables."""
    from daemon.cli.output import OutputTable, screen

    console = screen()
    given = found.given
    where = f"{given.gpus} x {given.gpu} of {given.gpu_gb:g} GB" if given.gpus else f"{given.cores} cores, no GPU"
    console.print(
        f"{found.model}: {found.parameters / 1e9:.3g} billion parameters, on {where}, "
        f"{given.runs_per_hour:g} runs an hour"
    )
    table = OutputTable("", "figure", "from", "how", title="an update", title_justify="left")
    for one in found.figures:
        table.add_row(one.what, f"{number(one.value)} {one.unit}".strip(), one.basis, one.told)
    console.print(table)
    table = OutputTable("memory at the peak", "GB", title_justify="left")
    for what, size in sorted(found.memory.items(), key=lambda part: -part[1]):
        if size:
            table.add_row(what, f"{size / 1e9:.2f}")
    console.print(table)
    for remedy in found.remedies:
        console.print(f"it does not fit as set; what helps: {remedy}")


def number(value: float) -> str:
    """For people: three digits, and thousands apart."""
    if value >= 1e6:
        return f"{value / 1e6:,.1f} million"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return value


def _positive_count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number above 0, at most 1")
    return value
