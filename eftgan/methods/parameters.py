"""Which tensors tasks have in common, and which belong to others."""

from torch import Tensor, nn

from eftgan.adapters import named_banks, shared_state, task_names, task_state
from eftgan.adapters.bank import Part


def train_all_tasks(network: nn.Module) -> list[nn.Parameter]:
    """Let what every task owns train beside what trains already: all trainable parameters."""
    for _, bank in named_banks(network):
        bank.tasks.requires_grad_(True)
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def parameters_in_common(network: nn.Module, owned: set[Part]) -> dict[str, nn.Parameter]:
    """Parameters that every task uses: all but the tasks' own parts and the patterns that these started from."""
    apart: set[nn.Parameter] = set()
    for _, bank in named_banks(network):
        if bank.mode == "replace":
            apart |= set(bank.layer.parameters())
        if bank.part in owned:
            apart |= set(bank.tasks.parameters())
    return {name: parameter for name, parameter in network.named_parameters() if parameter not in apart}


def state_of_others(network: nn.Module, task: str, theta: bool) -> dict[str, Tensor]:
    """Tensors of every other task, and theta if asked: what a frozen base must leave as it is."""
    parts = {f"task {other}": task_state(network, other) for other in task_names(network) if other != task}
    if theta:
        parts["theta"] = shared_state(network)
    return {f"{part}: {key}": tensor for part, state in parts.items() for key, tensor in state.items()}
