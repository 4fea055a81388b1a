"""One chat endpoint as adapters need it: bounded in time, tries, bytes and money, whatever is at the other end.

The `openai` client does the talking; it lives on anyio, so trio and asyncio both will do. What comes back is one of
three: an answer, a `Reply` that says why there is none to be had (asking again would not help, say), or
`ModelUnavailable` (asking later helps). Structured output is found out once: `json_schema`, else `json_object`, else
none, and remembered.
"""

import email.utils
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
import openai

from actors.ports.errors import ModelUnavailable
from adapters.chat.settings import EndpointSettings

Mode = Literal["json_schema", "json_object", "text"]
_MODES: tuple[Mode, ...] = ("json_schema", "json_object", "text")
_TRANSIENT = frozenset({408, 409, 423, 425, 429})
_REFUSED_AS_ASKED = frozenset({400, 413, 415, 422, 501})
"""The endpoint understood and will not answer this; asking the same again is no use."""
_OF_FORMAT = re.compile(r"response_format|json_schema|json_object|structured.?output|guided|grammar", re.IGNORECASE)
_OF_LENGTH = re.compile(r"context.?(length|window)|too (long|large|many tokens)|maximum.{0,20}tokens", re.IGNORECASE)
_OF_CONTENT = re.compile(r"content.?(filter|policy|management)|safety", re.IGNORECASE)
_ANSWER_BYTES, _COMPLAINT_BYTES = 1 << 20, 1 << 14
_TOKENS_BELIEVED = 10_000_000
_CHARS_PER_TOKEN = 3.0
"""For an endpoint that does not say what it used: on the high side for English and code, so that a budget holds."""
_MODELS = 16
"""Names of models that are told apart; an endpoint that makes up a new one each time has one more, `other`."""
_PLAIN = re.compile(r"[^\w.:/@-]+")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one request brought."""

    content: str = ""
    problem: str = ""
    """Why there is no content: refused, rejected, too_long, too_large, not_json, empty. Empty if there is."""
    truncated: bool = False
    model: str = ""
    """That answered, by its own word."""
    tokens: int = 0
    """Prompt and answer."""
    cost: float = 0.0


class _Declined(Exception):
    """An answer whose status is no success, with as much of its body as one reads of a complaint."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        super().__init__(status)
        self.status, self.headers, self.text = status, headers, text


