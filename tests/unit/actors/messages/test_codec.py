"""Messages survive the wire unchanged, bytes that are none are refused with the field at fault, and what their records
compute: versions of tokens, and distances along the tree of versions."""

from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.messages import (
    SCHEMA,
    AnyMessage,
    Exchange,
    Feedback,
    Lineage,
    MalformedMessage,
    UnsupportedSchema,
    VersionSpan,
    decode,
    derived_id,
    encode,
    floats_array,
    ids_array,
    pack_array,
    token_versions,
    version_number,
)
from actors.messages.lineage import REMEMBERED

inspect = msgspec.inspect
PLAIN: dict[type, st.SearchStrategy[object]] = {
    inspect.StrType: st.text(max_size=12),
    inspect.IntType: st.integers(-(2**40), 2**40),
    inspect.FloatType: st.floats(allow_nan=False, width=64),
    inspect.BoolType: st.booleans(),
    inspect.BytesType: st.binary(max_size=16),
    inspect.NoneType: st.none(),
    inspect.AnyType: st.none() | st.booleans() | st.text(max_size=5) | st.lists(st.integers(-9, 9), max_size=2),
}


def values(info: object) -> st.SearchStrategy[object]:
    """Values of a msgspec type, built from its own description: a new field is covered the day it is added."""
    if isinstance(info, inspect.StructType):
        return st.builds(info.cls, **{one.name: values(one.type) for one in info.fields if one.name != "schema"})
    if isinstance(info, inspect.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, inspect.UnionType):
        return st.one_of(*map(values, info.types))
    if isinstance(info, inspect.VarTupleType):
        return st.lists(values(info.item_type), max_size=3).map(tuple)
    if isinstance(info, inspect.TupleType):
        return st.tuples(*map(values, info.item_types))
    if isinstance(info, inspect.DictType):
        return st.dictionaries(values(info.key_type), values(info.value_type), max_size=3)
    return PLAIN[type(info)]


@pytest.mark.parametrize("kind", get_args(AnyMessage), ids=lambda kind: kind.__name__)
def test_every_message_round_trips(kind: type) -> None:
    @settings(max_examples=40)
    @given(values(inspect.type_info(kind)))
    def check(message: object) -> None:
        assert decode(encode(message)) == message

    check()


def test_what_is_no_message_is_refused_and_what_a_later_version_adds_is_ignored() -> None:
    said = Feedback(id="a", received=1.0)
    fields = msgspec.to_builtins(said)
    assert decode(msgspec.msgpack.encode(fields | {"shape": "round"})) == said
    with pytest.raises(MalformedMessage, match=r"feedback message: .*\$\.outcome"):
        decode(msgspec.msgpack.encode(fields | {"outcome": "good"}))
    with pytest.raises(MalformedMessage):
        decode(encode(said)[:-3])
    with pytest.raises(UnsupportedSchema, match="upgrade"):
        decode(encode(msgspec.structs.replace(said, schema=SCHEMA + 1)))
    with pytest.raises(TypeError, match="endpoint"):  # the store indexes it
        Exchange(id="x", started=0.0, duration=0.0, status=200, request=b"", response=b"")  # pyright: ignore


def test_arrays_keep_their_values_in_little_endian_bytes_and_ids_depend_on_every_part() -> None:
    ids = [0, 1, 152_000]
    assert pack_array(ids, "<i4") == b"\0\0\0\0\1\0\0\0\xc0\x51\2\0"
    assert ids_array(pack_array(ids, "<i4")).tolist() == ids
    assert floats_array(pack_array([-0.5], "<f4")) == np.float32(-0.5)
    assert derived_id("a", 1) == derived_id("a", "1")
    assert derived_id("ab", "c") != derived_id("a", "bc")


@pytest.mark.parametrize(("label", "version"), [("0", 0), ("17", 17), ("default", -1), ("-3", -1), ("", -1), ("²", -1)])
def test_a_label_that_is_no_number_is_minus_one(label: str, version: int) -> None:
    assert version_number(label) == version


@pytest.mark.parametrize(
    ("spans", "versions"),
    [
        ((), [-1, -1, -1, -1]),
        ([VersionSpan(3, 0, 2), VersionSpan(4, 3, 4)], [3, 3, -1, 4]),
        ([VersionSpan(3, -5, 2), VersionSpan(4, 1, 99)], [3, 4, 4, 4]),
        ([VersionSpan(3, -5, -1), VersionSpan(4, 2, 1), VersionSpan(5, 9, 12)], [-1, -1, -1, -1]),
    ],
)
def test_a_token_has_the_version_of_the_last_span_over_it(spans: list[VersionSpan], versions: list[int]) -> None:
    assert token_versions(spans, 4).tolist() == versions


TREE = Lineage([(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 0), (7, 6)])
"""0-1-2-3-4-5, and after a rollback 0-6-7."""


@pytest.mark.parametrize(
    ("tree", "head", "distances"),
    [
        (TREE, 5, {0: 5, 1: 4, 2: 3, 3: 2, 4: 1, 5: 0, 7: None, -1: None}),
        (TREE, 7, {0: 2, 6: 1, 7: 0, 5: None, 8: 0}),  # a version that was not heard of yet is fresh
        (TREE, 0, {3: None, 8: 0}),  # the head was set back before it
        (Lineage([(3, 0), (4, 3), (9, 4)]), 9, {0: 3, 3: 2, 4: 1, 9: 0, 5: None}),
        (Lineage((one, one - 1) for one in range(1, 2 * REMEMBERED + 1)), 2 * REMEMBERED,
         {REMEMBERED: REMEMBERED, 0: None}),
    ],
)  # fmt: skip
def test_staleness_is_a_distance_along_the_tree_of_versions(tree: Lineage, head: int, distances: dict) -> None:
    assert {version: tree.distance(version, head) for version in distances} == distances


def test_a_parent_that_is_no_older_is_ignored() -> None:
    tree = Lineage([(1, 0)])
    tree.add(1, 2)
    tree.add(3, 3)
    assert (tree.line(3), tree.line(1)) == ([3], [1, 0])
