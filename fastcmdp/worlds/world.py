"""What a run reads of a problem, whether a table or a simulator stands behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.policies import BoundPolicy
from fastcmdp.simulators.simulator import Simulator

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True)
class World(ABC):
    """A model, what kernels read of it, a policy class bound to it, and the exact optimum; shared by all replicates.

    Attributes
    ----------
    model : CMDP or Simulator
        Units, limits and names.
    tables : NamedTuple
        What the sampler reads.
    policy : BoundPolicy
    optimum : Optimum or None
        None where the model is too large, where nobody wants it, and for simulators.
    draws : "fast" or "exact"
        See ``build_tables``.
    """

    model: CMDP | Simulator
    tables: Any
    policy: BoundPolicy
    optimum: Optimum | None = None
    draws: str = "fast"

    def with_stop(self) -> Self:
        """The same with a word of its own by which kernels are told to stop (kernels/stop.py): one a run."""
        return replace(self, tables=self.tables._replace(stop=np.zeros(1, np.int64)))

    @property
    def table(self) -> CMDP:
        """The model, where it has a table.

        Raises
        ------
        SettingError
            It is a simulator.
        """
        raise SettingError(f"{self.model!r} is a simulator, and this needs a table of transitions")

    @property
    @abstractmethod
    def start(self) -> Float:
        """Probabilities of start states, float64[S]; empty where states have no numbers."""

    @property
    @abstractmethod
    def n_state(self) -> int:
        """Numbers that make up a state which has no number; 0 where it has one."""

    @property
    @abstractmethod
    def n_gradients(self) -> int:
        """Choices whose logits' gradients may be kept between draws."""

    @abstractmethod
    def actions(self, theta: Float, n_visited: int, n_draws: float) -> Any:
        """The policy at theta as kernels draw from it, with room for ``n_visited`` states that have no number.

        n_draws : actions drawn between two changes of theta; few of them are better made on demand
        """

    @abstractmethod
    def refresh(self, actions: Any, theta: Float) -> None:
        """Theta has changed elsewhere than in a kernel: bring ``actions`` up to date."""

    @abstractmethod
    def probabilities(self, actions: Any, theta: Float) -> Float:
        """Action probabilities of the choices, float64[C]."""

    @abstractmethod
    def chances(self, theta: Float | None, policy: Float | None, observation: Any) -> tuple[Int, Float]:
        """The actions where an observation is made, int64[n], and their probabilities.

        theta : parameters; on tables ``policy``, float64[C], may say all instead

        Raises
        ------
        SettingError
            No observation of this model.
        """

    @abstractmethod
    def fault(self, actions: Any) -> str:
        """Why a run with these actions failed, where the model is to blame; else ""."""
