"""Per-task adapters for any network: insert, add, select, train, save, load, merge."""

from eftgan.adapters.bank import TaskBank, Tasks, named_banks, registry_of
from eftgan.adapters.config import PARTS, AdapterConfig
from eftgan.adapters.insert import Insertion, insert_adapters
from eftgan.adapters.layers import NotMergeable
from eftgan.adapters.merge import inference_network, merge_task, mergeable
from eftgan.adapters.mixing import BASE, Shares, at_strength, mixed_network, mixed_state
from eftgan.adapters.storage import (
    describe_adapters,
    fingerprint,
    load_shared,
    load_task,
    load_task_file,
    save_task,
    shared_state,
    task_state,
)
from eftgan.adapters.taskfile import TaskFile, read_task_file, write_task_file
from eftgan.adapters.tasks import (
    add_task,
    own_transforms,
    remove_task,
    select_task,
    task_modules,
    task_names,
    train_only,
    using_task,
)
from eftgan.adapters.together import Together
from eftgan.adapters.transforms import TRANSFORMS, ConvTransform, LinearTransform, Transform
from eftgan.adapters.upsampling import fuse_upsampling

__all__ = [
    "BASE",
    "PARTS",
    "TRANSFORMS",
    "AdapterConfig",
    "ConvTransform",
    "Insertion",
    "LinearTransform",
    "NotMergeable",
    "Shares",
    "TaskBank",
    "TaskFile",
    "Tasks",
    "Together",
    "Transform",
    "add_task",
    "at_strength",
    "describe_adapters",
    "fingerprint",
    "fuse_upsampling",
    "inference_network",
    "insert_adapters",
    "load_shared",
    "load_task",
    "load_task_file",
    "merge_task",
    "mergeable",
    "mixed_network",
    "mixed_state",
    "named_banks",
    "own_transforms",
    "read_task_file",
    "registry_of",
    "remove_task",
    "save_task",
    "select_task",
    "shared_state",
    "task_modules",
    "task_names",
    "task_state",
    "train_only",
    "using_task",
    "write_task_file",
]
