"""Messages to token ids, as vLLM and transformers do it, id for id.

The chat template of the checkpoint is rendered in jinja2's sandbox with transformers' settings and filters; messages
are first brought into the form in which vLLM hands them to a template (text parts joined, arguments of tool calls
parsed). The text is tokenized whole: pieces tokenized apart need not give the same ids.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from actors.ports.errors import CheckpointRefused
from adapters.engines.embedded.requests import BadRequest

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Prompts:
    """Template and tokenizer of a checkpoint."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            CheckpointRefused: no tokenizer, no chat template, or one that does not compile.
        """
        try:
            self.tokenizer: Tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        except Exception as error:  # tokenizers raises bare Exception for every fault of the file
            raise CheckpointRefused(f"{directory}/tokenizer.json cannot be used: {error}") from error
        try:
            config = json.loads((directory / "tokenizer_config.json").read_bytes())
            file = directory / "chat_template.jinja"
            template = file.read_text(encoding="utf-8") if file.exists() else config["chat_template"]
            self._template = _environment().from_string(template)
        except (OSError, ValueError, KeyError, TypeError, TemplateError) as error:
            raise CheckpointRefused(f"{directory} has no chat template that can be used: {error!r}") from error
        named = {name: config[name] for name in _SPECIAL if config.get(name)}
        self._special = {name: t["content"] if isinstance(t, dict) else t for name, t in named.items()}
        end = self._special.get("eos_token")
        self.end_id: int | None = None if end is None else self.tokenizer.token_to_id(end)
        self._texts: dict[int, str] = {}

    def text(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, *, generate: bool = True) -> str:
        """The prompt. Raises BadRequest: a message that cannot be put into words, or that the template refuses."""
        if not messages:
            raise BadRequest("messages must not be empty", param="messages")
        plain = [_message(message, i) for i, message in enumerate(messages)]
        try:
            return self._template.render(
                messages=plain, tools=tools or None, documents=None, add_generation_prompt=generate, **self._special
            )
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise BadRequest(f"the chat template does not take these messages: {error}", param="messages") from error

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int], *, special: bool = False) -> str:
        """Text of `ids`, special tokens shown or left out."""
        return self.tokenizer.decode(ids, skip_special_tokens=not special)

    def token(self, token: int) -> str:
        """The text of one id on its own."""
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self.tokenizer.decode([token], skip_special_tokens=False)
        return text


class Writer:
    """Turns ids into text while they come: whole characters only, though a character may span tokens."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._ids: list[int] = []
        self._shown = ""
        self._start = 0

    def add(self, ids: list[int], *, last: bool = False) -> str:
        """The text that `ids` add; what ends in half a character waits for the rest, unless this is the last."""
        self._ids += ids
        # The token before the new ones stays in view: a tokenizer may join tokens differently at a start.
        text = self._prompts.decode(self._ids[self._start :])
        if text.endswith("\ufffd") and not last:
            return ""
        new = text[len(self._shown) :]
        self._start = max(0, len(self._ids) - 1)
        self._shown = self._prompts.decode(self._ids[self._start :])
        return new


def _environment() -> ImmutableSandboxedEnvironment:
    """jinja2 as transformers sets it up for chat templates."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # jinja2's own filter escapes for HTML, which no model was trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _message(message: dict[str, Any], index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    role = message.get("role")
    if not isinstance(role, str):
        raise BadRequest(f"{where} has no role", param=f"{where}.role")
    plain: dict[str, Any] = {"role": role, "content": _content(message.get("content"), where)}
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            plain[key] = message[key]
    calls = message.get("tool_calls")
    if role == "assistant" and calls:
        if not isinstance(calls, list):
            raise BadRequest(f"{where}.tool_calls is not a list", param=f"{where}.tool_calls")
        plain["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return plain


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content
    ):
        return "\n".join(part["text"] for part in content)
    raise BadRequest(f"{where}.content must be text, or parts of type text", param=f"{where}.content")


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"{where} has no function with a name", param=where)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments else {}
        except ValueError as error:
            raise BadRequest(f"{where}.function.arguments is no JSON: {error}", param=where) from error
    return {**call, "function": {**function, "arguments": {} if arguments is None else arguments}}
