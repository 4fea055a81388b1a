"""The model in a worker's memory: fed from a checkpoint, and put together again after a failure.

Everything that knows vLLM's insides is here. Used of it: `model_runner.reload_weights` and `get_model`, the layerwise
reload's bookkeeping (to undo a reload that broke off), `cpu_linear` of packed layers, and `model_runner.kv_caches`.
"""

from collections.abc import Iterator
from typing import Any

import torch

from .checkpoint import Checkpoint

_VIEWS = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "BOOL": torch.bool}


class Model:
    """The model of one worker. Every method must run between two forward passes, as `/collective_rpc` does."""

    def __init__(self, worker: Any) -> None:
        self._worker, self._runner = worker, worker.model_runner

    def feed(self, checkpoint: Checkpoint) -> None:
        """Load every tensor; afterwards the worker's configuration names the new directory, as after vLLM's own
        reload. Raises RuntimeError: a part of the model was not given its weights; Exception: whatever vLLM raises;
        the model may then be incomplete, see `mend`."""
        self._runner.reload_weights(weights_iterator=_tensors(checkpoint), is_checkpoint_format=True)
        model = self._runner.get_model()
        self._repack_tied_head(model)
        missing = [name for name, tensor in _held(model) if tensor.is_meta]
        if missing:
            raise RuntimeError(f"no weights for {', '.join(missing[:5])}")
        config = self._worker.vllm_config.model_config
        config.model, config.revision = checkpoint.path, None
        if hasattr(config, "model_weights"):
            config.model_weights = ""

    def _repack_tied_head(self, model: torch.nn.Module) -> None:
        """On a CPU the head computes with a packed copy, which a reload does not renew if it shares the embedding."""
        embeddings: dict[int, Any] = {}
        layers: Iterator[Any] = model.modules()
        for layer in layers:
            method = getattr(layer, "quant_method", None)
            if not hasattr(method, "tie_weights") or not layer.weight.numel():
                continue
            other = embeddings.setdefault(layer.weight.data_ptr(), layer)
            for tied in (layer, other) if other is not layer else ():
                if hasattr(tied, "cpu_linear"):
                    tied.quant_method.process_weights_after_loading(tied)

    def mend(self) -> None:
        """Undo the bookkeeping of a reload that broke off: layers that were not reached get their old tensors back.

        The others keep their new ones: feed a good checkpoint next.
        """
        from vllm.model_executor.model_loader.reload import layerwise  # pyright: ignore[reportMissingImports]

        for layer in self._runner.get_model().modules():
            info = layerwise.get_layerwise_info(layer)
            if info.can_load() and info.kernel_tensors is not None:
                layerwise._place_kernel_tensors(layer, info)
            info.reset()

    def clean_cache(self) -> int:
        """Zero every KV block; returns the bytes. NaN that bad weights left there would poison whoever gets the block.

        Only while the engine is paused and its requests were told to compute their cache anew.
        """
        done = 0
        waiting: list[Any] = [getattr(self._runner, "kv_caches", [])]
        while waiting:
            item = waiting.pop()
            if isinstance(item, torch.Tensor):
                item.zero_()
                done += item.numel() * item.element_size()
            elif isinstance(item, dict):
                waiting.extend(item.values())
            elif isinstance(item, list | tuple):
                waiting.extend(item)
        return done


def _held(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors over the mapped pages, nothing copied. Neighbours in the model follow each other, as they lie in the
    file: the loader holds a layer's parts until it has all of them."""
    for name, tensor in checkpoint.tensors.items():
        made = torch.from_numpy(tensor.data)
        view = _VIEWS.get(tensor.dtype)
        yield name, made if view is None else made.view(view)
