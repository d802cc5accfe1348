"""Softmax with one parameter a choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.policy.tabular import Tabular
from fastcmdp.policies.base import BoundPolicy, Policy


@dataclass(frozen=True)
class TabularSoftmax(Policy):
    """Softmax with one parameter a choice: pi(a|s) proportional to exp(theta[q]), q the choice (s, a).

    theta has shape (n_choices,). G^2 = 2 and B = 1/2 for the score and its Lipschitz constant.

    Examples
    --------
    >>> import fastcmdp as fc
    >>> cmdp = fc.envs.river_swim()
    >>> fc.TabularSoftmax().bind(cmdp).n_parameters == cmdp.n_choices
    True
    """

    def fingerprint(self) -> str:
        """A text that differs between policy classes."""
        return "tabular-softmax"

    def on_table(self, cmdp: CMDP) -> BoundPolicy:
        """Check the policy against a model with a table; return what the kernels read."""
        return BoundPolicy(
            Tabular(cmdp.n_choices),
            cmdp.n_choices,
            2.0,
            cmdp.widest,
            reach=float(cmdp.n_choices),
            mean_bound=1.0 / float(np.diff(cmdp.state_to_choice).min()),
        )
