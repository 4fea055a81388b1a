"""Spans and events of one call are put together whatever their order, and what waits is bounded and counted."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.intake.otlp import Joiner, JoinSettings, exchange_from
from adapters.intake.otlp.records import Export, Log, Span
from tests.support.otlp import calls_of, exports

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}
SAID = {"gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "x"}]}]'}


def key(number: int) -> tuple[bytes, bytes]:
    return number.to_bytes(16, "big"), b"s" * 8


def whole(number: int) -> Export:
    return Export(spans=(Span(key=key(number), attributes={**CHAT, **SAID}),))


def bare(number: int, **fields) -> Export:
    return Export(spans=(Span(key=key(number), attributes=CHAT, **fields),))


def said(number: int, name: str, at: float, text: str) -> Export:
    body = {"message": {"content": text}} if name == "choice" else {"content": text}
    name = "gen_ai.choice" if name == "choice" else f"gen_ai.{name}.message"
    return Export(logs=(Log(key=key(number), name=name, at=at, body=body),))


@pytest.mark.parametrize("mode", ["event", "legacy", "both"])
@given(data=st.data())
def test_any_order_in_any_number_of_exports_gives_the_same_calls(mode: str, data: st.DataObject) -> None:
    pieces = []
    for export in exports(mode):
        pieces += [Export(spans=(span,)) for span in export.spans]
        pieces += [Export(logs=(log,)) for log in export.logs]
    wanted = calls_of(*exports(mode))
    shuffled = data.draw(st.permutations(pieces))
    found = calls_of(*shuffled, settings=JoinSettings(settle_seconds=0.0))
    assert len(wanted) == 3
    if mode == "both":  # a span that carries its messages does not wait for the event that does too
        assert [(call.id, call.request) for call in found] == [(call.id, call.request) for call in wanted]
    else:
        assert found == wanted


@pytest.mark.parametrize("mode", ["span", "event", "legacy", "openinference"])
def test_an_export_that_comes_again_gives_the_same_ids_and_nothing_new(mode: str) -> None:
    once, twice = calls_of(*exports(mode)), calls_of(*exports(mode), *exports(mode))
    assert twice == once


def test_equal_messages_of_one_export_are_both_kept() -> None:
    same = [log for _ in range(2) for log in said(1, "user", 5.0, "ok").logs]
    export = Export(logs=(*same, *said(1, "choice", 6.0, "y").logs))
    (call,) = calls_of(export, export)
    assert len(msgspec.json.decode(call.request)["messages"]) == 2


def test_a_span_with_its_messages_is_whole_at_once() -> None:
    joiner = Joiner(JoinSettings())
    joiner.add(whole(1), 0.0, size=10)
    assert len(joiner.take()) == 1
    assert (len(joiner), joiner.bytes) == (0, 0)


def test_messages_that_come_one_by_one_wait_until_no_more_come() -> None:
    joiner = Joiner(JoinSettings(settle_seconds=2.0, join_seconds=30.0))
    joiner.add(bare(1), 0.0, size=1)
    joiner.add(said(1, "choice", 6.0, "y"), 1.0, size=1)
    assert joiner.take_due(2.9) == []
    joiner.add(said(1, "user", 5.0, "x"), 2.9, size=1)
    assert joiner.take_due(4.8) == []
    (one,) = joiner.take_due(4.9)
    call = exchange_from(one, JoinSettings())
    assert call is not None
    assert call.complete


def test_what_misses_its_other_half_goes_on_after_its_time() -> None:
    joiner = Joiner(JoinSettings(join_seconds=30.0))
    joiner.add(said(1, "user", 5.0, "x"), 0.0, size=1)
    assert joiner.take_due(29.0) == []
    assert len(joiner.take_due(30.0)) == 1


def test_what_comes_after_its_call_is_done_is_counted_and_forgotten() -> None:
    joiner = Joiner(JoinSettings())
    joiner.add(whole(1), 0.0, size=1)
    joiner.settle(joiner.take())
    joiner.add(whole(1), 1.0, size=1)
    joiner.add(said(1, "user", 5.0, "x"), 1.0, size=1)
    assert (joiner.take(), joiner.counts["repeated"]) == ([], 2)


def test_what_could_not_be_passed_on_comes_again_with_what_came_meanwhile() -> None:
    joiner = Joiner(JoinSettings())
    joiner.add(whole(1), 0.0, size=5)
    taken = joiner.take()
    joiner.add(said(1, "user", 5.0, "x"), 1.0, size=5)
    joiner.put_back(taken)
    assert (len(joiner), joiner.bytes) == (1, 10 - 5)
    (one,) = joiner.take()
    assert one.span is not None
    assert len(one.events) == 1


def test_beyond_the_limit_the_oldest_go_on_with_what_there_is() -> None:
    joiner = Joiner(JoinSettings(max_waiting=2))
    for number in range(1, 5):
        joiner.add(said(number, "user", 5.0, f"x{number}"), float(number), size=1)
    assert joiner.full
    assert [one.place[1] for one in joiner.take()] == [key(1), key(2)]
    assert (len(joiner), joiner.counts["evicted"], joiner.full) == (2, 2, False)


def test_bytes_are_a_limit_too() -> None:
    joiner = Joiner(JoinSettings(max_waiting_mib=1))
    for number in range(1, 4):
        joiner.add(said(number, "user", 5.0, "x"), 0.0, size=600_000)
    assert len(joiner.take()) == 2
    assert joiner.bytes == 600_000


def test_the_same_ids_of_two_tenants_are_two_calls() -> None:
    joiner = Joiner(JoinSettings(tenant_attribute="service.namespace"))
    for name in ("acme", "globex"):
        export = bare(1, resource={"service.namespace": name}).spans[0]
        joiner.add(Export(spans=(msgspec.structs.replace(export, attributes={**CHAT, **SAID}),)), 0.0, size=1)
    joiner.add(whole(1), 0.0, size=1, tenant="by-key", caller="k1")
    calls = [exchange_from(one, JoinSettings()) for one in joiner.take()]
    found = [(call.tenant, call.caller) for call in calls if call is not None]
    assert found == [("acme", ""), ("globex", ""), ("by-key", "k1")]
    assert len({call.id for call in calls if call is not None}) == 3


def test_memory_of_what_is_done_is_bounded() -> None:
    joiner = Joiner(JoinSettings(remembered=10))
    for number in itertools.islice(itertools.count(1), 50):
        joiner.add(whole(number), 0.0, size=1)
        joiner.settle(joiner.take())
    joiner.add(whole(50), 0.0, size=1)
    joiner.add(whole(1), 0.0, size=1)
    assert (len(joiner), joiner.counts["repeated"]) == (1, 1)
