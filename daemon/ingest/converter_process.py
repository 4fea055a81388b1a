"""The converter's child: answers each `Load` with a `Batch`, until its link ends. See `daemon.ingest.converter`."""

import os
import signal
import socket
import sys

import msgspec

from daemon.ingest.conversion import Conversion, Load
from daemon.ingest.converter import HEAD, Failure, Made, receive
from daemon.logs import configure


def serve(link: socket.socket) -> None:
    conversion = Conversion()
    decode = msgspec.msgpack.Decoder(Load).decode
    encode = msgspec.msgpack.Encoder().encode
    # Imported and ready: an end before this was not over a record.
    _send(link, b"")
    while (body := _receive(link)) is not None:
        try:
            answer: Made | Failure = Made(conversion.make(decode(body)))
        except OSError as error:
            answer = Failure(f"{type(error).__name__}: {error}")
        _send(link, encode(answer))


def _receive(link: socket.socket) -> bytes | None:
    head = receive(link, HEAD.size)
    return None if head is None else receive(link, HEAD.unpack(head)[0])


def _send(link: socket.socket, body: bytes) -> None:
    link.sendall(HEAD.pack(len(body)))
    link.sendall(body)


def main() -> None:
    """`python -m daemon.ingest.converter_process FD`, started by the daemon."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    configure()
    with socket.socket(fileno=int(sys.argv[1])) as link:
        try:
            serve(link)
        except ConnectionError:
            # The daemon is gone; what it had not published is still in the spool.
            return


if __name__ == "__main__":
    main()
