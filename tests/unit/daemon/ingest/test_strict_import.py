"""Imports where no free text is kept."""

from pathlib import Path

from actors.messages import Exchange, Feedback, Step, Trajectory, decode
from adapters.intake.jsonl import to_line
from adapters.redaction import RedactionSettings, Redactor
from daemon.ingest.transfer import Options, Reader
from tests.support.traffic import exchange, feedback


def test_exchanges_and_feedback_come_in_without_their_words_and_runs_do_not(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    redactor = Redactor(RedactionSettings(strict=True, key_file=str(key)))
    told_bad: list[str] = []
    reader = Reader(Options(), redactor, told_bad.append)
    run = Trajectory(id="1" * 32, started=1.0, ended=2.0, steps=(Step(exchange_id="2" * 32, text="Pinkelephant"),))
    call, told = exchange("run", 0, response_id="answer 1"), feedback("run", 0)
    lines = [to_line(call), to_line(told), to_line(run)]
    sent = [one for number, line in enumerate(lines, 1) for one in reader.read(number, line)]
    records = [decode(one.data) for one in sent]
    assert [type(one) for one in records] == [Exchange, Feedback]
    assert isinstance(records[0], Exchange)
    assert records[0].response_id not in ("", call.response_id)
    assert reader.summary.bad == 1
    assert "import its exchanges and feedback" in told_bad[0]
