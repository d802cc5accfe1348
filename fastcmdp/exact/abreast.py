"""Best responses to up to eight weightings of two signals at once, where a chain mixes fast.

A Bellman sweep T for signal f changes values by amounts between low and high. With its greedy policy pi,

    T V + gamma/(1-gamma) low  <=  V_pi  <=  V*  <=  T V + gamma/(1-gamma) high                       (MacQueen)

so one sweep whose low and high are close proves that its policy is as good as any, and is its evaluation too. Between
two such sweeps others go along the choices found, of which the policies have most in common.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from fastcmdp.exact.control import Control, Guess, Response
from fastcmdp.exact.evaluation import expected
from fastcmdp.exact.linear import PATIENCE, Floats, accuracy
from fastcmdp.exact.sweeps import Abreast
from fastcmdp.kernels.exact.lanes import LANES

BETWEEN = 8  # sweeps along a policy between two that look for a better one


def respond_abreast(
    control: Control, weights: Floats, starts: list[Guess], relative: float
) -> list[Response] | None:
    """Best responses to rows of ``weights`` (n, 2), each as `Control.respond` gives it; None where sweeps do not do."""
    cmdp, n = control.cmdp, len(weights)
    lanes = np.minimum(np.arange(LANES), n - 1)  # the last one fills up
    weights = weights[lanes]
    sweeps = Abreast(control.rows, cmdp.signals)
    peaks = np.abs(cmdp.signals).max(axis=0)
    finest = max(accuracy(cmdp.gamma), relative)
    goal = 0.5 * finest * np.maximum(np.abs(weights) @ peaks, 1e-300) / cmdp.gamma
    value = np.column_stack([starts[j].value for j in lanes])
    best = _improved(sweeps, weights, value, goal)
    if best is None:
        return None
    value, choice, high = best
    # The signal of less weight is evaluated, and the other is what is left.
    less = np.argmin(np.abs(weights), axis=1)
    other = np.column_stack([starts[j].values[:, less[j]] for j in lanes])
    parts = _evaluated(sweeps, np.eye(2)[less], choice, other, np.minimum(goal, 0.5 * finest * peaks[less]))
    if parts is None:
        return None
    attained = expected(cmdp, value)
    responses = []
    for j in range(n):
        values = np.empty((cmdp.n_states, 2))
        small, large = less[j], 1 - less[j]
        values[:, small] = parts[:, j]
        values[:, large] = (value[:, j] - weights[j, small] * parts[:, j]) / weights[j, large]
        bound = float(attained[j] + high[j])
        responses.append(Response(float(attained[j]), bound, choice[:, j].astype(np.int64), values))
    return responses


def _improved(
    sweeps: Abreast, weights: Floats, value: Floats, goal: Floats
) -> tuple[Floats, Floats, Floats] | None:
    """Values of greedy policies, their choices, and by how much any policy's may exceed them."""
    out, choice = np.empty_like(value), np.empty_like(value)
    horizon = sweeps.gamma / (1 - sweeps.gamma)
    for _ in range(PATIENCE // BETWEEN):
        low, high = sweeps.improve(weights, value, out, choice)
        if (0.5 * (high - low) <= goal).all():
            return out + horizon * 0.5 * (low + high), choice, horizon * 0.5 * (high - low)
        rows = sweeps.merged(choice)
        for _ in range(BETWEEN):
            value, out = out, value
            low, high = sweeps.follow(weights, rows, choice, value, out)
            if (0.5 * (high - low) <= goal).all():
                break
        value, out = out, value
    return None


def _evaluated(
    sweeps: Abreast, weights: Floats, choice: Floats, value: Floats, goal: Floats
) -> Floats | None:
    """Values of policies."""
    rows, out = sweeps.merged(choice), np.empty_like(value)
    for done in count(1):
        low, high = sweeps.follow(weights, rows, choice, value, out)
        if (0.5 * (high - low) <= goal).all():
            return out + sweeps.gamma / (1 - sweeps.gamma) * 0.5 * (low + high)
        if done == PATIENCE:
            return None
        value, out = out, value
    return None
