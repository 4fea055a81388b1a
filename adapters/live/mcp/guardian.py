"""Keeps a server's process from outliving us: run as a script, between us and the server.

    python -I -S guardian.py LIFELINE COMMAND...

LIFELINE is the reading end of a pipe whose other end we hold. Whatever ends us, the kernel closes it, and the whole
process group goes. Asking the kernel for a signal at the parent's death would not do: it comes when the thread that
started the child ends (prctl(2)), which here is a worker thread. The server has our end of standard input and output
to itself, so that their ends are seen.
"""

import os
import signal
import sys
import threading

NOT_STARTED = 127
"""Exit status if the command cannot be run, as in a shell."""


def main(lifeline: int, command: list[str]) -> int:
    """Run `command` to its end; its exit status, or 128 and its signal."""
    os.set_inheritable(lifeline, False)
    # A handler, not SIG_IGN: the server gets the default back when it is executed, and ends by SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        child = os.posix_spawnp(command[0], command, os.environ)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_STARTED
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
