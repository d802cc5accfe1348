"""PD-NAC"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fastcmdp.algorithms.base import Algorithm, Run, dual_cap, relative_target, require
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import pd_nac, policies
from fastcmdp.kernels.tables import Actions
from fastcmdp.problem import Problem, streams
from fastcmdp.tables import n_action_entries


@dataclass(frozen=True)
class PDNAC(Algorithm):
    """x"""
    outer: int = 1_000_000
    c_alpha: float = 1.0
    c_dual: float = 1.0
    c_beta: float = 1.0
    c_explore: float = 1.0
    lambda_max: float | None = None
    restart: bool = True
    dual_estimate: Literal["sample", "sum"] = "sample"

    name: ClassVar[str] = "pd-nac"
    tabular_only: ClassVar[bool] = True
    constants: ClassVar[Mapping[str, tuple[float, float]]] = {
        "c_alpha": (0.1, 10.0),
        "c_dual": (0.1, 10.0),
        "c_beta": (0.1, 10.0),
        "c_explore": (0.1, 10.0),
    }

    def __post_init__(self) -> None:
        self.check({"outer": 1}, ("c_alpha", "c_dual", "c_beta", "c_explore"), ("lambda_max",))

    def outer_samples(self, cmdp: CMDP) -> float:
        return 1.0

    @classmethod
    def for_epsilon(cls, cmdp, epsilon, *, c_K=1.0, **settings):
        relative = relative_target(cmdp, epsilon)
        return cls(**({"outer": int(np.ceil(c_K * relative**-6))} | settings))

    def run(self, problem, seed, replicates):
        return PDNACRun(self, problem, seed, replicates)


class PDNACRun(Run):
    def __init__(self, settings, problem, seed, replicates):
        super().__init__(settings, problem)
        cmdp, tables = problem.cmdp, problem.tables
        m, k = cmdp.n_constraints, float(settings.outer)
        C,S=cmdp.n_choices,cmdp.n_states
        unit=1-cmdp.gamma
        self.steps = pd_nac.Steps(
            n_outer=settings.outer,
            alpha=settings.c_alpha * unit * k ** (-5 / 6),
            eta=np.full(m, settings.c_dual * unit * k ** (-5 / 6)),
            beta=min(settings.c_beta * np.sqrt(C) * k**-0.5, 1.0),
            explore=min(settings.c_explore * k ** (-1 / 6), 1.0),
            restart=settings.restart,
            every=settings.dual_estimate == "sum",
            dual_max=dual_cap(problem, settings.lambda_max),
            highest=None,
        )
        W=max(2,1+m)
        highest=np.zeros(W); highest[:1+m]=np.maximum(cmdp.signals.max(axis=0),0)/unit
        self.steps=self.steps._replace(highest=highest)
        theta = self.initial_theta(replicates)
        self.state = pd_nac.RunState(
            theta=theta, dual=np.zeros((replicates, m)), rng=streams(seed, replicates),
            outer=np.zeros(replicates, np.int64), samples=np.zeros(replicates, np.int64),
            failed=np.full(replicates, -1, np.int64),
            drawn=theta.copy(),
            critic=np.zeros((replicates, C, max(2, 1 + m))),
            top=np.zeros((replicates, S)),
            since=np.zeros((replicates, S, max(2, 1 + m))),
            choice=np.full(replicates, -1, np.int64),
            left=np.zeros(replicates, np.int64),
            sums=np.zeros((replicates, 1 + 2 * m)),
        )
        self.row_state = np.zeros(n_action_entries(tables), np.int32)
        code = tables.state_row.astype(np.int64)
        self.row_state[(code - (code & -code)) // 2] = np.arange(S)

        self.set_up_actions(1.0)

    def refresh(self):
        for r, actions in enumerate(self.actions):
            policies.refresh_all(self.problem.policy.data, self.state.drawn[r], self.problem.tables, actions, self.row_space())

    def policies(self):
        prob = np.empty_like(self.state.theta)
        logits = np.empty(prob.shape[1])
        for r in range(len(prob)):
            pd_nac.logits(self.problem.tables, self.steps, self.state, r, logits)
            a = self.actions[r]
            other = Actions(np.empty_like(a.entry), prob[r])
            policies.refresh_all(self.problem.policy.data, logits, self.problem.tables, other, self.row_space())
        return prob

    def work(self):
        cmdp = self.problem.cmdp
        support = np.flatnonzero(cmdp.start)
        widest = int(np.diff(cmdp.state_to_choice).max())
        return pd_nac.Work(self.row_state, support, cmdp.start[support], np.zeros(widest), np.zeros(1, np.int64), self.row_space())

    def advance(self, r, n_steps, work):
        pd_nac.advance(self.problem.policy.data, self.problem.tables, self.actions[r], self.steps, self.state, work, r, n_steps)
