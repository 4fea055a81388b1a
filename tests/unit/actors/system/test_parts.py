"""Claims, streams and delivery ids."""

import pytest

from actors.messages import Experience
from actors.system.claim_check import ClaimStore
from actors.system.errors import BusMisconfigured, PayloadMissing
from actors.system.outgoing import delivery_id
from actors.system.streams import STREAMS, by_stream, stream_of
from tests.unit.actors.system.conftest import note


def test_a_payload_comes_back_from_its_claim_until_it_is_swept(tmp_path):
    store = ClaimStore(tmp_path / "claims")
    claim = store.put(b"payload")
    assert store.put(b"payload") == claim
    assert store.get(claim) == b"payload"
    written = (tmp_path / "claims" / claim).stat().st_mtime
    assert (store.sweep(written - 1), store.sweep(written + 1)) == (0, 1)
    assert ClaimStore(tmp_path / "none").sweep(written) == 0
    (tmp_path / "claims" / claim).write_bytes(b"PAYLOAD")
    with pytest.raises(PayloadMissing, match="other content"):
        store.get(claim)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a.blob", ""])
def test_a_claim_cannot_lead_out_of_the_directory(tmp_path, path):
    with pytest.raises(PayloadMissing, match="no blob name"):
        ClaimStore(tmp_path).get(path)


def test_every_subject_has_one_stream():
    assert stream_of("dead.learner", STREAMS).name == "WORK"
    assert stream_of("work.train", STREAMS).queue
    with pytest.raises(BusMisconfigured, match=r"nowhere\.to\.go"):
        stream_of("nowhere.to.go", STREAMS)
    assert by_stream(["policy.verdict", "trajectory.closed", "policy.directive"], STREAMS) == {
        "EVENTS": ["policy.verdict", "policy.directive"],
        "TRAJECTORY": ["trajectory.closed"],
    }


def test_revisions_of_a_lesson_are_different_deliveries():
    lesson = Experience(id="e", when_to_use="w", content="c")
    newer = Experience(id="e", when_to_use="w", content="c", revision=1)
    assert delivery_id("experience.lesson", lesson) != delivery_id("experience.lesson", newer)
    assert delivery_id("policy.directive", note("d")) == delivery_id("policy.directive", note("d"))
