"""fastcmdp: constrained Markov decision processes, solved by policy gradients at the speed of C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastcmdp import startup  # noqa: F401  # isort: skip  # first, for Ctrl-C during the other imports
from fastcmdp import duals, envs, simulators
from fastcmdp.algorithms import (
    ALGORITHMS,
    ALPQA,
    ARNPG,
    CNPGPDA,
    CPG,
    CRPO,
    LBSGD,
    NPGPD,
    OPGPD,
    PDANPG,
    PDANPGCV,
    PDNAC,
    PDRANPG,
    PIPD,
    PMDPD,
    RPGPD,
    CRPOSoftmax,
    NPGPDSoftmax,
    PDNACAverage,
    ReLOAD,
)
from fastcmdp.cmdp import CMDP
from fastcmdp.compare import compare
from fastcmdp.errors import InfeasibleError, ModelError, SettingError
from fastcmdp.exact import evaluate, frontier, occupancy, optimum
from fastcmdp.io import load, save
from fastcmdp.policies import LogLinear, NeuralSoftmax, ReluSoftmax, TabularSoftmax
from fastcmdp.results import Result
from fastcmdp.runs.agent import Agent, load_policy, save_policy
from fastcmdp.simulators import GymSimulator, Simulator
from fastcmdp.solve import load_run, resume, solve
from fastcmdp.tune import tune
from fastcmdp.utility import learn_utility
from fastcmdp.version import __version__ as __version__

if TYPE_CHECKING:
    from fastcmdp import embed

__all__ = [
    "ALGORITHMS",
    "ALPQA",
    "ARNPG",
    "CMDP",
    "CNPGPDA",
    "CPG",
    "CRPO",
    "LBSGD",
    "NPGPD",
    "OPGPD",
    "PDANPG",
    "PDANPGCV",
    "PDNAC",
    "PDRANPG",
    "PIPD",
    "PMDPD",
    "RPGPD",
    "Agent",
    "CRPOSoftmax",
    "GymSimulator",
    "InfeasibleError",
    "LogLinear",
    "ModelError",
    "NPGPDSoftmax",
    "NeuralSoftmax",
    "PDNACAverage",
    "ReLOAD",
    "ReluSoftmax",
    "Result",
    "SettingError",
    "Simulator",
    "TabularSoftmax",
    "compare",
    "duals",
    "embed",
    "envs",
    "evaluate",
    "frontier",
    "learn_utility",
    "load",
    "load_policy",
    "load_run",
    "occupancy",
    "optimum",
    "resume",
    "save",
    "save_policy",
    "simulators",
    "solve",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in ("embed", "theory"):  # a part of the time of the import, and for few
        import importlib

        return importlib.import_module(f"fastcmdp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
