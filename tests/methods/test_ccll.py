"""CCLL: a spatial and a channel-wise calibration per task and convolution, for classifiers and for GANs."""

import pytest
import torch
from torch import nn

from eftgan.adapters import AdapterConfig, ConvTransform, add_task, insert_adapters, task_state, using_task
from eftgan.adapters.gates import ChannelGate
from eftgan.adapters.transforms import LinearTransform
from eftgan.commands import main
from eftgan.evaluation.growth import growth_of
from eftgan.gan.export import export_generator, load_generator
from eftgan.gan.kind import train_gan
from eftgan.methods.ccll import Ccll
from eftgan.models.classifiers import CLASSIFIERS
from eftgan.names import CLASSIFIER
from eftgan.scores import read_scores
from eftgan.tensors import read_tensors

CALIBRATED = Ccll().banks(CLASSIFIER, AdapterConfig(heads=("head",)))


class OneChannel(nn.Module):
    """Images (B, 1, 3, 3) -> a 1x1 convolution that changes nothing, BatchNorm -> a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1, eps=0.0)
        nn.init.ones_(self.conv.weight)
        self.head = nn.Conv2d(1, 1, 1)

    def maps(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.maps(x))


def test_maps_are_calibrated_in_space_normalised_and_weighed_by_channel():
    network = OneChannel().eval()
    insert_adapters(network, CALIBRATED)
    add_task(network, "one")
    spatial, gate = network.conv.tasks["t001"], network.norm.tasks["t001"]
    gate.reset_parameters()
    gate.norm.eps = 0.0
    with torch.no_grad():
        spatial.spatial.weight[0, 0, 1, 1] = 1.0  # F + F
        gate.w.fill_(0.5)
        maps = network.maps(torch.ones(1, 1, 3, 3))
    assert torch.allclose(maps, torch.full((1, 1, 3, 3), 1.4621), atol=1e-4)  # 2 sigmoid(1)


def test_with_open_gates_it_is_eft_with_groups_of_one_and_no_bias():
    torch.manual_seed(0)
    ours, theirs = CLASSIFIERS["resnet8"](3), CLASSIFIERS["resnet8"](3)
    theirs.load_state_dict(ours.state_dict())
    insert_adapters(ours, CALIBRATED)
    insert_adapters(theirs, AdapterConfig(1, 0, bias=False, heads=("head",)))
    for network in (ours, theirs):
        add_task(network, "one")
    transforms = [[m for m in network.modules() if isinstance(m, ConvTransform)] for network in (ours, theirs)]
    with torch.no_grad():
        for one, other in zip(*transforms, strict=True):
            change = torch.randn_like(one.spatial.weight)
            one.spatial.weight += change
            other.spatial.weight += change
    x = torch.randn(4, 3, 16, 16)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))


def test_weight_decay_pulls_calibrations_to_the_identity():
    for made in (ConvTransform(4, 4, 1, 0, bias=False, residual=True), LinearTransform(4, residual=True)):
        made.reset_parameters()
        optimizer = torch.optim.SGD(made.parameters(), 1.0, weight_decay=1.0)
        for parameter in made.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()  # what is held becomes zero
        x = torch.randn(2, 4, 5, 5) if isinstance(made, ConvTransform) else torch.randn(2, 4)
        assert torch.equal(made(x), x)


def test_a_task_costs_twelve_numbers_per_channel_half_a_per_cent_of_resnet18():
    found = growth_of(CLASSIFIERS["resnet18"](100), CALIBRATED, (3, 32, 32))
    assert found.adapter_parameters == 12 * 4_800
    assert found.parameter_growth == pytest.approx(0.0051, abs=5e-5)
    assert {layer.kind for layer in found.layers} == {"conv", "channel gate"}


def test_the_growth_command_counts_gates(capsys):
    main(["growth", "--model", "resnet18", "--kind", "ccll", "--gate", "channel"])
    shown = capsys.readouterr().out
    assert "57,600" in shown
    assert "+0.52 %" in shown  # of the network with ten classes


def calibrations(network, task):
    own = task_state(network, task)
    return {key: tensor.clone() for key, tensor in own.items() if key.endswith((".spatial.weight", ".w"))}


def test_later_calibrations_start_where_the_last_ended_or_anew(learn, three_tasks):
    for start in ("previous", "random"):
        learned = learn(Ccll(start=start), three_tasks[:2], epochs=0.3, out=start)
        last = calibrations(learned.network, "shapes-2")
        learned.method.grow({CLASSIFIER: learned.network}, "new", head_size=4)
        new = calibrations(learned.network, "new")
        assert new
        assert all(torch.equal(new[key], last[key]) == (start == "previous") for key in new)


def test_a_first_task_learns_with_gates_that_start_half_open(learn, three_tasks):
    learned = learn(Ccll(), three_tasks[:1], epochs=0.1)
    gates = [m for m in learned.network.modules() if isinstance(m, ChannelGate)]
    assert len(gates) == 2
    assert all(gate.norm.bias.abs().max() < 1 for gate in gates)
    assert all(gate.norm.num_batches_tracked == 2 for gate in gates)


@pytest.mark.parametrize(
    ("discriminator", "roles"), [("ccll", {"generator", "discriminator32"}), ("full", {"generator"})]
)
def test_a_gan_keeps_its_calibrations(tiny, tmp_path, discriminator, roles):
    run = train_gan(tiny(f"method={{name: ccll, discriminator: {discriminator}}}"), "test")
    tensors, _ = read_tensors(run.folder.task_file(1, "checks"))
    assert {key.split("/")[0] for key in tensors} == roles
    assert any(key.endswith(".w") for key in tensors)
    early, late = (run.sample("discs", 5, seed=1, generator=run.generator(after)) for after in (0, 1))
    assert torch.equal(early, late)
    growth = [score.value for score in read_scores(run.folder.scores) if score.metric == "growth"]
    assert all(0 < value < 0.2 for value in growth)
    export_generator(run, "checks", tmp_path / "checks.safetensors")
    z = torch.randn(3, run.experiment.network.z_dim)
    merged = load_generator(tmp_path / "checks.safetensors")
    network = run.generator(1)
    with torch.no_grad(), using_task(network, "checks"):
        assert torch.allclose(merged(z)[-1], network(z)[-1], atol=1e-5)
