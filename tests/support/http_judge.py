"""A judge behind real HTTP: a scripted endpoint in a process of its own, and the client that asks it.

    python -m tests.support.http_judge PORT MILLISECONDS FAULTY

`FAULTY` of a hundred bodies get nonsense, a label too few, or ABSTAIN throughout, in turn; always the same ones.
"""

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx

from actors.messages import Attribution, StepLabel, Trajectory
from actors.ports.errors import JudgeUnavailable
from tests.benchmarks.report import await_port

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
PRICE = 2e-6
"""Money a token."""


class HttpJudge:
    """Posts what a judge would see; one connection a question under way, kept alive."""

    name, rubric = "http", "1"

    def __init__(self, port: int) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30.0,
            limits=httpx.Limits(max_connections=128, max_keepalive_connections=128),
        )  # fmt: skip

    async def __aenter__(self) -> "HttpJudge":
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def label(self, trajectory: Trajectory) -> Attribution:
        steps = [
            {"call": [f"{call.name}({call.arguments})" for call in step.tool_calls], "seen": step.observation}
            for step in trajectory.steps
        ]
        try:
            answer = await self._client.post(
                "/judge", json={"goal": trajectory.goal, "steps": steps, "outcome": trajectory.outcome}
            )
        except httpx.TransportError as error:
            raise JudgeUnavailable(str(error)) from error
        if answer.status_code >= 500:
            raise JudgeUnavailable(f"{answer.status_code}")
        found = answer.json()
        return Attribution(
            labels=tuple(StepLabel(label) for label in found["labels"]), judge=self.name, rubric=self.rubric,
            tokens=found["tokens"], cost=PRICE * found["tokens"],
        )  # fmt: skip


@contextlib.contextmanager
def endpoint(port: int, *, milliseconds: float = 50.0, faulty: float = 0.0) -> Iterator[None]:
    """The endpoint, as long as the block lasts."""
    module = [sys.executable, "-m", "tests.support.http_judge"]
    process = subprocess.Popen([*module, str(port), str(milliseconds), str(faulty)])
    try:
        await_port(port)
        yield
    finally:
        process.terminate()
        process.wait()


async def _serve(port: int, seconds: float, faulty: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                due = asyncio.get_running_loop().time() + seconds
                answer = _answer(body, faulty)
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                writer.write(_ANSWER % (len(answer), answer))
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port, limit=1 << 22)
    async with server:
        await server.serve_forever()


def _answer(body: bytes, faulty: float) -> bytes:
    steps = len(json.loads(body)["steps"])
    number = int.from_bytes(hashlib.sha256(body).digest()[:4], "big")
    labels = ["GOOD"] * steps
    if number % 10_000 < 100 * faulty:
        fault = number % 3
        if fault == 0:
            return b"Certainly! Here are the labels you asked for"
        labels = labels[1:] if fault == 1 else ["ABSTAIN"] * steps
    return json.dumps({"labels": labels, "tokens": 200 + len(body) // 4}).encode()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 1000, float(sys.argv[3])))
