"""eftgan: continual-learning GANs and classifiers with Efficient Feature Transformations (CVPR 2021).

The verbs of the adapter library stand here, so that `import eftgan` is enough for any network:

    insert_adapters(net, AdapterConfig(a=8, b=16, heads=("fc",)))
    add_task(net, "cats"); train_only(net, "cats", shared=True)    # task one trains everything
    add_task(net, "birds"); train_only(net, "birds")               # later tasks train only their own
    with using_task(net, "cats"): net(x)                           # bit-identical to before
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_VERBS = (
    "AdapterConfig", "Together", "add_task", "fingerprint", "inference_network", "insert_adapters", "load_shared",
    "load_task", "load_task_file", "merge_task", "remove_task", "save_task", "select_task", "shared_state",
    "task_names", "task_state", "train_only", "using_task", "fuse_upsampling",
)  # fmt: skip

__all__ = ["UserError", "growth", "load_generator", "load_run", *_VERBS]


def __getattr__(name: str) -> Any:
    """Import on first use: reports and `--help` need no torch."""
    if name in _VERBS:
        return getattr(importlib.import_module("eftgan.adapters"), name)
    if name == "load_generator":
        return importlib.import_module("eftgan.gan.export").load_generator
    if name == "load_run":
        return importlib.import_module("eftgan.kinds").load_run
    if name == "growth":
        return importlib.import_module("eftgan.evaluation.growth").growth
    if name == "UserError":
        return importlib.import_module("eftgan.errors").UserError
    raise AttributeError(f"module 'eftgan' has no attribute {name!r}")
