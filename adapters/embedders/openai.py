"""`OpenAIEmbedder`: texts to vectors by any endpoint that speaks OpenAI's `POST /v1/embeddings`, a local vLLM included.

What it answers is checked before anybody sees it (`actors.ports.models`). An endpoint that is away, slow, or out
of order is `ModelUnavailable` after a bounded number of tries; an endpoint that understood and will not have a text
is `AnswerRefused`: then there is no use in asking for that text again.
"""

from collections.abc import Sequence

import anyio
import numpy as np
import numpy.typing as npt
import openai
from openai.types import CreateEmbeddingResponse

from actors.ports.errors import AnswerRefused, ModelUnavailable
from actors.ports.models import checked
from adapters.chat.keys import checked_url, read_key

_OPENAI = "https://api.openai.com/v1"
_REFUSALS = (400, 413, 422)
"""Statuses by which an endpoint says that the request, not the moment, is wrong."""


class OpenAIEmbedder:
    """An `Embedder` over HTTP.

    Args:
        base_url: with `/v1`; empty for OpenAI's.
        dimensions: asked of models that can be asked; 0 for the model's own, learned from the first answer.
        key_env, key_file: where the key is; `OPENAI_API_KEY` for OpenAI's, else none.
        batch: texts in a request.
        max_chars: of a text, from its beginning; what is longer than the model's context would be refused.
        retries: further tries after a timeout, a broken connection, 408, 409, 429 or 5xx, of `timeout` seconds each.

    Raises:
        ValueError: a number or an address that makes no sense, or an address with a password.
        AdapterNotSetUp: there is no key where one should be.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        dimensions: int = 0,
        key_env: str = "",
        key_file: str = "",
        batch: int = 128,
        max_chars: int = 8000,
        timeout: float = 10.0,
        retries: int = 2,
    ) -> None:
        if min(batch, max_chars, timeout) <= 0 or min(dimensions, retries) < 0:
            raise ValueError("embeddings: batch, max_chars and timeout are above 0; dimensions and retries not below")
        self._model, self._url, self._asked = model, base_url or _OPENAI, dimensions
        place = checked_url(self._url)
        if self._url == _OPENAI and not key_file:
            key_env = key_env or "OPENAI_API_KEY"
        self._key, self._key_named = read_key(key_env, key_file), key_file or key_env or "key_env or key_file"
        self._batch, self._max_chars, self._timeout, self._retries = batch, max_chars, timeout, retries
        self._client: openai.AsyncOpenAI | None = None
        self.id = f"openai:{place.hostname}:{place.port or ''}{place.path}/{model}" + (
            f":{dimensions}" if dimensions else ""
        )
        self.dimension = dimensions

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of `texts`, `(n, d)` float32 of length 1; `(0, d)` for no texts.

        Raises:
            ModelUnavailable: no answer within all tries, or the endpoint does not take the key or know the model.
            AnswerRefused: a text was not taken, or the answer is no good.
        """
        parts = [await self._ask(texts[start : start + self._batch]) for start in range(0, len(texts), self._batch)]
        if not parts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        first = parts[0].shape[1]
        vectors = np.concatenate([checked(part, len(part), first) for part in parts])
        self.dimension = first
        return vectors

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    async def _ask(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        # An empty input is refused by most endpoints, and with it all others of its request; half a surrogate pair has
        # no UTF-8.
        inputs = [text[: self._max_chars].encode("utf-8", "replace").decode() or " " for text in texts]
        where = f"embedder {self.id}"
        try:
            # The client's own waits between tries are bounded too, but by a server's word: hence the deadline over all.
            with anyio.fail_after(self._timeout * (self._retries + 1) + 10.0 * self._retries):
                answer = await self._connected().embeddings.create(
                    model=self._model,
                    input=inputs,
                    encoding_format="float",
                    dimensions=self._asked or openai.omit,
                )
        except (TimeoutError, openai.APITimeoutError) as error:
            raise ModelUnavailable(f"{where}: no answer within {self._retries + 1} tries") from error
        except openai.APIStatusError as error:
            if error.status_code in _REFUSALS:
                raise AnswerRefused(f"{where}: HTTP {error.status_code} for {len(texts)} texts") from error
            hint = f"; check {self._key_named}" if error.status_code in (401, 403) else ""
            raise ModelUnavailable(f"{where}: HTTP {error.status_code}{hint}") from error
        except (openai.OpenAIError, ValueError) as error:
            # Not the error's own text: it may quote the request, or its headers.
            raise ModelUnavailable(f"{where}: {type(error).__name__}") from error
        return checked(self._vectors(answer, len(texts)), len(texts), self._asked or None)

    def _vectors(self, answer: object, count: int) -> list[list[float]]:
        """The vectors of `answer` in the order of the texts."""
        data = answer.data if isinstance(answer, CreateEmbeddingResponse) else None
        if not isinstance(data, list):
            raise AnswerRefused(f"embedder {self.id}: the answer is not a list of embeddings")
        by_index = {getattr(one, "index", None): getattr(one, "embedding", None) for one in data}
        if len(data) != count or set(by_index) != set(range(count)):
            raise AnswerRefused(f"embedder {self.id}: {len(data)} vectors for {count} texts, or not one for each")
        return [by_index[number] for number in range(count)]  # type: ignore[misc]

    def _connected(self) -> openai.AsyncOpenAI:
        if self._client is None:
            self._client = openai.AsyncOpenAI(
                api_key=self._key or "none", base_url=self._url, timeout=self._timeout, max_retries=self._retries
            )
        return self._client
