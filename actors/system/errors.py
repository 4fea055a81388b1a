"""What can go wrong in the actor system.

ActorSystemError
├── DependencyUnavailable     judge, engine, database away: the actor waits, nothing is counted as a failure
│   └── BusUnavailable        the broker is away, does not answer in time, or has a full stream: back-pressure
├── BusMisconfigured          the servers do not let us in, or not as the settings say: names setting and remedy
├── PayloadMissing            a record's claim leads to no file, or to other bytes
├── Stalled                   a supervised task has not shown a sign of life in time
├── Escalated                 a critical task failed more often than it may: the process should end, and start afresh
├── BrokerFailed              the embedded nats-server cannot be started, or never was
└── HostCallCancelled         the host loop cancelled a call that nobody here had cancelled, as one that is closed does
"""


class ActorSystemError(Exception):
    """Root of this package's errors."""


class DependencyUnavailable(ActorSystemError):
    """To be raised by actors, adapters' callers and the store: the runner keeps the batch and tries again for as long
    as it takes; an outage never parks a record."""


class BusUnavailable(DependencyUnavailable):
    """Publishers keep their records and try again later, under the same ids."""


class BusMisconfigured(ActorSystemError):
    """Nothing that waiting cures: password, certificate, JetStream, limits, an unknown subject, a second consumer of a
    work queue."""


class PayloadMissing(ActorSystemError):
    pass


class Stalled(ActorSystemError):
    pass


class Escalated(ActorSystemError):
    def __init__(self, name: str, restarts: int) -> None:
        super().__init__(f"{name} was started {restarts} times and does not stay up")
        self.name = name


class BrokerFailed(ActorSystemError):
    pass


class HostCallCancelled(ActorSystemError):
    pass
