"""What can go wrong with an export.

OtlpError
├── InvalidExport      the body is no export of its kind; sending it again would not help
└── UnsupportedMedia   an encoding of the body that is not spoken here
"""

from actors.ports.errors import AdapterError


class OtlpError(AdapterError):
    """Root of this package's errors."""


class InvalidExport(OtlpError):
    """Names what is wrong with the body."""


class UnsupportedMedia(OtlpError):
    """Names the content type or encoding, and those that are spoken."""
