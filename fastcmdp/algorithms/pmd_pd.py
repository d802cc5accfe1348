"""PMD-PD"""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fastcmdp.algorithms.base import Algorithm, Run, relative_target
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import pmd_pd
from fastcmdp.problem import Problem, streams


@dataclass(frozen=True)
class PMDPD(Algorithm):
    """x"""
    outer: int = 100
    sweeps: int = 1
    rollouts: int = 20
    dual_rollouts: int = 200
    length: int = 50
    alpha: float | None = None
    c_alpha: float = 1.0
    eta_dual: float | None = None
    c_dual: float = 1.0
    step: float = 1.0
    name: ClassVar[str] = "pmd-pd"
    tabular_only: ClassVar[bool] = True
    constants = {}
    def outer_samples(self, cmdp):
        n=np.diff(cmdp.state_to_choice); n=int(n[n>1].sum())
        return float((self.sweeps*n*self.rollouts+self.dual_rollouts)*self.length)
    def fixed_samples(self, cmdp):
        return float(self.dual_rollouts*self.length)
    @classmethod
    def for_epsilon(cls, cmdp, epsilon, *, c_K=10.0, c_t=1.0, c_M=0.1, c_V=1.0, c_N=1.0, **settings):
        e = relative_target(cmdp, epsilon)
        return cls(**(dict(outer=math.ceil(c_K/e), sweeps=max(1,math.ceil(c_t*math.log(1/e))), rollouts=max(1,math.ceil(c_M/e**2)),
          dual_rollouts=max(1,math.ceil(c_V/e**2)), length=max(1,math.ceil(c_N*math.log(e)/math.log(cmdp.gamma))))|settings))
    def run(self, problem, seed, replicates):
        return PMDPDRun(self, problem, seed, replicates)

class PMDPDRun(Run):
    def __init__(self, settings, problem, seed, replicates):
        super().__init__(settings, problem)
        cmdp=problem.cmdp; m=cmdp.n_constraints
        unit=1-cmdp.gamma
        self.steps=pmd_pd.Steps(settings.outer,settings.sweeps,settings.rollouts,settings.dual_rollouts,settings.length,cmdp.gamma,
            settings.c_alpha if settings.alpha is None else settings.alpha, float(settings.step),
            np.full(m, settings.c_dual*unit), np.full(m,np.inf))
        theta=self.initial_theta(replicates)
        for row in theta: pmd_pd.normalise(problem.tables.state_to_choice,row)
        self.state=pmd_pd.RunState(theta, np.zeros((replicates,m)), streams(seed,replicates), np.full(replicates,-1,np.int64), np.zeros(replicates,np.int64), np.full(replicates,-1,np.int64), np.zeros((replicates,m)), np.zeros((replicates,1+2*m)))
        self.set_up_actions(1.0)
    def work(self):
        cmdp=self.problem.cmdp; C=cmdp.n_choices
        widths=np.diff(cmdp.state_to_choice)
        choices=np.flatnonzero(widths[cmdp.choice_state]>1)
        rec=np.zeros((C,2),np.uint64)
        return pmd_pd.Work(choices,np.arange(cmdp.n_states),np.full(1,-1),rec,rec.view(np.float64),np.zeros(C),np.zeros(C),np.zeros((len(choices),1)),np.zeros((1,1+cmdp.n_constraints)),np.zeros(C),self.row_space())
    def advance(self, r, n, work):
        pmd_pd.advance(self.problem.policy.data,self.problem.tables,self.actions[r],self.steps,self.state,work,r,n)
