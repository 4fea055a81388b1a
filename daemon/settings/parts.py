"""From the file's tables to what each part takes.

It stands between the two shapes: a part that takes plain values from `tables` and `pace` itself needs nothing of this
any more, and with the last of them the module and `daemon/settings/config.py` go.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.credit.attributor import AttributorSettings
from actors.credit.budget import BudgetSettings
from actors.credit.sampling import SamplingSettings
from actors.curation.pool import CuratorSettings
from actors.deployment.canary import CanarySettings
from actors.deployment.swapper import SwapperSettings
from actors.experience.experiencer import ExperiencerSettings
from actors.experience.probing_round import ProbeSettings
from actors.experience.retrieval.settings import NavigatorSettings
from actors.gate.drift import DriftSettings
from actors.gate.forgetting import ForgettingSettings
from actors.gate.gatekeeper import GatekeeperSettings
from actors.gate.prompts import PromptSettings
from actors.gate.replay_trial import ReplayTrialSettings
from actors.gate.safety import SafetySettings
from actors.gate.sandbox_trial import SandboxTrialSettings
from actors.monitoring.sentinel import SentinelSettings
from actors.monitoring.settings import JudgeSettings, MonitorSettings, VersionSettings
from actors.rollout.settings import RolloutSettings
from actors.store.settings import StoreSettings
from actors.system.broker import BrokerSettings
from actors.system.nats_settings import BusSettings
from actors.tasks.failures import FailureSettings
from actors.tasks.mixture import MixtureSettings
from actors.tasks.questioner.settings import Preferences, QuestionerSettings
from actors.tasks.searching import SearchSettings
from actors.trajectories.assembler import AssemblerSettings
from adapters.intake.otlp.calls import SpanSettings
from adapters.redaction import PatternSettings, RedactionSettings
from adapters.weights.http import PullSettings
from daemon.composition.cluster import ClusterSettings
from daemon.composition.tasks import TaskSettings
from daemon.ingest.otlp_receiver import IntakeSettings
from daemon.live.settings import LiveSettings
from daemon.settings import config as parts
from daemon.settings import reading, tables, toml
from daemon.settings.control import where
from daemon.settings.pace import PACES, Pace
from daemon.settings.reading import address, nats_servers
from daemon.tap.admission import DoorSettings, TenantSettings
from daemon.tap.keys import is_loopback
from daemon.tap.settings import TapSettings, UpstreamSettings
from daemon.upkeep.retention import RetentionSettings
from daemon.upkeep.weights import ServerSettings, WeightsSettings
from learner.credit.assign import CreditSettings
from learner.settings import LearnerSettings

KEYS = Path("keys/keys.json")
"""Below state_dir; whoever is to come in has a key there. It counts as soon as it is there."""
TASKS_A_SEED = 10_000_000
"""Task numbers of one seed: people and agents try things in the lower half, the rollout plays the upper one."""


def load(path: Path | None, assignments: Sequence[str] = ()) -> parts.Config:
    """What each part takes of the file at `path`, with `table.key=value` assignments laid over it.

    Raises:
        ConfigError: names the file, the key and the remedy.
    """
    return parts_of(reading.load(path, assignments))


def parts_of(config: tables.Config) -> parts.Config:
    """What each part takes of `config`."""
    pace = PACES[config.profile]
    return parts.Config(
        told=config,
        state_dir=config.state_dir,
        seed=config.seed,
        broker=BrokerSettings(store_bytes=int(config.limits.streams_gb * (1 << 30))),
        bus=_bus(config.nats),
        store=StoreSettings(url=config.database.url, password_file=config.database.password_file),
        control=where(config.control),
        cluster=ClusterSettings(address=_reached_at(config.control), lease_seconds=pace.lease_seconds),
        engines=config.engines,
        shadow=config.shadow,
        sandbox=parts.SandboxSettings(
            environment=config.sandbox.environment, options=config.sandbox.options, workers=config.sandbox.workers,
            tool_search=config.sandbox.tools_shown,
        ),
        judge=_asking(config.judge.name, config.judge.options, config.llm, {"llm"}),
        embedder=_embedder(config.embeddings),
        extractor=_asking("llm" if "llm" in config.lessons.draw else "", {}, config.llm, {"llm"}),
        rewriter=_asking("llm" if config.lessons.rewrite else "", {}, config.llm, {"llm"}),
        llm=_asking("llm" if config.llm.url else "", {}, config.llm, {"llm"}),
        wording=_asking("llm" if config.tasks.prefer.get("style") else "", {}, config.llm, {"llm"}),
        grader=_asking(config.sandbox.grader, config.sandbox.grader_options, config.llm, {"anchored", "open"}),
        live=LiveSettings(allow_private=tuple(config.apis.get("allow_hosts", ()))),
        adapters={name: one for name, one in config.apis.items() if name != "allow_hosts"},
        tap=_tap(config),
        intake=_intake(config),
        redaction=_redaction(config),
        assembler=AssemblerSettings(
            idle_seconds=60.0 * config.runs.idle_minutes, keys_share_runs=config.runs.across_keys,
            processed_logprobs=tuple(one.name for one in config.engines if one.logprobs == "processed"),
        ),
        attributor=AttributorSettings(
            concurrency=config.limits.judge_calls, sampling=SamplingSettings(share=config.judge.share),
            budget=BudgetSettings(tokens_per_day=config.judge.tokens_per_day),
        ),
        curator=CuratorSettings(
            groups_per_batch=config.train.groups, group_size=config.train.group_size,
            production_per_batch=config.train.runs, production_share=config.train.production_share,
            replay_share=config.train.replay_share, max_staleness=config.train.max_staleness,
            group_seconds=pace.group_seconds, mix_share=pace.mix_share, provisional=config.train.provisional,
        ),
        experiencer=ExperiencerSettings(
            draw_skills="skills" in config.lessons.draw, draw_tools="tools" in config.lessons.draw
        ),
        probe=ProbeSettings(**_played(config.sandbox)),
        navigator=NavigatorSettings(enabled=config.lessons.per_prompt > 0),
        questioner=QuestionerSettings(
            enabled="questions" in config.tasks.make, families=config.sandbox.families,
            prefer=toml.convert(config.tasks.prefer, Preferences, "tasks.prefer"),
        ),
        rollout=_rollout(config, pace),
        tasks=TaskSettings(
            mixture=MixtureSettings(share=config.tasks.share),
            failures=FailureSettings(enabled="failures" in config.tasks.make, families=config.sandbox.families),
            search=SearchSettings(
                max_steps=config.sandbox.max_steps, max_tokens=config.sandbox.max_tokens,
                step_timeout=config.limits.turn_seconds,
            ),
        ),
        gate=_gate(config, pace),
        swapper=SwapperSettings(
            swap_timeout=config.limits.swap_seconds, reconcile_seconds=pace.reconcile_seconds,
            canary=CanarySettings(
                runs=config.trial.runs, deadline_seconds=60.0 * config.trial.minutes, seconds=pace.trial_seconds
            ),
        ),
        sentinel=SentinelSettings(
            monitors=MonitorSettings(
                versions=VersionSettings(
                    outcome_action=config.watch.success, validity_action=config.watch.success,
                    hacking_action=config.watch.judge_alone,
                ),
                judge=JudgeSettings(score_action=config.watch.judge_drift),
            )
        ),
        learner=_learner(config, pace),
        weights=_weights(config.weights, config.keep.versions),
        retention=RetentionSettings(trajectories_days=config.keep.runs_days, exchanges_days=config.keep.calls_days),
    )  # fmt: skip


def _reached_at(control: tables.Control) -> str:
    """Where others find this control API, by the first of its names; empty for the address that it listens at."""
    if not control.names:
        return ""
    if control.behind_proxy:
        return f"https://{control.names[0]}"
    _, port = address(control.listen, "control.listen")
    return f"http{'s' if control.tls_cert else ''}://{control.names[0]}:{port}"


def _bus(nats: tables.Nats) -> BusSettings:
    """With a user in the address, nats://USER@HOST, the secret is his password; else it is a .creds file."""
    servers = nats_servers(nats.url)
    user = servers[0].partition("://")[2].rpartition("@")[0] if servers else ""
    return BusSettings(
        url=",".join(server.replace(f"://{user}@", "://", 1) for server in servers), user=user, ca_file=nats.ca_file,
        replicas=nats.replicas, password_file=nats.secret_file if user else "",
        credentials_file="" if user else nats.secret_file,
    )  # fmt: skip


