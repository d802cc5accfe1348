"""Problems with a table of transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fastcmdp.check import is_whole
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum, optimum
from fastcmdp.kernels.policy.softmax import LazyActions, refresh_all
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.kernels.sampling.tables import Actions, new_row_space
from fastcmdp.policies import BoundPolicy, Policy
from fastcmdp.tables import build_tables
from fastcmdp.worlds.world import Float, Int, World

EXACT_CHOICES = 20_000  # up to here the optimum and the trace are exact unless the caller says otherwise


@dataclass(frozen=True)
class TableWorld(World):
    """A `CMDP` with the tables that draws read."""

    model: CMDP

    @classmethod
    def of(
        cls, cmdp: CMDP, policy: Policy, known: Optimum | bool | None = False, draws: str = "fast"
    ) -> Self:
        """Bind a policy class to a model and build the tables.

        known : an optimum at hand; True: compute it; False: do without; None: compute it for models of up to 20,000
            choices

        Raises
        ------
        ModelError, SettingError, InfeasibleError
            A policy class or an optimum that does not fit, a model that no policy can satisfy.
        """
        bound = policy.on_table(cmdp)
        if isinstance(known, Optimum) and known.policy.shape != (cmdp.n_choices,):
            raise SettingError(
                f"optimum is one of a model with {known.policy.size} choices, this one has {cmdp.n_choices}"
            )
        if known is None:
            known = cmdp.n_choices <= EXACT_CHOICES
        best = known if isinstance(known, Optimum) else (optimum(cmdp) if known else None)
        return cls(cmdp, build_tables(cmdp, draws), bound, best, draws)

    def __reduce__(self) -> Any:
        """Pickled without the tables, which are built again."""
        return _again, (self.model, self.policy, self.optimum, self.draws)

    @property
    def table(self) -> CMDP:
        """The model."""
        return self.model

    @property
    def start(self) -> Float:
        """Probabilities of start states, float64[S]."""
        return self.model.start

    @property
    def n_state(self) -> int:
        """0: states have numbers."""
        return 0

    @property
    def n_gradients(self) -> int:
        """All choices, for networks."""
        return self.model.n_choices if self.policy.tangents else 0

    def actions(self, theta: Float, n_visited: int, n_draws: float) -> Actions | LazyActions:
        """Action tables: of all states, or where theta touches more states than are drawn from, on demand."""
        cmdp, tables = self.model, self.tables
        entry = np.empty(3 * tables.row_state.size, tables.branch_entry.dtype)
        prob = np.empty(cmdp.n_choices)
        if isinstance(self.policy.data, Tabular) or n_draws > cmdp.n_states:
            return Actions(entry, prob)
        return LazyActions(
            entry, prob, np.zeros(cmdp.n_states, np.int64), np.ones(1, np.int64), self.policy.data,
            theta, new_row_space(2 * cmdp.widest), np.zeros(1, np.int64),
        )  # fmt: skip

    def refresh(self, actions: Actions | LazyActions, theta: Float) -> None:
        """Rebuild the rows, or have them built when a draw needs them."""
        if isinstance(actions, LazyActions):
            actions.now[0] += 1
        else:
            self._rebuild(actions, theta)

    def probabilities(self, actions: Actions | LazyActions, theta: Float) -> Float:
        """Action probabilities of the choices, float64[C]."""
        if isinstance(actions, LazyActions):
            self._rebuild(actions, theta)
        prob: Float = actions.prob
        return prob

    def chances(self, theta: Float | None, policy: Float | None, observation: Any) -> tuple[Int, Float]:
        """The actions of a state, by the user's numbers, and their probabilities."""
        n, cmdp = self.model.n_states, self.model
        state = (
            observation.item()
            if isinstance(observation, np.ndarray) and observation.size == 1
            else observation
        )
        if not is_whole(state, 0, n - 1):
            raise SettingError(
                f"observation = {observation!r}: a state, an integer from 0 to {n - 1}, is expected"
            )
        if policy is None:
            assert theta is not None
            policy = self.probabilities(self.actions(theta, 1, 1e300), theta)
        own = slice(int(cmdp.state_to_choice[state]), int(cmdp.state_to_choice[int(state) + 1]))
        return np.asarray(cmdp.action_of_choice[own], np.int64), np.asarray(policy[own])

    def _rebuild(self, actions: Actions | LazyActions, theta: Float) -> None:
        every = Actions(actions.entry, actions.prob)
        refresh_all(self.policy.data, theta, self.tables, every, new_row_space(2 * self.model.widest))

    def fault(self, actions: Actions | LazyActions) -> str:
        """A table is never to blame."""
        return ""


def _again(cmdp: CMDP, bound: BoundPolicy, best: Optimum | None, draws: str) -> TableWorld:
    """A pickled world in another process."""
    return TableWorld(cmdp, build_tables(cmdp, draws), bound, best, draws)