class _TryAgain(Exception):
    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class ChatEndpoint:
    """Chat completions at one URL; `aclose()` at the end."""

    def __init__(self, settings: EndpointSettings, *, key: str, rng: random.Random, clock: Callable[[], float]) -> None:
        self._settings, self._rng, self._clock = settings, rng, clock
        self._mode: Mode | None = None
        self.counts: Counter[str] = Counter()
        """What happened, by reason."""
        self.models: list[str] = []
        """Models that answered, in the order in which they were first seen."""
        self._latest = ""
        self._client = openai.AsyncOpenAI(
            base_url=settings.url,
            api_key=key or "none",  # the client insists on one
            max_retries=0,  # ours know Retry-After beyond a minute, and the deadline
            timeout=settings.timeout,
            # Elsewhere nobody was told to send trajectories to; and an error's body is read here, within bounds.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"response": [_decline]}),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, deadline: float
    ) -> Reply:
        """The model's answer to `messages`.

        Args:
            schema: JSON schema of the answer, for endpoints that hold a model to one; None for free text.
            deadline: time of the event loop when waiting ends, attempts included.

        Raises:
            ModelUnavailable: no answer within deadline and attempts, or one that says that it is the wrong door.
        """
        why, after = "no time was left", 0.0
        for attempt in range(self._settings.attempts):
            left = deadline - anyio.current_time()
            if left <= 0:
                break
            try:
                with anyio.fail_after(min(self._settings.timeout, left)):
                    return await self._once(messages, schema)
            except TimeoutError:
                self.counts["timeout"] += 1
                why, after = f"no answer within {min(self._settings.timeout, left):.3g} s", 0.0
            except _TryAgain as error:
                why, after = str(error), error.after
            pause = max(after, self._settings.backoff * 2.0**attempt * self._rng.uniform(0.5, 1.0))
            if attempt + 1 == self._settings.attempts or anyio.current_time() + pause >= deadline:
                break
            self.counts["retried"] += 1
            await anyio.sleep(pause)
        self.counts["unavailable"] += 1
        raise ModelUnavailable(f"{self._settings.model} at {self._settings.url}: {why}")

    async def _once(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> Reply:
        """One request; more while it is not known which kinds of structured output the endpoint has."""
        known = self._mode if schema is not None else "text"
        for mode in (known,) if known else _MODES:
            try:
                body = await self._post(messages, schema, mode)
            except _Declined as declined:
                asked_for_format = mode != "text" and _OF_FORMAT.search(declined.text) is not None
                if known and asked_for_format:
                    self._mode = None  # another server stands there now; find out anew the next time
                    raise _TryAgain(f"{mode} is not taken any more") from None
                if mode != "text" and (asked_for_format or declined.status in _REFUSED_AS_ASKED):
                    continue
                return self._declined(declined)
            if not known:
                self._mode = mode
                self.counts[f"speaks_{mode}"] += 1
            return self._reply(body, messages)
        raise AssertionError("text is never skipped")

    async def _post(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, mode: Mode
    ) -> bytes | None:
        """The body of the answer, None if it is larger than any answer can be."""
        self.counts["requests"] += 1
        try:
            async with self._client.chat.completions.with_streaming_response.create(
                model=self._settings.model,
                messages=[dict(message) for message in messages],  # pyright: ignore[reportArgumentType]
                extra_body=self._fields(schema, mode),
            ) as response:
                return await self._body(response.iter_bytes())
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, _Declined):
                raise error.__cause__ from None
            raise _TryAgain(f"cannot be reached: {type(error.__cause__ or error).__name__}") from error
        except openai.APIStatusError as error:
            raise _Declined(error.status_code, error.response.headers, str(error)) from error

    async def _body(self, pieces: Any) -> bytes | None:
        body = bytearray()
        try:
            async for piece in pieces:
                body += piece
                if len(body) > _ANSWER_BYTES:
                    return None
        # Whatever the client's transport calls it (httpx or httpx2, by its version): the answer broke off, or its
        # framing or compression cannot be read.
        except Exception as error:
            raise _TryAgain(f"the answer broke off: {type(error).__name__}") from error
        return bytes(body)

    def _fields(self, schema: Mapping[str, Any] | None, mode: Mode) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "max_tokens": self._settings.max_tokens,
            "temperature": self._settings.temperature,
        }
        if mode == "json_schema" and schema is not None:
            described = {"name": "answer", "strict": True, "schema": dict(schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": described}
        elif mode == "json_object":
            fields["response_format"] = {"type": "json_object"}
        fields = {name: value for name, value in fields.items() if name not in self._settings.omit}
        return {**fields, **self._settings.extra}

    def _declined(self, declined: _Declined) -> Reply:
        """What a status other than success means.

        Raises:
            _TryAgain: it may pass by itself.
            ModelUnavailable: somebody has to change a setting.
        """
        status, settings = declined.status, self._settings
        self.counts[f"status_{status}"] += 1
        if status in _REFUSED_AS_ASKED:
            if _OF_CONTENT.search(declined.text):
                return Reply(problem="refused")
            return Reply(problem="too_long" if status == 413 or _OF_LENGTH.search(declined.text) else "rejected")
        if status in _TRANSIENT or status >= 500:
            raise _TryAgain(f"status {status}", self._retry_after(declined.headers.get("retry-after", "")))
        remedy = {
            401: "the key is refused; look at key_env or key_file",
            402: "it wants to be paid",
            403: "the key may not use this model; look at key_env, key_file and model",
            404: "there is no such model or path; look at url, which ends in /v1 as a rule, and model",
        }.get(status, "it redirects; name the final address in url" if 300 <= status < 400 else "look at url")
        self.counts["unavailable"] += 1
        raise ModelUnavailable(f"{settings.model} at {settings.url}: status {status}: {remedy}")

    def _retry_after(self, value: str) -> float:
        """Seconds (RFC 9110, 10.2.3): a number or a date; 0 if it is neither."""
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - self._clock()
            except (ValueError, TypeError, OverflowError):
                return 0.0
        return min(max(seconds, 0.0), 86_400.0) if math.isfinite(seconds) else 0.0

    def _reply(self, body: bytes | None, messages: Sequence[Mapping[str, str]]) -> Reply:
        problem, content, truncated, model, usage = "too_large", "", False, "", None
        if body is not None:
            try:
                answer = msgspec.json.decode(body)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                answer, problem = None, "not_json"
            if isinstance(answer, dict):
                problem, content, truncated = _choice(answer)
                usage = answer.get("usage")
                model = self._model(answer.get("model"))
            else:
                problem = "not_json"
        used_in, used_out = self._usage(usage, messages, content)
        price = self._settings.price
        cost = (used_in * price.input + used_out * price.output) / 1e6
        return Reply(
            content=content, problem=problem, truncated=truncated, model=model, tokens=used_in + used_out, cost=cost
        )

    def _usage(self, usage: Any, messages: Sequence[Mapping[str, str]], content: str) -> tuple[int, int]:
        """Tokens in and out: as the endpoint says, else estimated from above, and counted as such."""
        told = usage if isinstance(usage, dict) else {}
        found = [told.get(name) for name in ("prompt_tokens", "completion_tokens")]
        believed = [n for n in found if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _TOKENS_BELIEVED]
        if len(believed) == 2:
            return believed[0], believed[1]
        self.counts["usage_estimated"] += 1
        asked = sum(len(message["content"]) for message in messages)
        return math.ceil(asked / _CHARS_PER_TOKEN), math.ceil(len(content) / _CHARS_PER_TOKEN)

    def _model(self, said: Any) -> str:
        """The model that answered; the first time that it is another than before is counted."""
        model = (_PLAIN.sub("_", said)[:100] if isinstance(said, str) else "") or self._settings.model
        if model not in self.models:
            if len(self.models) >= _MODELS:
                model = "other"
            if model not in self.models:
                self.models.append(model)
        if self._latest and model != self._latest:
            self.counts["model_changed"] += 1
        self._latest = model
        return model


async def _decline(response: Any) -> None:
    """Hook: an answer that is no success is an exception, its body read within bounds."""
    if response.is_success:
        return
    text = bytearray()
    async for piece in response.aiter_bytes():
        text += piece
        if len(text) >= _COMPLAINT_BYTES:
            break
    raise _Declined(response.status_code, response.headers, text[:_COMPLAINT_BYTES].decode("utf-8", "replace"))


def _choice(answer: dict[str, Any]) -> tuple[str, str, bool]:
    """(problem, content, truncated) of the first choice."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return "not_json", "", False
    finish, content = choice.get("finish_reason"), message.get("content")
    if message.get("refusal") or finish == "content_filter":
        return "refused", "", False
    if not isinstance(content, str) or not content.strip():
        return "truncated" if finish == "length" else "empty", "", False
    return "", content, finish == "length"
