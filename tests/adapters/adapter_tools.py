"""What the adapter tests share: outputs of a task, a little training, random states, and a digest of everything."""

import hashlib

import torch
from torch import Tensor, nn

from eftgan.adapters import registry_of, task_names, train_only, using_task
from eftgan.adapters.bank import TaskBank
from eftgan.tensors import tensors_digest


def small_cnn() -> nn.Module:
    """Convolution with BatchNorm, a grouped and strided one, and a head: images (B, 3, 8, 8) -> (B, 5)."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 4 * 4, 6),
        nn.Linear(6, 5),
    )


def images(count: int = 4, size: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def output_of(model: nn.Module, task: str | tuple[str, ...] | None, x: Tensor) -> Tensor:
    """Eval output of a task; mode and selection are put back."""
    training = model.training
    with using_task(model, task), torch.no_grad():
        out = model.eval()(x)
    model.train(training)
    return out


def train(model: nn.Module, task: str, x: Tensor, *, shared: bool = False, steps: int = 2) -> None:
    """A few small steps of SGD towards some other output."""
    parameters = train_only(model, task, shared=shared)
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    model.train()
    with using_task(model, task):
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(x)
            (out - out.detach().roll(1) - 1).square().mean().backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 0) -> None:
    """Random values for every tensor of every task; statistics stay usable."""
    generator = torch.Generator().manual_seed(seed)
    for bank in model.modules():
        if isinstance(bank, TaskBank):
            for key, tensor in bank.tasks.state_dict().items():
                if tensor.is_floating_point():
                    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)
                    tensor.copy_(noise.abs() + 0.5 if key.endswith("running_var") else noise * 0.3)


def digest(model: nn.Module) -> str:
    """Everything that a failed call must leave as it is: tensors, tasks, selection, what trains."""
    registry = registry_of(model)
    facts = [
        tensors_digest(model.state_dict()),
        task_names(model),
        registry.rows,
        registry.made,
        registry.active_names,
        [p.requires_grad for p in model.parameters()],
        [name for name, _ in model.named_modules()],
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()
