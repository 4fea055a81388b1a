"""A reload that breaks off half way, in vLLM's own interpreter: what the plug-in puts together again.

Run by tests/vllm/test_plugin.py with vLLM's environment; prints what it found as JSON.
"""

import json
from types import SimpleNamespace

import torch
from evolved_vllm.model import Model
from vllm.model_executor.model_loader.reload import layerwise


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).requires_grad_(False)
    layerwise.record_metadata_for_reloading(model)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}

    def reload(weights: dict[str, torch.Tensor]) -> None:
        layerwise.initialize_layerwise_reload(model)
        for name, tensor in weights.items():
            parameter = dict(model.named_parameters())[name]
            parameter.weight_loader(parameter, tensor)
        layerwise.finalize_layerwise_reload(model, SimpleNamespace(dtype=torch.float32))

    good = {name: torch.full_like(tensor, 2.0) for name, tensor in before.items()}
    bad = {"0.weight": good["0.weight"], "0.bias": good["0.bias"], "1.weight": torch.zeros(5, 5)}
    mended = Model(SimpleNamespace(model_runner=SimpleNamespace(get_model=lambda: model)))
    found: dict[str, object] = {}
    try:
        reload({**bad, "1.bias": good["1.bias"]})
        found["broke_off"] = False
    except Exception:
        found["broke_off"] = True
    found["on_meta"] = any(tensor.is_meta for tensor in model.parameters())
    mended.mend()
    found["on_meta_after"] = any(tensor.is_meta for tensor in model.parameters())
    found["untouched_layer_is_old"] = torch.equal(model[1].weight, before["1.weight"])
    reload(good)
    found["good_reload_takes"] = all(torch.equal(tensor, good[name]) for name, tensor in model.named_parameters())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
