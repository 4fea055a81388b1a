"""`evolved doctor`: what is most likely wrong with an installation, and what to do about it.

    settings -> Scene -> every Check of `ALL`, at the same time, each with its own deadline -> Examined -> table or JSON

A check looks at one thing from outside, as an operator would: files, ports, HTTP, the store read-only. It changes
nothing, and needs neither the daemon nor the broker to run. What it finds has a remedy: the setting or the command.
"""

from daemon.doctor.base import Check, Examined, Finding, NotLooked, Scene, examine
from daemon.doctor.broker import BROKER
from daemon.doctor.engines import ENGINES
from daemon.doctor.files import FILES
from daemon.doctor.learning import LEARNING
from daemon.doctor.network import NETWORK
from daemon.doctor.secrets import SECRETS
from daemon.doctor.settings import readable

ALL: tuple[Check, ...] = (*NETWORK, *ENGINES, *BROKER, *FILES, *SECRETS, *LEARNING)
"""Every check, in the order in which they are told."""

__all__ = ["ALL", "Check", "Examined", "Finding", "NotLooked", "Scene", "examine", "readable"]
