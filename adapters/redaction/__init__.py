"""Takes secrets and personal data out of traffic before any of it touches a disk.

A leaf: it knows the messages and nothing else of ours. Tap, mirror, OTLP and import all call `Redactor`.
"""

from adapters.redaction.redactor import Redactor
from adapters.redaction.settings import InvalidRedaction, PatternSettings, RedactionSettings

__all__ = ["InvalidRedaction", "PatternSettings", "RedactionSettings", "Redactor"]
