"""The transformations that tasks put on shared layers: one kind a file, one line here."""

from eftgan.adapters.transforms.adafm import AdaFm
from eftgan.adapters.transforms.base import Flops, Mode, Option, Plan, Planner, Site, Transform
from eftgan.adapters.transforms.ccll import Ccll
from eftgan.adapters.transforms.conv import ConvTransform
from eftgan.adapters.transforms.decomposed import Apd, Decomposed
from eftgan.adapters.transforms.eft import Eft, branch_matches
from eftgan.adapters.transforms.groups import (
    check_group_sizes,
    fast_group_size,
    fusing_pays,
    group_count,
    largest_divisor,
    regroup,
    widened,
)
from eftgan.adapters.transforms.left import LeftPlanner
from eftgan.adapters.transforms.linear import LinearTransform
from eftgan.adapters.transforms.llora import Llora
from eftgan.adapters.transforms.lora import Lora
from eftgan.adapters.transforms.mask import GivenMask, Masks, WeightMask
from eftgan.adapters.transforms.rank_one import BatchEnsemble, RankOne
from eftgan.adapters.transforms.residual import Residual

TRANSFORMS: dict[str, type[Planner]] = {
    "eft": Eft,
    "batche": BatchEnsemble,
    "ccll": Ccll,
    "mask": Masks,
    "apd": Apd,
    "adafm": AdaFm,
    "lora": Lora,
    "llora": Llora,
    "left": LeftPlanner,
    "residual": Residual,
}

__all__ = [
    "TRANSFORMS",
    "Apd",
    "BatchEnsemble",
    "Ccll",
    "ConvTransform",
    "Decomposed",
    "Eft",
    "Flops",
    "GivenMask",
    "LinearTransform",
    "Masks",
    "Mode",
    "Option",
    "Plan",
    "Planner",
    "RankOne",
    "Site",
    "Transform",
    "WeightMask",
    "branch_matches",
    "check_group_sizes",
    "fast_group_size",
    "fusing_pays",
    "group_count",
    "largest_divisor",
    "regroup",
    "widened",
]
