"""PyTorch: writes into the cache without asking the device for the position; its own ways from and to NumPy."""

import numpy as np
import torch

from xformer import padding


def write(cache, new, position):
    rows = torch.arange(new.shape[-2], device=cache.device) + position
    return cache.index_copy_(cache.ndim - 2, rows, new)


def places(mask):
    return None if torch.compiler.is_compiling() else padding.of_values(mask)  # a compiled graph has fixed shapes


def from_numpy(array, device):
    array = np.require(array, requirements=["W"])  # a tensor over read-only memory could be written to
    if array.dtype.name == "bfloat16":  # NumPy's is an extension type
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)


def to_numpy(x):
    x = x.detach().to("cpu")
    return x.view(torch.uint16).numpy().view("bfloat16") if x.dtype == torch.bfloat16 else x.numpy()


def devices():
    kinds = {"cuda": torch.cuda, "xpu": torch.xpu, "mps": torch.mps}
    found = [f"{kind}:{index}" for kind, module in kinds.items() for index in range(module.device_count())]
    return {name: torch.device(name) for name in ["cpu", *found]}
