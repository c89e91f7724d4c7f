"""All tasks in one pass: the same answers as task by task."""

import pytest
import torch
from adapter_tools import digest, images, output_of, randomise, small_cnn
from torch import Tensor, nn

from eftgan.adapters import AdapterConfig, Together, add_task, insert_adapters
from eftgan.adapters.together import SAMPLES_AT_ONCE
from eftgan.errors import UserError
from eftgan.models.classifiers import build_classifier
from eftgan.models.gans.stackgan import Discriminator, Generator, StackGan

TASKS = ["one", "two", "three"]


class TwoReaders(nn.Module):
    """The input is read by two layers, so it must come once for every task."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) * self.second(x)


class DataDependent(nn.Module):
    """torch.fx cannot follow it: nothing is folded, the answers are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_cnn()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if len(x) > 0 else x


def adapted(network: nn.Module, head_sizes=(None, None, None), **options) -> nn.Module:
    insert_adapters(network, AdapterConfig(**({"a": 4, "b": 2} | options)))
    for name, size in zip(TASKS, head_sizes, strict=True):
        add_task(network, name, head_size=size)
    network.double()
    randomise(network)
    return network


NETWORKS = {
    "cnn": lambda: (adapted(small_cnn()), images()),
    "cnn-parallel": lambda: (adapted(small_cnn(), mode="parallel"), images()),
    "cnn-pointwise": lambda: (adapted(small_cnn(), a=0), images()),
    "cnn-apart": lambda: (adapted(small_cnn(), a=1, b=4), images()),
    "two-readers": lambda: (adapted(TwoReaders()), images()),
    "no-graph": lambda: (adapted(DataDependent()), images()),
    "resnet": lambda: (adapted(build_classifier("resnet8", 3), (3, 2, 5), heads=("head",)), images(size=16)),
    "resnet-heads-only": lambda: (
        adapted(build_classifier("resnet8", 3), heads=("head",), parts=("heads",)), images(size=16),
    ),
    "cnn-batche": lambda: (adapted(small_cnn(), kind="batche"), images()),
    "no-graph-batche": lambda: (adapted(DataDependent(), kind="batche"), images()),
    "resnet-batche": lambda: (
        adapted(build_classifier("resnet8", 3), (3, 2, 5), heads=("head",), kind="batche"), images(size=16),
    ),
    "convolution-as-head": lambda: (
        adapted(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 6)), (2, 3, 1), heads=("1",)), images(),
    ),
    "volumes": lambda: (
        adapted(nn.Sequential(nn.Unflatten(2, (4, 2)), nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4))), images(),
    ),
    "discriminator": lambda: (adapted(Discriminator(32, 4), heads=("logits",)), images(size=32)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_every_task_answers_as_it_does_alone(name):
    network, x = NETWORKS[name]()
    x, before = x.double(), digest(network.train())
    answers = Together(network, TASKS)(x)
    assert digest(network) == before
    assert network.training
    for task, answer in zip(TASKS, answers, strict=True):
        alone = output_of(network, task, x)
        assert answer.shape == alone.shape
        assert torch.allclose(answer, alone, rtol=1e-9, atol=1e-9)
    assert len({float(answer.flatten()[0]) for answer in answers}) == len(TASKS)


@pytest.mark.parametrize(
    ("inputs", "passes"), [(SAMPLES_AT_ONCE // 3, [3]), (SAMPLES_AT_ONCE // 2, [2, 1]), (SAMPLES_AT_ONCE + 1, [1] * 3)]
)
def test_the_more_inputs_the_fewer_tasks_share_a_pass(inputs, passes):
    network, _ = NETWORKS["resnet"]()
    x = images(inputs, size=16).double()
    together, rows = Together(network, TASKS), []
    together.network.head.register_forward_hook(lambda layer, given, out: rows.append(len(out)))
    for task, answer in zip(TASKS, together(x), strict=True):
        assert torch.allclose(answer, output_of(network, task, x), rtol=1e-9, atol=1e-9)
    assert rows == [inputs * tasks for tasks in passes]


def test_every_sample_has_its_own_task():
    network, x = NETWORKS["resnet"]()
    x = images(7, size=16).double()
    tasks = torch.tensor([2, 0, 2, 2, 0, 0, 2])  # the second task is not asked at all
    answers = Together(network, TASKS).mixed(x, tasks)
    assert answers.shape == (7, 5)
    for answer, image, task in zip(answers, x, tasks, strict=True):
        alone = output_of(network, TASKS[task], image[None])[0]
        assert torch.allclose(answer[: len(alone)], alone, rtol=1e-9, atol=1e-9)
        assert (answer[len(alone) :] == -torch.inf).all()
    assert Together(network, TASKS).mixed(x, torch.zeros(7, dtype=torch.int64)).shape == (
        7,
        5,
    )  # whoever is in the batch


def test_a_mixed_batch_draws_from_several_tasks_at_once():
    network = adapted(Generator(StackGan(stages=2, base_size=32, ngf=4, z_dim=8)))
    z, tasks = torch.randn(5, 8, dtype=torch.float64), torch.tensor([1, 0, 2, 1, 0])
    together = Together(network, TASKS)
    many = torch.randn(SAMPLES_AT_ONCE + 1, 8, dtype=torch.float64)
    for task, stages in zip(TASKS, together(many), strict=True):
        for drawn, alone in zip(stages, output_of(network, task, many), strict=True):
            assert torch.allclose(drawn, alone, rtol=1e-7, atol=1e-9)
    for stage, drawn in enumerate(together.mixed(z, tasks)):
        for image, noise, task in zip(drawn, z, tasks, strict=True):
            assert torch.allclose(image, output_of(network, TASKS[task], noise[None])[stage][0], rtol=1e-7, atol=1e-9)
    for task, stages in zip(TASKS, together(z), strict=True):
        assert torch.allclose(stages[-1], output_of(network, task, z)[-1], rtol=1e-7, atol=1e-9)


def test_the_layer_that_reads_the_input_runs_once():
    network, x = NETWORKS["resnet"]()
    together, rows = Together(network, TASKS), []
    together.network.stem[0].layer.register_forward_hook(lambda layer, given, out: rows.append(len(out)))
    together(x.double())
    together.mixed(x.double(), torch.tensor([0, 1, 2, 0]))
    assert rows == [len(x), len(x)]


@pytest.mark.parametrize("name", ["resnet", "resnet-batche"])
def test_batchnorms_are_folded_into_what_tasks_own(name):
    network, _ = NETWORKS[name]()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in Together(network, TASKS).modules())


@pytest.mark.parametrize("tasks", [[0, 1], [0, 1, 3, 0], [0, -1, 0, 0], [[0], [0], [0], [0]]])
def test_wrong_task_numbers_are_refused(tasks):
    network, x = NETWORKS["cnn"]()
    with pytest.raises(ValueError, match="one number below 3 is needed for each of the 4 samples"):
        Together(network, TASKS).mixed(x.double(), torch.tensor(tasks))


def test_unknown_and_no_tasks_are_refused():
    network, _ = NETWORKS["cnn"]()
    with pytest.raises(UserError, match="no task 'four'"):
        Together(network, ["one", "four"])
    with pytest.raises(UserError, match="no tasks"):
        Together(network, [])