def _asking(name: str, options: Mapping[str, Any], llm: tables.Llm, who: set[str]) -> parts.AdapterSettings:
    """The adapter `name`. Those in `who` ask [llm] where their options name no endpoint: its key goes to it alone."""
    shared = {"url": llm.url, "model": llm.model, "key_file": llm.key_file, **llm.options}
    asks = name in who and "url" not in options
    return parts.AdapterSettings(name=name, options={**(shared if asks else {}), **options})


def _embedder(embeddings: tables.Embeddings) -> parts.AdapterSettings:
    if not embeddings.url:
        return parts.AdapterSettings(name="hashing")
    options = {"base_url": embeddings.url, "model": embeddings.model, "key_file": embeddings.key_file}
    return parts.AdapterSettings(name="openai", options=options)


def _tap(config: tables.Config) -> TapSettings:
    tap, limits = config.tap, config.limits
    host, port = address(tap.listen, "tap.listen")
    admin_host, admin_port = address(tap.admin, "tap.admin")
    keys = str(KEYS) if _there(config.state / KEYS) or tap.require_key else ""
    for_all = config.tenants[""]
    upstreams = tuple(UpstreamSettings(url=one.url, name=one.name, weight=one.weight) for one in config.engines)
    return TapSettings(
        host=host, port=port, tls_cert=tap.tls_cert, tls_key=tap.tls_key,
        mirror_port=address(tap.mirror, "tap.mirror")[1] if tap.mirror else None,
        upstream=config.engines[0].url, engine=config.engines[0].name,
        upstreams=upstreams if len(upstreams) > 1 else (), upstream_ca=config.engines[0].ca_file,
        spool_dir=tap.spool_dir, workers=tap.workers, admin_host=admin_host, admin_port=admin_port,
        capture_tokens=tap.capture_tokens,
        first_byte_seconds=limits.first_answer_seconds, drain_seconds=limits.drain_seconds,
        max_body_bytes=limits.request_mb << 20, spool_disk_bytes=int(limits.spool_gb * (1 << 30)),
        door=DoorSettings(
            keys_file=keys, require_key=tap.require_key, sampling=for_all.share,
            tenants={name: TenantSettings(sampling=one.share) for name, one in config.tenants.items() if name},
        ),
    )  # fmt: skip


