"""Which tasks a model has and what they share, as JSON: a fresh model then takes the state dict of a grown one."""

from typing import Any

from torch import nn

from eftgan.adapters.bank import named_banks, registry_of
from eftgan.adapters.config import PARTS
from eftgan.adapters.layers import outputs_of, resize_head
from eftgan.errors import UserError
from eftgan.names import check_task_name


def task_layout(model: nn.Module) -> dict[str, Any]:
    """The model's tasks, the keys of their modules, and the sizes of their heads."""
    registry = registry_of(model)
    heads = {
        name: {key: outputs_of(head) for key, head in bank.tasks.items()}
        for name, bank in named_banks(model)
        if bank.part == "heads"
    }
    return {"made": registry.made, "rows": registry.rows, "heads": heads}


def restore_layout(model: nn.Module, layout: dict[str, Any]) -> None:
    """Give a model without tasks the tasks of a layout; their tensors come by load_state_dict."""
    registry = registry_of(model)
    if registry.rows:
        raise UserError(f"a layout needs a model without tasks; this one has: {', '.join(registry.rows)}")
    rows = {check_task_name(name): {part: row[part] for part in PARTS} for name, row in layout["rows"].items()}
    for bank_name, bank in named_banks(model):
        for key in dict.fromkeys(row[bank.part] for row in rows.values()):
            module = bank.new_module()
            outputs = layout["heads"].get(bank_name, {}).get(key)
            if bank.part == "heads" and outputs not in (None, outputs_of(module)):
                resize_head(module, outputs)
            bank.tasks[key] = module
    registry.rows, registry.made = rows, layout["made"]
