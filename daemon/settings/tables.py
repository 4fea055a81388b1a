"""What an operator can set, as types. config.toml has the defaults, and says what each key means.

A leaf: it imports msgspec alone, so that an order in an emergency waits for nothing else.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Above = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Some = Annotated[int, msgspec.Meta(ge=1)]
Options = dict[str, Any]
"""Checked by whoever takes them."""
Action = Literal["tell", "freeze", "rollback"]
SHADOW = "shadow"
"""Name of the engine that no agent sees: it takes every candidate, rollouts and the gate run on it."""
ALLOW_HOSTS = "allow_hosts"
"""In [apis], beside the tables of the APIs."""
KEYS = Path("keys/keys.json")
"""Below state_dir; whoever is to come in has a key there. It counts as soon as it is there."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class Model(Table, frozen=True):
    path: str


class Engine(Table, frozen=True):
    name: str
    url: str
    key_file: str = ""
    weight: Amount = 1.0
    logprobs: Literal["raw", "processed"] = "raw"
    ca_file: str = ""


class Shadow(Table, frozen=True):
    url: str
    key_file: str = ""


class Database(Table, frozen=True):
    url: str
    password_file: str


class Nats(Table, frozen=True):
    url: str
    secret_file: str
    ca_file: str
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)]


class Control(Table, frozen=True):
    listen: str
    names: tuple[str, ...]
    tls_cert: str
    tls_key: str
    behind_proxy: bool


class Weights(Table, frozen=True):
    listen: str
    source: str
    token_file: str


class Tap(Table, frozen=True):
    listen: str
    admin: str
    mirror: str
    tls_cert: str
    tls_key: str
    require_key: bool
    spool_dir: str
    capture_tokens: bool


class Otlp(Table, frozen=True):
    listen: str
    tenant_attribute: str
    trace_is_run: bool


class Tenant(Table, frozen=True):
    share: Share


class Pattern(Table, frozen=True):
    name: str
    regex: str


class Redact(Table, frozen=True):
    kinds: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    allow: tuple[str, ...]


class Runs(Table, frozen=True):
    idle_minutes: Above


class Judge(Table, frozen=True):
    name: str
    options: Options
    share: Share
    tokens_per_day: Count


class Llm(Table, frozen=True):
    url: str
    model: str
    key_file: str
    options: Options


class Embeddings(Table, frozen=True):
    url: str
    model: str
    key_file: str


class Lessons(Table, frozen=True):
    draw: tuple[Literal["contrast", "skills", "tools", "llm"], ...]
    guided_share: Share
    per_prompt: Annotated[int, msgspec.Meta(ge=0, le=3)]
    """The navigator gives no more."""
    rewrite: bool


class Sandbox(Table, frozen=True):
    environment: str
    options: Options
    workers: Annotated[int, msgspec.Meta(ge=0, le=64)]
    families: str
    max_steps: Some
    max_tokens: Some
    tools_shown: Count
    harness: str
    harness_options: Options
    grader: str
    grader_options: Options


class Tasks(Table, frozen=True):
    make: tuple[Literal["failures", "questions"], ...]
    share: Share
    prefer: Options


class Train(Table, frozen=True):
    trainer: Literal["native", "verl"]
    sequence_parallel: Some
    micro_tokens: Count
    gradient_checkpointing: bool
    lr: Above
    kl_coef: Amount
    max_step_kl: Amount
    mini_batches: Some
    step_credit: Amount
    discount: Share
    max_staleness: Count
    groups: Some
    group_size: Annotated[int, msgspec.Meta(ge=4)]
    """Of fewer attempts the pool learns nothing."""
    runs: Some
    production_share: Annotated[float, msgspec.Meta(ge=0, lt=1)]
    replay_share: Annotated[float, msgspec.Meta(ge=0, le=0.5)]
    provisional: bool
    metrics: str
    tensorboard: str


class Gate(Table, frozen=True):
    every: Some
    tasks: Some
    outcomes: Some
    margin: Share
    forgetting_margin: Share
    error: Annotated[float, msgspec.Meta(gt=0, lt=0.5)]
    probes: str


class Trial(Table, frozen=True):
    runs: Some
    minutes: Above


class Watch(Table, frozen=True):
    success: Action
    judge_alone: Action
    judge_drift: Action


class Keep(Table, frozen=True):
    runs_days: Amount
    calls_days: Amount
    versions: Annotated[int, msgspec.Meta(ge=2)]
    """With one there would be nothing to go back to."""


class Limits(Table, frozen=True):
    request_mb: Annotated[int, msgspec.Meta(ge=1, le=256)]
    first_answer_seconds: Above
    drain_seconds: Amount
    spool_gb: Above
    streams_gb: Above
    episodes: Some
    turn_seconds: Above
    judge_calls: Some
    swap_seconds: Above


class Config(Table, frozen=True):
    """All of it."""

    state_dir: str
    profile: Literal["production", "toy"]
    seed: int
    model: Model
    engines: tuple[Engine, ...]
    shadow: Shadow
    database: Database
    nats: Nats
    control: Control
    weights: Weights
    tap: Tap
    otlp: Otlp
    tenants: dict[str, Tenant]
    """The table's own two keys are those of "", for tenants that have no table."""
    redact: Redact
    runs: Runs
    judge: Judge
    llm: Llm
    embeddings: Embeddings
    lessons: Lessons
    sandbox: Sandbox
    tasks: Tasks
    train: Train
    gate: Gate
    trial: Trial
    watch: Watch
    keep: Keep
    limits: Limits
    apis: dict[str, Any]
    """ALLOW_HOSTS, and a table of an API's own options by its name."""

    @property
    def state(self) -> Path:
        # Absolute: paths below it go to engines and to a learner, whose working directory is another.
        return Path(self.state_dir).absolute()

    @property
    def spool(self) -> Path:
        """Directory that the tap writes and the shipper reads."""
        return self.state / self.tap.spool_dir  # an absolute path stands for itself

    @property
    def keys(self) -> Path | None:
        """The key file that tap and control API check; none if nobody has keys."""
        path = self.state / KEYS
        return path if self.tap.require_key or there(path) else None

    @property
    def store_url(self) -> str:
        return self.database.url or f"sqlite:///{self.state / 'evolved.db'}"

    @property
    def serving(self) -> dict[str, str]:
        """The engines that answer agents: URL by name, in the order in which they are swapped; the first that answers
        is the canary."""
        return {one.name: one.url for one in self.engines}


def there(path: Path) -> bool:
    """Also where this user may not look: whoever opens it says what is wrong, and no door stays open."""
    try:
        return path.exists()
    except PermissionError:
        return True
