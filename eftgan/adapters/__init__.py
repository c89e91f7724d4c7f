"""Per-task EFT adapters for any network: insert, add, select, train, save, load, merge."""

from eftgan.adapters.bank import PARTS, TaskBank, Tasks, named_banks, registry_of
from eftgan.adapters.insert import AdapterConfig, Insertion, insert_adapters
from eftgan.adapters.merge import merge_task
from eftgan.adapters.storage import (
    fingerprint,
    load_shared,
    load_task,
    load_task_file,
    save_task,
    shared_state,
    task_state,
)
from eftgan.adapters.tasks import add_task, remove_task, select_task, task_modules, task_names, train_only, using_task
from eftgan.adapters.together import Together
from eftgan.adapters.transforms import ConvTransform, LinearTransform

__all__ = [
    "PARTS",
    "AdapterConfig",
    "ConvTransform",
    "Insertion",
    "LinearTransform",
    "TaskBank",
    "Tasks",
    "Together",
    "add_task",
    "fingerprint",
    "insert_adapters",
    "load_shared",
    "load_task",
    "load_task_file",
    "merge_task",
    "named_banks",
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
]
