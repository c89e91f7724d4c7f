"""The networks of a GAN experiment: built, initialised by the seed or from published weights, banks in."""

from pathlib import Path

import torch
from torch import nn

from eftgan.adapters import insert_adapters, named_banks
from eftgan.adapters.codes import fuse_codes
from eftgan.adapters.upsampling import fuse_upsampling
from eftgan.data.streams import stream
from eftgan.errors import UserError
from eftgan.gan.experiment import GanExperiment
from eftgan.models.gans import DISCRIMINATOR
from eftgan.models.weights import read_weights
from eftgan.names import GENERATOR
from eftgan.runfolder import RunFolder
from eftgan.training.checkpoint import fitting, read_shared


def build_networks(experiment: GanExperiment) -> dict[str, nn.Module]:
    """Generator and discriminators with their banks in, weights fixed by the seed, no task yet."""
    family = experiment.network
    networks: dict[str, nn.Module] = {GENERATOR: family.generator(), **family.discriminators()}
    for role, network in networks.items():
        family.initialise(network, stream(experiment.seed, "weights", role))
    weights = experiment.base_weights
    if weights is None:
        _insert(experiment, networks)
        return networks
    files = {GENERATOR: weights} if isinstance(weights, str) else weights
    from_run = RunFolder(Path(weights)) if isinstance(weights, str) and Path(weights).is_dir() else None
    if from_run is None:
        _load_published(experiment, networks, files)
    _insert(experiment, networks)
    if from_run is not None:
        _load_base_of_run(experiment, networks, from_run)
    return networks


def build_generator(experiment: GanExperiment) -> nn.Module:
    """The generator alone, to be given the weights of a run: it is not initialised."""
    generator = experiment.network.generator()
    _insert(experiment, {GENERATOR: generator})
    return generator


def _insert(experiment: GanExperiment, networks: dict[str, nn.Module]) -> None:
    heads = {role: experiment.network.heads if role.startswith(DISCRIMINATOR) else () for role in networks}
    experiment.method.prepare(networks, {role: experiment.adapters.config(heads[role]) for role in networks})
    _refuse_kind_without_layers(experiment, networks[GENERATOR])
    for network in networks.values():
        if experiment.training.fast_upsampling:
            fuse_upsampling(network)
        if experiment.training.fast_codes:
            fuse_codes(network)


def _refuse_kind_without_layers(experiment: GanExperiment, generator: nn.Module) -> None:
    """A task that could change nothing but normalisation is a mistake, not an experiment."""
    banks = experiment.method.banks(GENERATOR, experiment.adapters.config())
    if "transforms" not in banks.parts or any(bank.part == "transforms" for _, bank in named_banks(generator)):
        return
    with torch.device("meta"):
        reasons = insert_adapters(experiment.network.generator(), banks).shared.values()
    raise UserError(
        f"adapters.kind: {banks.kind} has no layer of {experiment.network.title}'s generator that it could go on "
        f"({next(iter(reasons), 'it has none')})"
    )


def _load_published(experiment: GanExperiment, networks: dict[str, nn.Module], files: dict[str, str]) -> None:
    """Checkpoints by role; a discriminator that stays frozen needs one as much as the generator does."""
    for role in files:
        if role not in networks:
            raise UserError(f"base_weights: no network {role!r}; there are: {', '.join(networks)}")
    frozen = [role for role in networks if not experiment.method.trains_shared(role, first=True)]
    if missing := [role for role in frozen if role not in files]:
        raise UserError(
            f"base_weights: nothing for {missing[0]}, which method.base=pretrained would freeze; name its checkpoint "
            f"as {{generator: FILE, {missing[0]}: FILE}}, or let it train: method.discriminator=full"
        )
    for role, path in files.items():
        state = read_weights(Path(path))
        with fitting(f"base_weights: {path} does not fit the {role} of {experiment.network.describe()}"):
            experiment.network.load_published(networks[role], state)


def _load_base_of_run(experiment: GanExperiment, networks: dict[str, nn.Module], folder: RunFolder) -> None:
    """The shared weights of one of our runs; discriminators that train whole keep their own start."""
    if not folder.shared.is_file():
        raise UserError(
            f"base_weights: {folder.path} has no {folder.shared.name}: its method freezes no shared weights"
        )
    frozen = {role: network for role, network in networks.items() if not experiment.method.trains_shared(role, True)}
    read_shared(folder, frozen)