def _intake(config: tables.Config) -> IntakeSettings:
    spans = SpanSettings(tenant_attribute=config.otlp.tenant_attribute, trace_is_trajectory=config.otlp.trace_is_run)
    if not config.otlp.listen:
        return IntakeSettings(spans=spans)
    host, port = address(config.otlp.listen, "otlp.listen")
    hosts = IntakeSettings().allowed_hosts if is_loopback(host) else ("*",)
    return IntakeSettings(
        otlp=True, host=host, port=port, allowed_hosts=hosts, tls_cert=config.tap.tls_cert, tls_key=config.tap.tls_key,
        spans=spans,
    )  # fmt: skip


def _redaction(config: tables.Config) -> RedactionSettings:
    redact, strict, key = config.redact, "text" in config.redact.kinds, config.state / "keys" / "placeholders.key"
    return RedactionSettings(
        strict=strict,
        kinds=tuple(kind for kind in redact.kinds if kind != "text"),
        patterns=tuple(PatternSettings(name=one.name, regex=one.regex) for one in redact.patterns),
        allow=tuple(text for text in redact.allow if not _regex(text)),
        allow_patterns=tuple(text[1:-1] for text in redact.allow if _regex(text)),
        key_file=str(key) if _there(key) else "",
    )  # fmt: skip


