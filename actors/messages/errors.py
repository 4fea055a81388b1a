"""What can go wrong with a message.

MessageError
├── MalformedMessage     bytes that are no message of ours, or one with a field out of its type
└── UnsupportedSchema    a message of a newer schema than this process understands
"""


class MessageError(Exception):
    """Root of this package's errors."""


class MalformedMessage(MessageError):
    """The bytes cannot be decoded; the text names the message type and the field at fault."""


class UnsupportedSchema(MessageError):
    """The message was written by a newer version of evolved."""
