"""The network of a classifier experiment: built, initialised by the seed or from a file, banks in."""

import torch
from torch import nn

from eftgan.classifier.experiment import ClassifierExperiment
from eftgan.data.streams import stream_seed
from eftgan.models.classifiers import build_classifier, head_name
from eftgan.names import CLASSIFIER


def build_network(experiment: ClassifierExperiment, classes: int, *, pretrained: bool = True) -> nn.Module:
    """The classifier with its banks in, weights fixed by the seed, no task yet; `classes`: of the first task."""
    torch.manual_seed(stream_seed(experiment.seed, "weights", CLASSIFIER))
    weights = experiment.network.weights if pretrained else None
    outputs = classes * experiment.method.outputs_per_class
    network = build_classifier(experiment.network.name, outputs, weights)
    adapters = experiment.adapters.config(heads=[head_name(network)])
    experiment.method.prepare({CLASSIFIER: network}, {CLASSIFIER: adapters})
    return network
