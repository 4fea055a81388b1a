"""What every message has: a record id that makes handlers idempotent, and a schema number.

Numbers that come by the thousand (token ids, log-probs, masks) travel as raw little-endian bytes inside msgpack: ten
times faster to decode than lists, and `numpy.frombuffer` reads them without a copy.
"""

import hashlib
import os
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

SCHEMA = 1


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=False):
    """A record that travels on a stream."""

    id: str
    """Record id: the same event always has the same id, however often it is delivered."""
    schema: int = SCHEMA


def new_id() -> str:
    """A random record id (128 bits, hex) for an event that nothing else identifies."""
    return os.urandom(16).hex()


def derived_id(*parts: object) -> str:
    """The record id that follows from `parts`: the same parts give the same id in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def pack_array(values: Any, dtype: npt.DTypeLike) -> bytes:
    """`values` as little-endian bytes of `dtype` ("<i4" token ids, "<f4" log-probs, "<i2" step indices, "u1" masks)."""
    return np.ascontiguousarray(values, dtype=dtype).tobytes()


def ids_array(data: bytes) -> npt.NDArray[np.int32]:
    """Token ids or weight versions, `(n,)` int32."""
    return np.frombuffer(data, dtype="<i4")


def floats_array(data: bytes) -> npt.NDArray[np.float32]:
    """Log-probs in nats, `(n,)` float32."""
    return np.frombuffer(data, dtype="<f4")


def steps_array(data: bytes) -> npt.NDArray[np.int16]:
    """Step index per token, `(n,)` int16, -1 where no step sampled the token."""
    return np.frombuffer(data, dtype="<i2")
