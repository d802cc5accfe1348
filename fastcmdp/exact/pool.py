"""Best responses met so far: where the next one begins, and what mixtures are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.exact.abreast import respond_abreast
from fastcmdp.exact.control import Control, Guess, Response, cold, one_hot
from fastcmdp.exact.evaluation import expected, occupancies
from fastcmdp.exact.linear import Floats, accuracy, weighted

FAR = 0.5  # between weights that sum to 1: their policies have little in common
MOVED = 100  # policies that pass to a model with other limits
KEPT = 12  # policies whose state values are kept at least
KEPT_BYTES = 200_000_000  # and as many as take no more than this


class Stage(NamedTuple):
    """How far an exact answer is.

    Attributes
    ----------
    what : str
        "ranges", "Slater value" or "multipliers".
    responses : int
        Best responses so far: policies that are optimal for some weights of the signals.
    gap : float
        Between the best mixture and what is known to bound it, in the user's units; infinite before one is known.
    """

    what: str
    responses: int
    gap: float


class Pool:
    """Deterministic policies met so far, with their values in kernel units."""

    def __init__(self, cmdp: CMDP, tell: Callable[[Stage], None] | None = None) -> None:
        self.cmdp = cmdp
        self.tell = tell
        self.what, self.gap = "ranges", float("inf")
        self.control = Control(cmdp)
        self.least: list[
            float
        ] = []  # value of each signal over all policies; the greatest are the first policies'
        self.weights: list[Floats] = []  # that each is a best response to, of sum one
        self.sizes: list[float] = []  # of the weights that were asked for
        self.choices: list[NDArray[np.int32]] = []
        self.values: list[Floats] = []
        self.relative: list[float] = []  # how exact each is
        self.bounds: list[float] = []  # no policy attains more under the weights that were asked for
        self.abreast = True  # whether responses come several at once, as far as is known
        self._state_values: dict[int, Floats] = {}  # of the last few, where the next responses begin

    def respond(self, weights: Floats, relative: float = 0.0) -> int:
        """Add a best policy for the weighted sum of the signals, as exact as ``relative`` says; its number."""
        relative = relative if relative > accuracy(self.cmdp.gamma) else 0.0
        size = float(np.abs(weights).sum())
        start = self._guess(weights / size, size)
        response = self.control.respond(self.cmdp.signals, weights, start, relative=relative)
        return self._add(weights, size, response, relative)

    def respond_all(self, weights: list[Floats], relative: float) -> list[int]:
        """`respond` to each of them, up to eight of two signals at once where that is possible."""
        if len(weights) > 1 and self.abreast and self.control.mixes_fast:
            sizes = [float(np.abs(row).sum()) for row in weights]
            starts = [self._guess(row / size, size) for row, size in zip(weights, sizes, strict=True)]
            responses = respond_abreast(self.control, np.array(weights), starts, relative)
            if responses is not None:
                return [
                    self._add(row, size, response, relative)
                    for row, size, response in zip(weights, sizes, responses, strict=True)
                ]
            self.abreast = False
        return [self.respond(row, relative) for row in weights]

    def _add(self, weights: Floats, size: float, response: Response, relative: float) -> int:
        k = len(self.values)
        self.weights.append(weights / size)
        self.sizes.append(size)
        self.choices.append(response.choices.astype(np.int32))
        self.values.append(expected(self.cmdp, response.values))
        self.relative.append(relative)
        self.bounds.append(response.bound)
        self._state_values[k] = response.values
        if len(self._state_values) > max(KEPT, KEPT_BYTES // response.values.nbytes):
            del self._state_values[min(self._state_values)]
        return k

    def report(self) -> None:
        """Tell how far it is, after a response and what follows from it."""
        if self.tell is not None:
            self.tell(Stage(self.what, len(self.values), float(self.cmdp.reward_scale) * self.gap))

    def moved(self, cmdp: CMDP) -> Pool:
        """What is known, for the same model with other limits: its signals are the old ones times a factor and shifted.

        Of the policies, those that are best for one signal, and the last.
        """
        factor = np.append(1.0, self.cmdp.constraint_scale / cmdp.constraint_scale)
        sign = np.array([1.0 if sense == "<=" else -1.0 for sense in cmdp.sense])
        shift = np.append(0.0, sign * (cmdp.anchors - self.cmdp.anchors) / cmdp.constraint_scale)
        pool, n = Pool(cmdp, self.tell), len(self.values)
        pool.least = (factor * self.least + shift).tolist() if self.least else []
        for k in sorted({*range(min(n, len(factor))), *range(max(0, n - MOVED), n)}):
            weights = self.sizes[k] * self.weights[k] / factor
            if k in self._state_values:
                pool._state_values[len(pool.values)] = factor * self._state_values[k] + shift
            pool.sizes.append(float(np.abs(weights).sum()))
            pool.weights.append(weights / pool.sizes[-1])
            pool.choices.append(self.choices[k])
            pool.values.append(factor * self.values[k] + shift)
            pool.relative.append(self.relative[k])
            pool.bounds.append(self.bounds[k] + float(weights @ shift))
        return pool

    def replace(self, k: int) -> None:
        """Put an exact response in the place of one that is loose."""
        self.respond(self.weights[k])
        self.choices[k], self.values[k] = self.choices[-1], self.values[-1]
        self.relative[k], self.bounds[k] = self.relative[-1], self.bounds[-1]

    def _guess(self, share: Floats, size: float) -> Guess:
        """State values of each signal, linear between the policies with the nearest weights.

        As many policies as there are signals; where their weights lie in a plane of less dimension, the point of
        it that is nearest. The value of the weighted sum is a function of the weights whose gradient the values of
        the signals are: half of the gradient there and half of the one here gives it but for terms of third order.
        """
        kept = self._state_values
        if not kept:
            return cold(self.cmdp.n_states, len(share))
        numbers = np.array(list(kept))
        apart = np.abs(np.array([self.weights[k] for k in kept]) - share).sum(axis=1)
        near = numbers[np.argsort(apart, kind="stable")[: max(2, len(share))]].tolist()
        if len(near) < 2 or apart.min() > FAR:
            return Guess(kept[near[0]], weighted(kept[near[0]], size * share), near=False)
        base = self.weights[near[0]]
        spans = np.array([self.weights[k] - base for k in near[1:]]).T
        parts = np.linalg.lstsq(spans, share - base, rcond=1e-2)[0]
        parts *= min(1.0, 2.0 / max(float(np.abs(parts).sum()), 1e-300))  # no further than that
        parts = np.append(1 - parts.sum(), parts)
        off = parts @ np.array([self.weights[k] for k in near]) - share
        values, value = np.zeros_like(kept[near[0]]), np.zeros(self.cmdp.n_states)
        for part, k in zip(parts.tolist(), near, strict=True):
            values += part * kept[k]
            value += weighted(kept[k], 0.5 * size * part * (self.weights[k] + share - off))
        return Guess(values, value, near=True)

    def policy(self, k: int) -> Floats:
        """Action probabilities of policy k."""
        return one_hot(self.cmdp, self.choices[k])

    def mixed(self, shares: dict[int, float]) -> Floats:
        """Occupancy of choices of a mixture of policies, by number."""
        nu: Floats = np.zeros(self.cmdp.n_choices)
        for k, share in shares.items():
            if share > 0:
                nu[self.choices[k]] += share * occupancies(self.cmdp, self.policy(k)[None], "auto")[0]
        nu /= nu.sum()
        return nu
