"""`eftgan growth`: the paper's tables for the networks that are known by name."""

from dataclasses import dataclass

import pytest
from torch import nn

from eftgan.adapters import AdapterConfig
from eftgan.commands import main
from eftgan.commands.growth import classifier_growth, gan_family, gan_growth
from eftgan.models.gans import GANS, StackGan
from eftgan.models.gans.stackgan import Discriminator, Generator


@pytest.mark.parametrize(
    ("name", "classes", "a", "b", "base", "adapter"),
    [
        ("resnet18", 10, 8, 16, 11_173_962, 432_000),
        ("resnet18", 10, 4, 8, 11_173_962, 220_800),
        ("resnet18", 10, 4, 0, 11_173_962, 177_600),
        ("resnet18", 10, 0, 64, 11_173_962, 312_000),
        ("resnet18", 10, 0, 32, 11_173_962, 158_400),
        ("vgg16_tiny", 20, 8, 16, 7_681_620, 241_920),
        ("resnet18_third", 5, 4, 0, 1_093_945, 55_500),
        ("resnet18_third", 5, 5, 0, 1_093_945, 69_000),
        ("lenet_apd", 10, 5, 50, 2_987_870 + 5_010, 7_490),
    ],
)
def test_classifiers_grow_by_the_papers_counts(name, classes, a, b, base, adapter):
    counted = classifier_growth(name, classes, AdapterConfig(a, b))
    assert (counted.base_parameters, counted.adapter_parameters) == (base, adapter)


@pytest.mark.parametrize(
    ("a", "b", "percent"), [(8, 16, 8.78), (4, 8, 4.44), (4, 0, 3.60), (0, 64, 6.36), (0, 32, 3.21)]
)
def test_resnet18_costs_the_papers_flops_with_the_stem_left_out(a, b, percent):
    counted = classifier_growth("resnet18", 10, AdapterConfig(a, b, exclude=("stem.*",)))
    assert 100 * counted.flops_growth == pytest.approx(percent, abs=0.02)


def test_one_stage_stackgan_grows_by_the_papers_count():
    counted = gan_growth(gan_family("stackgan"), AdapterConfig(32, 16))
    assert (counted.base_parameters, counted.adapter_parameters) == (18_647_233, 881_376)
    assert counted.head_parameters == 8_193


def test_three_stage_stackgan_grows_by_the_expected_counts():
    counted = gan_growth(gan_family("stackgan", ["stages=3"]), AdapterConfig(32, 16))
    assert (counted.base_parameters, counted.adapter_parameters) == (103_424_403, 3_613_536)
    generator = [layer.parameters for layer in counted.layers if layer.name.startswith("generator.")]
    assert sum(generator) == 852_192


def test_a_new_family_is_known_by_its_name(monkeypatch, capsys):
    @dataclass(frozen=True, kw_only=True)
    class Tiny(StackGan):
        name: str = "tiny"
        width: int = 4

        def generator(self) -> Generator:
            return Generator(StackGan(ngf=self.width))

        def discriminators(self) -> dict[str, nn.Module]:
            return {"discriminator64": Discriminator(64, self.width)}

    monkeypatch.setitem(GANS, "tiny", Tiny)
    main(["growth", "--model", "tiny", "width=8", "--a", "4", "--b", "4", "--layers"])
    shown = capsys.readouterr().out
    assert "generator.upsample.0.1" in shown
    assert "discriminator64.down.0.0" in shown


def test_group_sizes_that_were_rounded_are_said(capsys):
    main(["growth", "--model", "resnet18", "--a", "7"])
    assert "a 7 became 4 in 20 layers (--layers shows each)" in capsys.readouterr().out
    main(["growth", "--model", "stackgan", "--a", "32", "--b", "16"])
    assert "a 32 became 3 in 1 layer, b 16 became 3 in 1 layer" in capsys.readouterr().out
    for words in (["--a", "8", "--b", "16"], ["--kind", "batche"]):
        main(["growth", "--model", "resnet18", *words])
        assert "rounded" not in capsys.readouterr().out
