"""The frozen models of the bench: each by its text, with its fingerprint and what is exactly known of it.

``models.json`` is written by ``python bench/freeze.py`` and never changes without a new `EDITION`: what was measured on
an edition stays comparable.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.envs import from_gymnasium, from_spec
from fastcmdp.envs.spec import parse_settings
from fastcmdp.errors import NearlyInfeasibleWarning, SettingError
from fastcmdp.exact import optimum
from fastcmdp.text import unknown

Float = NDArray[np.float64]

EDITION = 1
_NOTHING = 1e-6  # of the conceivable range: a range below is rounding


@dataclass(frozen=True)
class Frozen:
    """A model of the bench.

    Attributes
    ----------
    name : str
        Short, for tables.
    model : str
        As on the command line.
    states, choices, constraints : int
    gamma : float
    fingerprint : str
        `CMDP.fingerprint`.
    reward : float
        J_r of the optimum, in the model's units.
    values, limits, duals : float64[m]
        J_c of the optimum, limits and exact multipliers.
    slater : float or None
        Slater value in kernel units; None without constraints.
    reward_range : float
        By how much J_r differs between policies: gaps are relative to it.
    ranges : float64[m]
        The same of each J_c, for violations.
    sense : tuple of str
    licence : str
        Of what the model was made from.
    """

    name: str
    model: str
    states: int
    choices: int
    constraints: int
    gamma: float
    fingerprint: str
    reward: float
    values: tuple[float, ...]
    limits: tuple[float, ...]
    duals: tuple[float, ...]
    slater: float | None
    reward_range: float
    ranges: tuple[float, ...]
    sense: tuple[str, ...]
    licence: str

    def build(self) -> CMDP:
        """The model, once it is seen to be the one that was frozen.

        Raises
        ------
        SettingError
            Its fingerprint is another: a generator, or the environment, has changed.

        Examples
        --------
        >>> frozen("river-swim-8").build().n_states
        8
        """
        cmdp = built(self.model)
        if cmdp.fingerprint() != self.fingerprint:
            raise SettingError(
                f"{self.name}: {self.model} is not the model that was frozen (fingerprint {cmdp.fingerprint()[:12]}, "
                f"not {self.fingerprint[:12]}); install the versions of NumPy and Gymnasium that the bench names"
            )
        return cmdp

    def errors(self, reward: Float, constraints: Float) -> Float:
        """The larger of gap and worst violation, each relative to what policies attain, from float64[n] and [n, m].

        Examples
        --------
        >>> import numpy as np
        >>> river = frozen("river-swim-8")
        >>> at = np.array([river.reward]), np.array([river.limits])
        >>> float(river.errors(*at)[0])
        0.0
        """
        sign = np.array([1.0 if sense == "<=" else -1.0 for sense in self.sense])
        excess = sign * (constraints.reshape(len(reward), -1) - np.array(self.limits)) / np.array(self.ranges)
        gap = (self.reward - reward) / self.reward_range
        return np.asarray(np.maximum(gap, np.max(excess, axis=1, initial=0.0)) + 0.0)

    @classmethod
    def of(cls, name: str, model: str, licence: str) -> Self:
        """Freeze a model: compute what is known of it."""
        cmdp = built(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NearlyInfeasibleWarning)
            best = optimum(cmdp)
        conceivable = np.abs(np.append(cmdp.reward_scale, cmdp.constraint_scale)) / (1.0 - cmdp.gamma)
        widths = np.append(np.ptp(best.reward_range), np.ptp(best.constraint_range, axis=1))
        widths = np.where(widths > _NOTHING * conceivable, widths, conceivable)
        return cls(
            name=name,
            model=model,
            states=cmdp.n_states,
            choices=cmdp.n_choices,
            constraints=cmdp.n_constraints,
            gamma=cmdp.gamma,
            fingerprint=cmdp.fingerprint(),
            reward=float(best.reward),
            values=tuple(map(float, best.constraints)),
            limits=tuple(map(float, cmdp.limits)),
            duals=tuple(map(float, best.duals)),
            slater=None if best.slater is None else float(best.slater),
            reward_range=float(widths[0]),
            ranges=tuple(map(float, widths[1:])),
            sense=tuple(cmdp.sense),
            licence=licence,
        )


def built(model: str) -> CMDP:
    """The model of a text `env:NAME?key=value` or `gym:ID?key=value`."""
    kind, _, rest = model.partition(":")
    name, question, query = rest.partition("?")
    if kind == "gym":
        settings: dict[str, Any] = parse_settings(query.split("&") if question else (), model)
        return from_gymnasium(name, **settings)
    return from_spec(model)


def suite() -> list[Frozen]:
    """All frozen models, small ones first.

    Examples
    --------
    >>> len(suite()), max(each.states for each in suite())
    (30, 100000)
    """
    text = files("fastcmdp.bench").joinpath("models.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["models"]
    lists = ("values", "limits", "duals", "ranges", "sense")
    for row in rows:
        row.update({key: tuple(row[key]) for key in lists})
    return [Frozen(**row) for row in rows]


def frozen(name: str) -> Frozen:
    """The frozen model of that name.

    Raises
    ------
    SettingError
        There is none; the nearest is named.
    """
    known = {each.name: each for each in suite()}
    if name not in known:
        raise SettingError(unknown("model of the bench", name, known))
    return known[name]
