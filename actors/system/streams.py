"""The streams, as data: which subjects each holds, for how long, and what happens when it is full.

All are on disk, S2-compressed, and deduplicate by `Nats-Msg-Id` within their window. Streams that carry production
traffic discard NEW: a full one refuses records, and the refusal travels back to the tap's spool. What is small and
decides something lies apart from it, for a month. None uses interest retention, under which a record without a consumer
vanishes.
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
    duplicate_window: float = 120.0
    """Seconds."""
    max_age: float = 7 * _DAY
    """Seconds; 0 for no limit."""
    max_bytes: int = 256 * _MIB


STREAMS: tuple[Stream, ...] = (
    Stream(
        name="TRAFFIC",
        subjects=(TRAFFIC_EXCHANGE, TRAFFIC_FEEDBACK),
        discard_new=True,
        duplicate_window=300.0,
        max_age=2 * _DAY,
        max_bytes=2048 * _MIB,
    ),
    Stream(
        name="TRAJECTORY",
        subjects=(TRAJECTORY_CLOSED, TRAJECTORY_ATTRIBUTED),
        discard_new=True,
        duplicate_window=300.0,
        max_age=2 * _DAY,
        max_bytes=2048 * _MIB,
    ),
    Stream(name="WORK", subjects=(WORK_TRAIN, f"{DEAD}.>"), queue=True, discard_new=True, max_age=30 * _DAY),
    # Late outcomes lie here and not beside the bodies: whoever is away for a week must not miss them, and a report of a
    # few bytes must find room.
    Stream(
        name="EVENTS",
        subjects=(
            TRAJECTORY_OUTCOME,
            EXPERIENCE_LESSON,
            POLICY_CANDIDATE,
            POLICY_VERDICT,
            POLICY_SERVING,
            POLICY_DIRECTIVE,
        ),
        max_age=30 * _DAY,
    ),
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


def by_stream(subjects: Sequence[str], streams: Iterable[Stream]) -> dict[str, tuple[Stream, tuple[str, ...]]]:
    """`subjects` grouped by the stream that holds them: stream name -> (stream, its subjects)."""
    if not subjects:
        raise BusMisconfigured("a subscription needs a subject")
    known = tuple(streams)
    grouped: dict[str, tuple[Stream, tuple[str, ...]]] = {}
    for subject in dict.fromkeys(subjects):
        stream = stream_of(subject, known)
        _, earlier = grouped.get(stream.name, (stream, ()))
        grouped[stream.name] = (stream, (*earlier, subject))
    return grouped
