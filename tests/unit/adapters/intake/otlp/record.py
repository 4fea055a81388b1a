"""Makes the recordings beside it: what real instrumentations export of an agent's run, byte for byte.

Needs an environment of its own, which no test needs:

    pip install "opentelemetry-instrumentation-openai-v2==2.4b0" "opentelemetry-util-genai<1" \
        "openinference-instrumentation-openai==0.1.66" "openai==3.52.0" \
        opentelemetry-sdk opentelemetry-exporter-otlp-proto-http httpx
    python record.py DIRECTORY

A small server plays both the model and the collector. The agent asks "2+2?", calls a tool twice in one go, answers, and
streams a second answer; then it asks once on another endpoint. One file an export: MODE-traces-N.bin.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODES = {
    "span": {
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    },
    "silent": {},
    "openinference": {},
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


class Server(BaseHTTPRequestHandler):
    """The model and the collector."""

    out: Path
    mode: str
    taken: dict[str, int]

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        kind = self.path.rpartition("/")[2]
        if kind == "traces":
            number = self.taken[kind] = self.taken.get(kind, 0) + 1
            (self.out / f"{self.mode}-{kind}-{number}.bin").write_bytes(body)
            self.answer(b"", "application/x-protobuf")
        elif kind == "responses":
            self.answer(json.dumps(response_object()).encode(), "application/json")
        else:
            asked = json.loads(body)
            number = self.taken["calls"] = self.taken.get("calls", 0) + 1
            if asked.get("stream"):
                self.answer(stream(number), "text/event-stream")
            else:
                self.answer(json.dumps(completion(number, asked)).encode(), "application/json")

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def completion(number: int, asked: dict) -> dict:
    message: dict = {"role": "assistant", "content": "4 and 6"}
    if asked["messages"][-1]["role"] == "user":
        calls = [("call_a", {"a": 2, "b": 2}), ("call_b", {"a": 3, "b": 3})]
        message = {"role": "assistant", "content": None, "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "add", "arguments": json.dumps(arguments)}}
            for name, arguments in calls
        ]}  # fmt: skip
    reason = "tool_calls" if message["content"] is None else "stop"
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": "desk-1",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }  # fmt: skip


def stream(number: int) -> bytes:
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "desk-1"}
    pieces: list[dict] = [{"role": "assistant", "content": "al"}, {"content": "l done"}]
    choices = [{"index": 0, "delta": piece, "finish_reason": None} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    events = [json.dumps({**base, "choices": [choice]}) for choice in choices]
    return b"".join(f"data: {event}\n\n".encode() for event in [*events, "[DONE]"])


def response_object() -> dict:
    said = {"type": "output_text", "text": "hello", "annotations": []}
    return {
        "id": "resp-1", "object": "response", "created_at": 1, "model": "desk-1", "status": "completed",
        "output": [{"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [said]}],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for mode, variables in MODES.items():
        handler = type("Recording", (Server,), {"out": out, "mode": mode, "taken": {}})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        environment = {
            **os.environ, **variables, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": "an-agent",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none",
        }  # fmt: skip
        subprocess.run([sys.executable, __file__, "--agent", mode], env=environment, check=True)
        server.shutdown()


def agent(mode: str) -> None:
    from openai import OpenAI
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    traces = TracerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(traces)
    if mode == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    OpenAIInstrumentor().instrument(tracer_provider=traces)
    client = OpenAI()
    said: list = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2 and 3+3?"}]
    with trace.get_tracer("agent").start_as_current_span("agent.run", attributes={"session.id": "session-7"}):
        while True:
            answer = client.chat.completions.create(model="desk", messages=said, tools=[ADD], temperature=0.5)
            message = answer.choices[0].message
            said.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = str(arguments["a"] + arguments["b"])
                said.append({"role": "tool", "tool_call_id": call.id, "content": result})
        said.append({"role": "user", "content": "thanks"})
        for _ in client.chat.completions.create(model="desk", messages=said, tools=[ADD], stream=True):
            pass
    client.responses.create(model="desk", input="hi")
    traces.force_flush()
    traces.shutdown()


if __name__ == "__main__":
    if sys.argv[1] == "--agent":
        agent(sys.argv[2])
    else:
        main(Path(sys.argv[1]))
