"""Pretrained weights: everything but a head of another size is loaded, and misfits are refused."""

import pytest
import torch
from safetensors.torch import save_file

from eftgan.errors import UserError
from eftgan.models.classifiers import build_classifier

NETWORK = "resnet32"


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_all_but_a_head_of_another_size_is_loaded(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    source = build_classifier(NETWORK, 10).state_dict()
    save_file(source, path) if suffix == ".safetensors" else torch.save({"state_dict": source}, path)
    loaded = build_classifier(NETWORK, 4, path).state_dict()
    assert loaded["head.weight"].shape == (4, 64)
    assert all(torch.equal(loaded[key], source[key]) for key in source if not key.startswith("head."))


def test_a_head_of_the_same_size_is_loaded_too(tmp_path):
    source = {f"module.{k}": v for k, v in build_classifier(NETWORK, 4).state_dict().items()}
    torch.save(source, tmp_path / "weights.pth")
    loaded = build_classifier(NETWORK, 4, str(tmp_path / "weights.pth"))
    assert torch.equal(loaded.head.weight, source["module.head.weight"])


def test_torchvision_networks_take_files(tmp_path):
    source = build_classifier("torchvision:shufflenet_v2_x0_5", 10).state_dict()
    torch.save(source, tmp_path / "weights.pth")
    loaded = build_classifier("torchvision:shufflenet_v2_x0_5", 4, tmp_path / "weights.pth")
    assert torch.equal(loaded.conv1[0].weight, source["conv1.0.weight"])


@pytest.mark.parametrize(
    ("network", "weights", "message"),
    [
        (NETWORK, "nowhere.pth", "no weights at nowhere.pth"),
        ("torchvision:resnet18", "nowhere.pth", "no weights at nowhere.pth"),
        ("torchvision:resnet18", "IMAGENET9", "published: IMAGENET1K_V1"),
    ],
)
def test_missing_weights_are_named(network, weights, message):
    with pytest.raises(UserError, match=message):
        build_classifier(network, 4, weights)


def test_weights_of_another_network_are_refused(tmp_path):
    torch.save(build_classifier("lenet_apd", 4).state_dict(), tmp_path / "lenet.pth")
    with pytest.raises(UserError, match=r"lenet\.pth does not fit ResNet"):
        build_classifier(NETWORK, 4, tmp_path / "lenet.pth")


@pytest.mark.parametrize(("name", "content"), [("a.pth", b"junk"), ("a.safetensors", b"junk"), ("b.pth", b"")])
def test_unreadable_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"cannot read weights from .*{name}"):
        build_classifier(NETWORK, 4, tmp_path / name)


def test_a_file_without_a_state_dict_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(UserError, match="holds no state dict"):
        build_classifier(NETWORK, 4, tmp_path / "list.pth")
