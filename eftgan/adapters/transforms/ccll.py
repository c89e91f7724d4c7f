"""The spatial calibration of CCLL (Singh et al., NeurIPS 2020): F + dw * F with a depthwise 3x3 convolution.

It is the serial transform of EFT with groups of one, no wd and no bias, in residual form. The channel-wise calibration
is a gate (`gate: channel`).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from eftgan.adapters.transforms.base import Plan, Planner, Site, Transform
from eftgan.adapters.transforms.eft import Eft


@dataclass(frozen=True)
class Ccll(Planner):
    """Behind every convolution. Linear layers, which the authors' networks have none of inside, get EFT's diagonal."""

    def plan(self, site: Site) -> Plan | str:
        calibration = dataclasses.replace(site.config, kind="eft", options={}, a=1, b=0, bias=False)
        plan = Eft().plan(dataclasses.replace(site, config=calibration))
        if isinstance(plan, str):
            return plan
        make: Callable[..., Transform] = plan.make
        return Plan(plan.mode, partial(make, residual=True))
