"""`known`: what a state directory and the warm start can tell about a batch; whatever is missing is left open."""

import json
from pathlib import Path

from learner.checkpoints import Checkpoints
from learner.errors import BatchFileInvalid
from learner.inspect import ANY, Known
from learner.settings import LearnerSettings


def known(settings: LearnerSettings, state: Checkpoints) -> Known:
    """Versions of `state`, limits of the model that trains there."""
    try:
        found = state.look(verify=False)
    except OSError:  # somebody else's directory, most likely
        found = None
    cursor = found.cursor if found is not None else None
    head = [state.versions.path(cursor.head)] if cursor is not None else []
    warm = [Path(settings.warm_start)] if settings.warm_start else []
    vocabulary, max_tokens = _limits([*head, *warm])
    if cursor is None or found is None:
        return Known(vocabulary=vocabulary, max_tokens=max_tokens)
    return Known(
        chain=cursor.chain,
        newest=max(found.versions),
        updates=cursor.updates,
        vocabulary=vocabulary,
        max_tokens=max_tokens,
    )


def tokenizer_file(given: Path | None, settings: LearnerSettings, state: Checkpoints) -> Path | None:
    """The tokenizer.json to read ids with, None if there is none.

    Args:
        given: what was asked for, a directory or the file.

    Raises:
        BatchFileInvalid: nothing is where `given` says.
    """
    if given is not None:
        path = given / "tokenizer.json" if given.is_dir() else given
        if not path.is_file():
            raise BatchFileInvalid(f"--tokenizer {given}: no tokenizer.json there")
        return path
    places = [Path(settings.warm_start)] if settings.warm_start else []
    try:
        places += [state.versions.path(version) for version in reversed(state.versions.numbers())]
        return next((path for place in places if (path := place / "tokenizer.json").is_file()), None)
    except OSError:
        return None


def _limits(checkpoints: list[Path]) -> tuple[int, int]:
    """Vocabulary and longest row, from the first config.json that can be read; no limits without."""
    for checkpoint in checkpoints:
        try:
            table = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
            return int(table["vocab_size"]), int(table.get("max_position_embeddings", ANY))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return ANY, ANY
