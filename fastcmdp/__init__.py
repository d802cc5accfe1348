"""fastcmdp: constrained Markov decision processes, solved by policy gradients at the speed of C."""

from __future__ import annotations

from fastcmdp import envs
from fastcmdp.algorithms import ALGORITHMS, CRPO, PDANPG, CRPOSoftmax
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import InfeasibleError, ModelError, SettingError
from fastcmdp.exact import evaluate, occupancy, optimum
from fastcmdp.io import load, save
from fastcmdp.policies import LogLinear, ReluSoftmax, TabularSoftmax
from fastcmdp.results import Result
from fastcmdp.solve import load_run, resume, solve

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "CMDP",
    "CRPO",
    "PDANPG",
    "CRPOSoftmax",
    "InfeasibleError",
    "LogLinear",
    "ModelError",
    "ReluSoftmax",
    "Result",
    "SettingError",
    "TabularSoftmax",
    "envs",
    "evaluate",
    "load",
    "load_run",
    "occupancy",
    "optimum",
    "resume",
    "save",
    "solve",
]
