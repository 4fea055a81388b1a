"""A CPU platform for verl, which ships none. verl itself imports this module if the environment says so.

Activated by `CPU_ENVIRONMENT` and nothing else: nothing of verl is patched. No streams, so no activation offload; only
`strategy="fsdp2"` works. For tests and toy models.
"""

# pyright: reportMissingImports=false
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _device_module() -> types.SimpleNamespace:
    """What verl calls on `torch.cuda`, for a device that has no memory of its own."""
    silent = ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats")
    empty = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    return types.SimpleNamespace(
        **dict.fromkeys(silent, _nothing),
        **dict.fromkeys(empty, _zero),
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: "cpu",
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        mem_get_info=lambda *_, **__: (0, 0),
        get_device_name=lambda *_, **__: "cpu",
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        Stream=torch.cpu.Stream,
        current_stream=torch.cpu.current_stream,
    )


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl's platform interface over the CPU and gloo."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # chosen by name only, never found by itself on a machine whose GPU is broken

    def current_device(self) -> str:
        return "cpu"  # verl hands this to `tensor.to`

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        return {"num_cpus": num_gpus}

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
