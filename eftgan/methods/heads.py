"""A classifier's heads and the features they read: what methods, the trainer and the evaluation look at."""

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn

from eftgan.adapters import TaskBank, named_banks, registry_of, shared_state, task_names, task_state
from eftgan.adapters.bank import Part, unwrap

CLASSIFIER = "classifier"


def head_bank_name(network: nn.Module) -> str:
    """Where the output layers are: the last bank whose modules are wholly per task."""
    return [name for name, bank in named_banks(network) if bank.part == "heads"][-1]


def head_bank(network: nn.Module) -> TaskBank:
    """The bank of the output layers."""
    return unwrap(network).get_submodule(head_bank_name(network))


def head_of(network: nn.Module, task: str) -> nn.Module:
    """The output layer of one task."""
    return head_bank(network).tasks[registry_of(network).row(task)["heads"]]


class HeadInput:
    """Where `head_input` leaves what the head has read."""

    features: Tensor  # (B, F), with graph


@contextlib.contextmanager
def head_input(network: nn.Module) -> Iterator[HeadInput]:
    """Note the pre-output features of every forward inside the block; works for any network."""
    noted = HeadInput()

    def note(bank: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        noted.features = inputs[0]

    hook = head_bank(network).register_forward_pre_hook(note)
    try:
        yield noted
    finally:
        hook.remove()


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[nn.Module]:
    """Eval mode inside the block; afterwards every module has its own mode again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield network
    finally:
        for module, mode in modes.items():
            module.training = mode


def train_heads(network: nn.Module, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """Let the heads of all tasks train as well: the trainable parameters with theirs."""
    heads = list(head_bank(network).tasks.parameters())
    for parameter in heads:
        parameter.requires_grad_(True)
    return list(dict.fromkeys([*parameters, *heads]))


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
