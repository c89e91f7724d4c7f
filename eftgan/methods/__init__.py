"""Continual-learning methods: one idea a file; a new one is a file, a line here and a test."""

from eftgan.methods.apd import Apd
from eftgan.methods.base import Method
from eftgan.methods.batche import BatchEnsemble
from eftgan.methods.ccll import Ccll
from eftgan.methods.den import Den
from eftgan.methods.dmc import Dmc
from eftgan.methods.eft import Eft
from eftgan.methods.ewc import Ewc
from eftgan.methods.ewc_sdc import EwcSdc
from eftgan.methods.exchange import Batch, Group, MethodStage, Moment, Networks, Probe
from eftgan.methods.finetune import Finetune
from eftgan.methods.fixed import Fixed
from eftgan.methods.hat import Hat
from eftgan.methods.hnet import Hnet
from eftgan.methods.imm import Imm
from eftgan.methods.joint import Joint
from eftgan.methods.l2t import L2Transfer
from eftgan.methods.lfl import Lfl
from eftgan.methods.lwf import Lwf
from eftgan.methods.mas import Mas
from eftgan.methods.mergan import Mergan
from eftgan.methods.packnet import PackNet
from eftgan.methods.piggyback import Piggyback
from eftgan.methods.pnn import Pnn
from eftgan.methods.rcl import Rcl
from eftgan.methods.rwalk import RWalk
from eftgan.methods.separate import Separate
from eftgan.methods.si import Si
from eftgan.methods.side import Side
from eftgan.methods.supsup import SupSup
from eftgan.methods.tfm import Tfm

METHODS: dict[str, type[Method]] = {
    "eft": Eft,
    "batche": BatchEnsemble,
    "ccll": Ccll,
    "piggyback": Piggyback,
    "supsup": SupSup,
    "packnet": PackNet,
    "hat": Hat,
    "tfm": Tfm,
    "hnet": Hnet,
    "apd": Apd,
    "pnn": Pnn,
    "rcl": Rcl,
    "den": Den,
    "side": Side,
    "finetune": Finetune,
    "fixed": Fixed,
    "lwf": Lwf,
    "lfl": Lfl,
    "dmc": Dmc,
    "ewc": Ewc,
    "ewc-sdc": EwcSdc,
    "si": Si,
    "mas": Mas,
    "rwalk": RWalk,
    "l2t": L2Transfer,
    "imm": Imm,
    "mergan": Mergan,
    "joint": Joint,
    "separate": Separate,
}

__all__ = [
    "METHODS",
    "Batch",
    "Eft",
    "Finetune",
    "Group",
    "Method",
    "MethodStage",
    "Moment",
    "Networks",
    "Probe",
]
