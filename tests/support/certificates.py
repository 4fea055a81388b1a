"""A certificate for localhost that signs itself, made with openssl."""

import subprocess
from pathlib import Path

import msgspec


class Certificate(msgspec.Struct, frozen=True):
    """Two PEM files."""

    chain: Path
    key: Path


def self_signed(directory: Path) -> Certificate:
    """A fresh one in `directory`, good for a day."""
    made = Certificate(directory / "chain.pem", directory / "key.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(made.key), "-out", str(made.chain)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return made
