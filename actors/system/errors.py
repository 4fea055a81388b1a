"""What can go wrong in the actor system.

ActorSystemError
├── DependencyUnavailable     judge, engine, database away: the actor waits, nothing is counted as a failure
│   └── BusUnavailable        the broker is away or does not answer in time
│       └── StreamFull        a stream with discard NEW refused a record: back-pressure
├── BusMisconfigured          no stream has the subject, or a stream or consumer cannot be had as defined
│   └── BusRefused            the servers do not let us in, or not as the settings say: names setting and remedy
├── PayloadMissing            a record's claim leads to no file, or to other bytes
├── Stalled                   a supervised task has not shown a sign of life in time
├── Escalated                 a critical task failed more often than its restart policy allows
├── BrokerFailed              the embedded nats-server cannot be started, or never was
└── HostCallCancelled         the host loop cancelled a call that nobody here had cancelled
"""


class ActorSystemError(Exception):
    """Root of this package's errors."""


class DependencyUnavailable(ActorSystemError):
    """Something outside is away for now; to be raised by actors, adapters' callers and the store.

    The runner keeps the batch, waits with backoff and tries again for as long as it takes: an outage never parks a
    record.
    """


class BusUnavailable(DependencyUnavailable):
    """The broker cannot be reached or did not confirm in time; the same ids may be published again."""


class StreamFull(BusUnavailable):
    """A stream that discards NEW is at its limit: the publisher keeps its records and tries again later."""


class BusMisconfigured(ActorSystemError):
    """Waiting will not help: unknown subject, overlapping consumers on a work queue, wrong credentials."""


class BusRefused(BusMisconfigured):
    """Password, certificate, JetStream or limits: nothing that waiting cures. The text names setting and remedy."""


class PayloadMissing(ActorSystemError):
    """The payload that a record points to is gone or is not what was written."""


class Stalled(ActorSystemError):
    """A task went without a heartbeat for longer than its policy allows and was cancelled."""


class Escalated(ActorSystemError):
    """Restarting did not help; the process should end so that its own supervisor starts afresh."""

    def __init__(self, name: str, restarts: int) -> None:
        super().__init__(f"{name} was started {restarts} times and does not stay up")
        self.name = name


class BrokerFailed(ActorSystemError):
    """The embedded broker cannot be started, or never was."""


class HostCallCancelled(ActorSystemError):
    """The host loop ended a call by itself, as it does when it is closed underneath us."""
