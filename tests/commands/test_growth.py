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


@pytest.mark.parametrize(
    ("size", "kind", "options", "both", "generator"),
    [
        (64, "adafm", {}, 16.80, 14.95),
        (64, "adafm", {"rank": 88}, 4.74, 3.57),
        (64, "adafm", {"rank": 77}, 4.19, 3.15),
        (64, "lora", {"rank": 32}, 4.71, 3.30),
        (64, "lora", {"rank": 30}, 4.41, 3.10),
        (64, "llora", {"rank": 78}, 4.73, 2.78),
        (64, "left", {"rank": 78, "additive": False}, 4.73, 2.78),
        (64, "llora", {"rank": 85}, 5.33, 3.15),
        (64, "left", {"rank": 1}, 0.06, 0.04),
        (32, "adafm", {}, 8.23, 5.56),
        (32, "adafm", {"rank": 24}, 4.43, 2.67),
        (32, "adafm", {"rank": 46}, 7.05, 4.37),
        (32, "lora", {"rank": 8}, 4.21, 2.35),
        (32, "lora", {"rank": 15}, 7.85, 4.36),
        (32, "llora", {"rank": 19}, 4.58, 2.36),
        (32, "llora", {"rank": 28}, 8.63, 4.34),
        (32, "left", {"rank": 28, "additive": False}, 8.63, 4.34),
    ],
)
def test_kinds_of_low_rank_grow_stackgan_by_the_expected_share(size, kind, options, both, generator):
    words = [] if size == 64 else ["base_size=32", "ngf=16", "ndf=32"]
    family, adapters = gan_family("stackgan", words), AdapterConfig(kind=kind, options=options)
    assert 100 * gan_growth(family, adapters).parameter_growth == pytest.approx(both, abs=0.005)
    assert 100 * gan_growth(family, adapters, whole=True).parameter_growth == pytest.approx(generator, abs=0.005)


@pytest.mark.parametrize(("a", "percent"), [(16, 3.61), (32, 5.83)])
def test_a_squashed_branch_adds_72_weights_per_output_to_eft(a, percent):
    counted = gan_growth(gan_family("stackgan"), AdapterConfig(a, 16, kind="residual"))
    plain = gan_growth(gan_family("stackgan"), AdapterConfig(a, 16))
    assert 100 * counted.parameter_growth == pytest.approx(percent, abs=0.005)
    for layer, eft in zip(counted.layers, plain.layers, strict=True):
        if layer.sizes["branch"] == 8:
            assert layer.parameters - eft.parameters == 9 * 8 * layer.outputs


def test_whole_discriminators_belong_to_no_task():
    counted = gan_growth(gan_family("stackgan"), AdapterConfig(32, 16), whole=True)
    assert (counted.base_parameters, counted.head_parameters) == (18_647_233, 0)
    assert {layer.name.partition(".")[0] for layer in counted.layers} == {"generator"}
    assert 100 * counted.parameter_growth == pytest.approx(3.15, abs=0.005)


def test_a_kinds_rank_and_options_can_be_given(capsys):
    main(["growth", "--model", "stackgan", "--kind", "lora", "--rank", "32"])
    words = capsys.readouterr().out.split()
    assert words[words.index("877,836") + 1] == "+4.71"
    main(["growth", "--model", "stackgan", "--kind", "left", "--option", "rank=78", "--option", "additive=false"])
    assert "+4.73 %" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "eft", "--rank", "4"], "kind eft has no option 'rank'; it knows: none"),
        (["--kind", "lora", "--rank", "0"], "rank must be a whole number, at least 1, got 0"),
        (["--kind", "lora", "--option", "rank=many"], "option 'rank' of kind lora must be a number, got 'many'"),
        (["--kind", "left", "--option", "additive=2"], "option 'additive' of kind left must be true or false, got 2"),
        (["--kind", "residual", "--mode", "parallel"], "mode parallel is a setting of kind eft"),
        (["--model", "resnet18", "--whole-discriminators"], "--whole-discriminators is for GANs"),
        (["--kind", "residual", "--option", "branch=0"], "branch must be a whole number, at least 1, got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["growth", "--model", "stackgan", *words])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


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
