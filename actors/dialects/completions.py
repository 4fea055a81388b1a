"""`/v1/completions`: choices as in a chat, with a text in place of a message."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from actors.dialects import chat
from actors.dialects.conversation import Conversation, Item, dicts

merge = partial(chat.merge, text=True)
ended = chat.ended
tokens = partial(chat.tokens, where="/v1/completions")


def read(request: Mapping[str, Any], response: Mapping[str, Any]) -> Conversation:
    """The prompt is one thing that a user said, whatever the client's template put into it."""
    prompt = request.get("prompt")
    text = prompt if isinstance(prompt, str) else ""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        text = prompt[0]
    answers = [(choice.get("text"), chat.cut_at_limit(choice)) for choice in dicts(response.get("choices"))]
    return Conversation(
        items=[Item("user", text)] if prompt else [],
        answers=[Item("assistant", answer, cut=cut) for answer, cut in answers if isinstance(answer, str)],
    )
