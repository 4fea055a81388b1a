"""What is kept of a record that cannot be read: all but its words, also where no words are kept at all."""

import signal
import socket
from pathlib import Path

import pytest

from actors.messages import Exchange, Feedback, Hints, decode
from adapters.redaction import RedactionSettings, Redactor
from daemon.tap import recorder_process
from daemon.tap.recorder_process import RecorderProcess
from daemon.tap.recorder_wire import Copied, encode_copied

PLANT = "sesame-4711"


@pytest.fixture(autouse=True)
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "setitimer", lambda *seconds: None)


@pytest.mark.promise
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_nothing_of_the_words_is_kept_of_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool, streamed: bool
) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    read = recorder_process.read_call

    def fails(raw: Exchange, redactor: Redactor | None, *, encoding: str) -> Exchange:
        if raw.request or raw.response:
            raise ValueError(PLANT)
        return read(raw, redactor, encoding=encoding)

    def failing(self: Redactor, told: Feedback) -> Feedback:
        if told.text:
            raise ValueError(PLANT)
        return feedback(self, told)

    feedback = Redactor.feedback
    monkeypatch.setattr(recorder_process, "read_call", fails)
    monkeypatch.setattr(Redactor, "feedback", failing)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RecorderProcess(ours)
        process._redactor = Redactor(RedactionSettings(strict=strict, key_file=str(key)))
        said = PLANT.encode()
        raw = Exchange(
            id="00" * 16, endpoint="/v1/chat/completions", request=said, response=said, status=200, started=1.0,
            duration=1.0, streamed=streamed,
        )  # fmt: skip
        told = Feedback(id="11" * 16, received=1.0, response_id="r", outcome=0.0, text=PLANT)
        kept = [process._finished(encode_copied(Copied(one))).payload for one in (raw, told)]
    assert not any(said in data for data in kept)
    call, report = map(decode, kept)
    assert isinstance(call, Exchange)
    assert isinstance(report, Feedback)
    assert (call.error, call.complete, call.finds) == ("a bug in reading it: ValueError", False, {"unreadable": 1})
    assert (report.outcome, report.text) == (0.0, "[REDACTED:unreadable]")
    assert process.counts["unreadable_chat"] == 1


def test_a_tenant_that_names_an_agent_anew_for_each_call_has_no_more_than_a_thousand_agents() -> None:
    def named(tenant: str, agent: str) -> str:
        call = Exchange(
            id="00" * 16, tenant=tenant, endpoint="/v1/chat/completions", request=b"{}", response=b"{}", status=200,
            started=1.0, duration=1.0, hints=Hints(agent=agent),
        )  # fmt: skip
        found = decode(process._finished(encode_copied(Copied(call))).payload)
        assert isinstance(found, Exchange)
        return found.hints.agent

    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = RecorderProcess(ours)
        assert [named("acme", f"a{number}") for number in range(1001)][-2:] == ["a999", ""]
        assert (named("acme", "a7"), named("other", "a1000"), named("acme", "")) == ("a7", "a1000", "")
        assert process.counts["unnamed"] == 1