def _there(path: Path) -> bool:
    """Also where this user may not look: whoever opens it says what is wrong, and no door stays open."""
    try:
        return path.exists()
    except PermissionError:
        return True


def _regex(text: str) -> bool:
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


def _played(sandbox: tables.Sandbox) -> dict[str, Any]:
    return {"families": sandbox.families, "max_steps": sandbox.max_steps, "max_tokens": sandbox.max_tokens}


def _rollout(config: tables.Config, pace: Pace) -> RolloutSettings:
    sandbox, turn = config.sandbox, config.limits.turn_seconds
    return RolloutSettings(
        groups=config.train.groups, group_size=config.train.group_size, stall_seconds=pace.stall_seconds,
        guided_share=config.lessons.guided_share if config.lessons.per_prompt else 0.0,
        lessons=config.lessons.per_prompt, harness=sandbox.harness, harness_options=sandbox.harness_options,
        agent_seconds=10 * turn,
        first_seed=config.seed * TASKS_A_SEED + TASKS_A_SEED // 2,
        concurrency=config.limits.episodes, step_timeout=turn, group_seconds=15 * turn, **_played(sandbox),
    )  # fmt: skip


def _gate(config: tables.Config, pace: Pace) -> parts.GateSettings:
    gate, sandbox = config.gate, config.sandbox
    return parts.GateSettings(
        keeper=GatekeeperSettings(
            gate_every=gate.every, tick_seconds=pace.gate_tick_seconds,
            gate_seconds=pace.gate_seconds if sandbox.environment else pace.replay_gate_seconds,
        ),
        sandbox=SandboxTrialSettings(
            batch=pace.gate_batch, tasks=gate.tasks, max_tasks=pace.gate_verdicts * gate.tasks, margin=gate.margin,
            alpha=gate.error, beta=gate.error, step_timeout=config.limits.turn_seconds,
            forgetting=ForgettingSettings(margin=gate.forgetting_margin), **_played(sandbox),
        ),
        replay=ReplayTrialSettings(
            least=gate.outcomes, margin=pace.replay_margin or gate.margin, small_step=config.train.max_step_kl
        ),
        safety=SafetySettings(file=gate.probes, attempts=pace.probe_attempts, max_tokens=pace.probe_tokens),
        prompts=PromptSettings(most=pace.prompts, max_tokens=sandbox.max_tokens, entropy_low=pace.entropy_low),
        drift=DriftSettings(most=pace.drift_rows, kl_limit=pace.kl_limit, surprise_limit=pace.surprise_limit),
    )  # fmt: skip


def _learner(config: tables.Config, pace: Pace) -> LearnerSettings:
    train = config.train
    host, port = address(train.metrics, "train.metrics") if train.metrics else ("127.0.0.1", 0)
    return LearnerSettings(
        warm_start=config.model.path, trainer=train.trainer, sequence_parallel=train.sequence_parallel,
        seed=config.seed, lr=train.lr, beta2=pace.beta2, weight_decay=pace.weight_decay,
        mini_batches=train.mini_batches, micro_tokens=train.micro_tokens,
        gradient_checkpointing=train.gradient_checkpointing, kl_coef=train.kl_coef, kl_limit=train.max_step_kl,
        max_staleness=train.max_staleness, keep_versions=config.keep.versions, metrics_host=host, metrics_port=port,
        tensorboard_dir=train.tensorboard, credit=CreditSettings(alpha=train.step_credit, discount=train.discount),
    )  # fmt: skip


def _weights(weights: tables.Weights, keep: int) -> WeightsSettings:
    host, port = address(weights.listen, "weights.listen") if weights.listen else ("127.0.0.1", 0)
    return WeightsSettings(
        server=ServerSettings(host=host, port=port, token_file=weights.token_file if weights.listen else ""),
        pull=PullSettings(url=weights.source, token_file=weights.token_file if weights.source else "", keep=keep),
    )
