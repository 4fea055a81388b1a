"""What we and a worker say to each other: msgpack in frames with a length, over Unix sockets. Never pickle.

On a worker's control socket: `Build` first, then `Sample`, `Describe`, `ListTools`, each with one `Reply`, and `Open`,
which has none there: the socket that comes along with it is the new episode's. On an episode's socket its process says
`Born`, then a `Reply` with the `Opening`; then each of `Step`, `Evaluate`, `State` has a `Reply`, and the answer to
`Close` is the socket's end.
"""

import socket
import struct
from typing import Any, Literal

import msgspec

from actors.messages import Task, ToolCall
from actors.ports.environments import Split

HEADER = struct.Struct(">I")
"""Length of the body, in bytes."""
_CHUNK = 1 << 16


class Build(msgspec.Struct, frozen=True, tag=True):
    """Make the environment."""

    target: str
    """`module:attribute`, something that gives an environment when called with `options`."""
    options: dict[str, Any]
    max_bytes: int
    """The longest body that either side takes."""
    idle_seconds: float
    """An episode's process ends by itself when it has heard nothing for so long."""


class Sample(msgspec.Struct, frozen=True, tag=True):
    """`Environment.sample`."""

    seed: int
    split: Split
    families: str | None


class Describe(msgspec.Struct, frozen=True, tag=True):
    """`Environment.profile`."""


class ListTools(msgspec.Struct, frozen=True, tag=True):
    """`Environment.tools`."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """`Environment.reset`, in a process of its own."""

    task: Task


class Step(msgspec.Struct, frozen=True, tag=True):
    """`Episode.step`."""

    calls: tuple[ToolCall, ...]
    text: str


class Evaluate(msgspec.Struct, frozen=True, tag=True):
    """`Episode.evaluate`."""


class State(msgspec.Struct, frozen=True, tag=True):
    """`Stateful.state`."""


class Close(msgspec.Struct, frozen=True, tag=True):
    """`Episode.aclose`; the process ends."""


Control = Build | Sample | Describe | ListTools | Open
Call = Step | Evaluate | State | Close


class Born(msgspec.Struct, frozen=True):
    """The first word of an episode's process: whom to kill if it hangs."""

    pid: int


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or why there is none."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")  # msgpack's nil
    problem: Literal["", "failed", "value", "large"] = ""
    """failed: the environment broke down; value: a ValueError of its own; large: the answer is over `max_bytes`."""
    message: str = ""


def frame(body: bytes) -> bytes:
    """`body` with its length before it."""
    return HEADER.pack(len(body)) + body


def encode(value: Any) -> bytes:
    """`value` as the body of a frame.

    Raises:
        TypeError: something in it is no JSON-able type.
    """
    return msgspec.msgpack.encode(value)


def length(header: bytes, max_bytes: int) -> int:
    """The length that a header tells.

    Raises:
        ValueError: it is over `max_bytes`.
    """
    (found,) = HEADER.unpack(header)
    if found > max_bytes:
        raise ValueError(f"{found} bytes are announced, max_bytes is {max_bytes}")
    return found


def receive(channel: socket.socket, max_bytes: int) -> tuple[bytes, list[int]]:
    """The next frame's body and the descriptors that came along, blocking.

    Raises:
        EOFError: the other side is gone.
        TimeoutError: the socket's own deadline.
        ValueError: the frame is over `max_bytes`.
    """
    header, descriptors = b"", list[int]()
    while len(header) < HEADER.size:
        data, came, _, _ = socket.recv_fds(channel, HEADER.size - len(header), 1)
        if not data:
            raise EOFError
        header, descriptors = header + data, [*descriptors, *came]
    left, parts = length(header, max_bytes), list[bytes]()
    while left:
        data = channel.recv(min(left, _CHUNK))
        if not data:
            raise EOFError
        parts.append(data)
        left -= len(data)
    return b"".join(parts), descriptors
