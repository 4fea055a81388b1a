"""Fuzzes one target, in a process of its own: `one TARGET [what libFuzzer is told]`. libFuzzer ends the process."""

import sys

import atheris  # pyright: ignore[reportMissingImports]

with atheris.instrument_imports(include=["actors", "adapters", "daemon"]):
    from tests.fuzz.targets import TARGETS

atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
atheris.Fuzz()
