"""The streams, as data: which subjects each holds, for how long, and what happens when it is full.

All are on disk, S2-compressed, and deduplicate by `Nats-Msg-Id` within `DUPLICATE_SECONDS`. Streams that carry
production traffic discard NEW: a full one refuses records, and the refusal travels back to the tap's spool. What is
small and decides something lies apart from it, for a month. None uses interest retention, under which a record without
a consumer vanishes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from actors.system.errors import BusMisconfigured

TRAFFIC_EXCHANGE = "traffic.exchange"
TRAFFIC_FEEDBACK = "traffic.feedback"
TRAJECTORY_CLOSED = "trajectory.closed"
TRAJECTORY_ATTRIBUTED = "trajectory.attributed"
TRAJECTORY_OUTCOME = "trajectory.outcome"
EXPERIENCE_LESSON = "experience.lesson"
WORK_TRAIN = "work.train"
POLICY_CANDIDATE = "policy.candidate"
POLICY_VERDICT = "policy.verdict"
POLICY_SERVING = "policy.serving"
POLICY_DIRECTIVE = "policy.directive"
DEAD = "dead"
"""Prefix: records that a process without a store gave up go to `dead.<who>`, and from there into the store."""

DUPLICATE_SECONDS = 300.0
_DAY = 86_400.0
_MIB = 1 << 20


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream."""

    name: str
    subjects: tuple[str, ...]
    """May end in `.>`."""
    queue: bool = False
    """Work queue: an ack deletes the record, and a subject has one durable at most."""
    discard_new: bool = False
    """When full, refuse new records instead of dropping the oldest."""
    max_age: float = 30 * _DAY
    """Seconds."""
    max_bytes: int = 256 * _MIB


_EVENTS = (
    TRAJECTORY_OUTCOME, EXPERIENCE_LESSON, POLICY_CANDIDATE, POLICY_VERDICT, POLICY_SERVING, POLICY_DIRECTIVE,
)  # fmt: skip
"""Late outcomes are among them, not beside the bodies: whoever is away for a week must not miss them, and a report of a
few bytes must find room."""


def _bodies(name: str, *subjects: str) -> Stream:
    """What agents said, for two days."""
    return Stream(name=name, subjects=subjects, discard_new=True, max_age=2 * _DAY, max_bytes=2048 * _MIB)


STREAMS: tuple[Stream, ...] = (
    _bodies("TRAFFIC", TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK),
    _bodies("TRAJECTORY", TRAJECTORY_CLOSED, TRAJECTORY_ATTRIBUTED),
    Stream(name="WORK", subjects=(WORK_TRAIN, f"{DEAD}.>"), queue=True, discard_new=True),
    Stream(name="EVENTS", subjects=_EVENTS),
)


def matches(pattern: str, subject: str) -> bool:
    """Whether `subject` falls under `pattern`, which is a subject or ends in `.>`."""
    return subject.startswith(pattern[:-1]) if pattern.endswith(".>") else subject == pattern


def stream_of(subject: str, streams: Iterable[Stream]) -> Stream:
    """The stream that holds `subject`."""
    for stream in streams:
        if any(matches(pattern, subject) for pattern in stream.subjects):
            return stream
    raise BusMisconfigured(f"no stream holds subject {subject!r}")


def by_stream(subjects: Iterable[str], streams: Sequence[Stream]) -> dict[str, list[str]]:
    """`subjects` by the name of the stream that holds them."""
    grouped: dict[str, list[str]] = {}
    for subject in subjects:
        grouped.setdefault(stream_of(subject, streams).name, []).append(subject)
    return grouped
