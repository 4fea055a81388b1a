"""What can go wrong in redaction: only its settings. No traffic makes it raise.

RedactionError
└── InvalidRedaction
"""


class RedactionError(Exception):
    """Root of this package's errors."""


class InvalidRedaction(RedactionError):
    """A setting that cannot be used; the text names it and says what to write instead."""
