"""The verl trainer on the CPU: what it computes, and what ranks do together."""

CPU_ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "tests.verl.cpu_platform",
    "VERL_ENGINE_DEVICE": "cuda",  # of the engines registered: the one for CUDA, which computes where its tensors are
}
"""Set before verl is imported, these make it compute on the CPU."""
