"""Messages survive the wire unchanged, and bytes that are no message are refused with the field at fault."""

import contextlib
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import (
    SCHEMA,
    AnyMessage,
    Attributed,
    BatchItem,
    Feedback,
    MalformedMessage,
    Message,
    MessageError,
    Trajectory,
    UnsupportedSchema,
    decode,
    decode_batch,
    encode,
    encode_batch,
    floats_array,
    ids_array,
    pack_array,
)


def values_of(kind: object) -> st.SearchStrategy[object]:
    """Values of a msgspec type, built from its own description: a new field is covered the day it is added."""
    info = msgspec.inspect.type_info(kind)
    return strategy(info)


def strategy(info: object) -> st.SearchStrategy[object]:
    inspect = msgspec.inspect
    if isinstance(info, inspect.StructType):
        fields = {field.name: strategy(field.type) for field in info.fields if field.name != "schema"}
        return st.builds(info.cls, **fields)
    if isinstance(info, inspect.StrType):
        return st.text(max_size=12)
    if isinstance(info, inspect.IntType):
        return st.integers(-(2**40), 2**40)
    if isinstance(info, inspect.FloatType):
        return st.floats(allow_nan=False, width=64)
    if isinstance(info, inspect.BoolType):
        return st.booleans()
    if isinstance(info, inspect.BytesType):
        return st.binary(max_size=16)
    if isinstance(info, inspect.NoneType):
        return st.none()
    if isinstance(info, inspect.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, inspect.UnionType):
        return st.one_of(*map(strategy, info.types))
    if isinstance(info, inspect.VarTupleType):
        return st.lists(strategy(info.item_type), max_size=3).map(tuple)
    if isinstance(info, inspect.TupleType):
        return st.tuples(*map(strategy, info.item_types))
    if isinstance(info, inspect.DictType):
        return st.dictionaries(strategy(info.key_type), strategy(info.value_type), max_size=3)
    if isinstance(info, inspect.AnyType):
        return st.one_of(st.none(), st.booleans(), st.text(max_size=5), st.lists(st.integers(-9, 9), max_size=2))
    raise AssertionError(f"teach this test about {info}")


@pytest.mark.parametrize("kind", get_args(AnyMessage), ids=lambda kind: kind.__name__)
def test_every_message_round_trips(kind: type) -> None:
    @settings(max_examples=40)
    @given(values_of(kind))
    def check(message: object) -> None:
        assert decode(encode(message)) == message

    check()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_clear_error(data: bytes) -> None:
    with contextlib.suppress(MessageError):
        assert isinstance(decode(data), Message)


def test_a_field_of_the_wrong_type_is_named() -> None:
    data = msgspec.msgpack.encode({"type": "feedback", "id": "a", "schema": 1, "received": 1.0, "outcome": "good"})
    with pytest.raises(MalformedMessage, match=r"feedback message: .*\$\.outcome"):
        decode(data)


def test_a_newer_schema_asks_for_an_upgrade() -> None:
    data = encode(Feedback(id="a", received=1.0, schema=SCHEMA + 1))
    with pytest.raises(UnsupportedSchema, match="upgrade"):
        decode(data)


def test_batch_files_round_trip_and_refuse_truncation() -> None:
    trajectory = Trajectory(id="t", steps=(), started=0.0, ended=1.0)
    from actors.messages import Attribution

    item = BatchItem(
        attributed=Attributed(id="t", trajectory=trajectory, attribution=Attribution(labels=(), judge="j", rubric="r"))
    )
    data = encode_batch([item, item])
    assert decode_batch(data) == (item, item)
    with pytest.raises(MalformedMessage):
        decode_batch(data[:-1])


def test_arrays_keep_their_values_in_little_endian_bytes() -> None:
    ids = [0, 1, 152_000]
    assert pack_array(ids, "<i4") == b"\0\0\0\0\1\0\0\0\xc0\x51\2\0"
    assert ids_array(pack_array(ids, "<i4")).tolist() == ids
    assert floats_array(pack_array([-0.5], "<f4")) == np.float32(-0.5)
