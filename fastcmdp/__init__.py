"""fastcmdp: constrained Markov decision processes, solved by policy gradients at the speed of C."""

from __future__ import annotations

from fastcmdp import envs
from fastcmdp.algorithms import ALGORITHMS, CNPGPDA, NPGPD, PDANPG, PDNAC, PMDPD, NPGPDSoftmax
from fastcmdp.cmdp import CMDP
from fastcmdp.compare import compare
from fastcmdp.errors import InfeasibleError, ModelError, SettingError
from fastcmdp.exact import evaluate, occupancy, optimum
from fastcmdp.io import load, save
from fastcmdp.policies import LogLinear, TabularSoftmax
from fastcmdp.results import Result
from fastcmdp.solve import load_run, resume, solve
from fastcmdp.tune import tune

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "CMDP",
    "CNPGPDA",
    "NPGPD",
    "PDANPG",
    "PDNAC",
    "PMDPD",
    "InfeasibleError",
    "LogLinear",
    "ModelError",
    "NPGPDSoftmax",
    "Result",
    "SettingError",
    "TabularSoftmax",
    "compare",
    "envs",
    "evaluate",
    "load",
    "load_run",
    "occupancy",
    "optimum",
    "resume",
    "save",
    "solve",
    "tune",
]
