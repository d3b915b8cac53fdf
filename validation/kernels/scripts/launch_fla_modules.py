"""Launches of the layers of flash-linear-attention: norms, activations, convolutions, losses, rotary embeddings."""

import importlib
import inspect
import pkgutil
import sys

import fla.modules
import torch
from calls import call

R, C, V = 1024, 1024, 4096
SHAPES = {
    **dict.fromkeys(("x", "y", "dy", "g", "z", "gate", "input", "residual", "do", "target_x", "logits"), (2, 512, C)),
    **dict.fromkeys(("norm_weight", "norm_bias", "bias", "mean", "rstd"), (C,)),
    "linear_weight": (C, C), "linear_bias": (C,), "cos": (512, 32), "sin": (512, 32),
}  # fmt: skip
WEIGHTS = (
    {"weight": (C,)},
    {"weight": (C, 4)},
    {"weight": (V, C), "x": (R, C)},
    {"x": (2, 512, 4, 64)},
    {"x": (R, C), "dy": (R, C), "y": (R, C)},
)


def modules(package):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "ascend" in found.name or "backends" in found.name:
            continue
        try:
            yield importlib.import_module(found.name)
        except Exception as error:
            print(found.name, type(error).__name__, str(error)[:100], file=sys.stderr)


SEEN = set()
for module in modules(fla.modules):
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function) and function.__module__ == module.__name__ and function not in SEEN:
            SEEN.add(function)
            names = set(inspect.signature(function).parameters)
            if names & {"x", "logits", "input", "y"} and "_ref" not in name and not name.startswith("prepare"):
                target = torch.randint(0, C, (2, 512), device="cuda")
                for weights in WEIGHTS:
                    given = {
                        "target": target.view(-1)[:R],
                        "activation": "swish",
                        "eps": 1e-5,
                        "is_rms_norm": "rms" in name,
                        "labels": target.view(-1),
                    }
                    call(function, SHAPES | weights, **given)
                    call(function, SHAPES | weights | {"logits": (R, C)}, **given)
