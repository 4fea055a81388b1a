"""Experience in the daemon: the navigator finds lessons, the experiencer draws, probes and tries them."""

from actors.experience.experiencer import Experiencer
from actors.experience.navigator import Navigator
from actors.experience.probing import Prober, engine_player
from actors.experience.retrieval.embedding import Embeddings
from actors.experience.skill_trials import SkillReplayer
from actors.kinds.kinds import Kinds
from actors.kinds.meanings import Meanings
from actors.ports.embedders import Embedder, words_alone
from actors.ports.environments import Environment
from daemon.collectors.experience import experience_figures
from daemon.collectors.navigator import navigator_figures
from daemon.composition.cluster import reading_along
from daemon.composition.wiring import LONG, Wiring


def meanings(wiring: Wiring, embedder: Embedder) -> Meanings:
    """What goals mean, for kinds: nothing where the embedder knows words alone."""
    if words_alone(embedder):
        return Meanings()
    return Meanings(Embeddings(embedder, wiring.parts.store))


def experience(wiring: Wiring, environment: Environment | None, embedder: Embedder, kinds: Kinds) -> Navigator:
    """What is learned without the weights."""
    config, parts = wiring.config, wiring.parts
    navigator = Navigator(
        config.navigator, store=parts.store, embedder=None if words_alone(embedder) else embedder,
        rng=wiring.rng("navigator"), rewriter=parts.adapter("rewriter", config.rewriter),
    )  # fmt: skip
    wiring.figures(navigator_figures, navigator)
    wiring.act(navigator, renews=True, meanwhile=reading_along(navigator.start, navigator.tick, 1.0))
    prober = tester = None
    if environment is not None:
        player = engine_player(parts.shadow, config.probe)
        prober = Prober(config.probe, environment=environment, player=player, clock=wiring.clock)
        tester = SkillReplayer(environment, config.probe.families)
    experiencer = Experiencer(
        config.experiencer, store=parts.store, prober=prober, clock=wiring.clock, embedder=embedder, tester=tester,
        extractor=parts.adapter("extractor", config.extractor), kinds=kinds,
    )  # fmt: skip
    wiring.figures(experience_figures, experiencer)
    wiring.act(experiencer, LONG, renews=True)
    return navigator
