"""AppWorld's own environment server, a process for each attempt; runs in its interpreter, imports nothing of ours.

    python -I server.py HOME        requests on stdin, answers on stdout, one JSON object a line

This process imports AppWorld once, which takes seconds, and forks for each attempt: the child serves
`appworld.serve.environment.app` with uvicorn on a Unix socket in a directory that only this user can enter. `appworld
serve` listens on every interface, with CORS for everybody, and runs any code that it is sent. AppWorld has one world a
process and freezes time in it, so a child plays one attempt and ends. Children end with us, and we with our stdin.
"""

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_BACKLOG = 16
_MOST_FILE_BYTES = 1 << 30


class Refused(Exception):
    """A request that cannot be served."""


def main(argv: list[str]) -> int:
    home = Path(argv[0])
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what AppWorld might print must not get between the answers
    template = Template(home, int(os.environ["APPWORLD_SERVER_MEMORY"]), answers.fileno())
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            answer: dict[str, Any] = {"id": request["id"]}
            try:
                answer["value"] = template.serve(request)
            except Refused as error:
                answer["refused"] = str(error)
            except Exception as error:
                answer["failed"] = f"{type(error).__name__}: {error}"[:2000]
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        template.close()
    return 0


class Template:
    """Has AppWorld imported, and forks."""

    def __init__(self, home: Path, memory: int, answers: int) -> None:
        self._home, self._memory, self._answers = home, memory, answers
        self._children: dict[int, Path] = {}
        self._last = 0
        self._app: Any = None

    def serve(self, request: dict[str, Any]) -> Any:
        """Answer one request.

        Raises:
            Refused: there is no such operation.
        """
        operation = request["op"]
        if operation == "load":
            self._app = load()
            return {"pid": os.getpid()}
        if operation == "fork":
            return self._fork(request["data"])
        if operation == "end":
            return self._end(request["pid"])
        raise Refused(f"there is no operation {operation!r}")

    def close(self) -> None:
        for pid in list(self._children):
            self._end(pid)
        shutil.rmtree(self._home, ignore_errors=True)

    def _fork(self, data: str) -> dict[str, Any]:
        """A child with a directory of its own, where AppWorld may write; its socket takes connections from now on."""
        self._last += 1
        root = self._home / str(self._last)
        root.mkdir(mode=0o700)
        (root / "data").symlink_to(data)
        listening = socket.socket(socket.AF_UNIX)
        with contextlib.closing(listening):
            listening.bind(str(root / "s"))
            listening.listen(_BACKLOG)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._play(parent, root, listening)
        self._children[pid] = root
        return {"pid": pid, "socket": str(root / "s")}

    def _play(self, parent: int, root: Path, listening: socket.socket) -> NoReturn:
        """The child's whole life."""
        status = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1):  # the pipes to the daemon are our template's alone
                os.dup2(nothing, descriptor)
            os.close(self._answers)
            resource.setrlimit(resource.RLIMIT_AS, (self._memory, self._memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
            os.environ["APPWORLD_ROOT"] = str(root)
            os.chdir(root)
            uvicorn = importlib.import_module("uvicorn")
            config = uvicorn.Config(self._app, log_config=None, access_log=False, lifespan="off", loop="asyncio")
            uvicorn.Server(config).run(sockets=[listening])
            status = 0
        except BaseException as error:
            print(f"appworld server: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _end(self, pid: int) -> bool:
        root = self._children.pop(pid, None)
        if root is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        shutil.rmtree(root, ignore_errors=True)
        return True


def load() -> Any:
    """AppWorld's app with a route for the state, and all apps imported."""
    served = importlib.import_module("appworld.serve.environment")
    apps = importlib.import_module("appworld.apps")
    names = tuple(sorted(apps.get_all_apps()))
    # Cached by AppWorld, for all children.
    apps.build_main_app(names)
    served.app.add_api_route("/state", lambda: {"output": state(served.world)}, methods=["GET"])
    return served.app


def state(world: Any) -> dict[str, dict[str, str]]:
    library = importlib.import_module("appworld.apps.model_lib")
    found: dict[str, dict[str, str]] = {}
    for path, (engine, _) in sorted(library.CachedDBHandler.cache.items()):
        if world.output_db_home_path_in_memory not in path:
            continue
        app = path.rpartition("/")[2].partition(".")[0]
        found[app] = {}
        with engine.connect() as connection:
            cursor = connection.connection.cursor()
            tables = cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
            # Search indices follow from the rest, and how they are stored depends on the order of writing.
            indices = tuple(name for name, sql in tables if sql.upper().startswith("CREATE VIRTUAL"))
            for name, _ in tables:
                if name.startswith(("sqlite_", *(f"{index}_" for index in indices))) or name in indices:
                    continue
                rows = sorted(repr(row) for row in cursor.execute(f'SELECT * FROM "{name}"'))  # noqa: S608 - AppWorld's own table
                if rows:
                    found[app][name] = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:32]
            cursor.close()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
