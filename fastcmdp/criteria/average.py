"""Average reward, J_f = lim (1/T) E sum_t f, as a discounted model.

Let z be a state that every policy comes back to, from everywhere, and w(s) the largest mean number of steps to z, w(s)
= 1 + max_a sum_{s' != z} P(s'|s,a) w(s'), for z itself the longest mean return. With gamma = 1 - 1/max w,

    P~(s'|s,a) = P(s'|s,a) w(s') / (gamma w(s)),   s' != z,
    P~(z|s,a)  = ((w(s) - 1) / w(s)) / gamma - the sum of those,
    the rest, 1 - (1 - 1/w(s)) / gamma, to a state of rest with f = 0;     f~ = f / w,

put h(s) = w(s) (V~(s) - V~(z)) for the discounted values V~ of a policy. Then h = f - V~(z) + P h and h(z) = 0: V~(z)
is the average J_f of the policy, exactly. So the start is z and values, limits and multipliers are those of averages.
The state of rest comes last and has one choice: a policy has one entry more, 1.

Where no such z is found, the chain restarts instead: with probability 1 - gamma = RESTART / T a step, at the stationary
law mu of the uniform policy; T is the span of that policy's relative values, of the largest signal's span, at least 1.
Rows stay as they are, signals are (1 - gamma) f, and the value is the average of the chain that restarts. It differs
from that of the chain that runs on by (1 - gamma) mu . h to first order, h the relative values of the policy at hand:
by nothing for the uniform policy, by RESTART of the signal's span or so for one that mixes as fast.

The reduction is that of Feinberg and Huang (On the reduction of total-cost and average-cost MDPs to discounted MDPs,
Naval Research Logistics 66, 2019; recalled, the identity is derived here and tested).
"""

from __future__ import annotations

import math
import warnings
from typing import NoReturn

import numpy as np
import scipy  # its parts load at their first use

from fastcmdp.criteria.ends import LONGEST, classes, listed, longest_times, matrix, never
from fastcmdp.criteria.plain import Flags, Floats, Integers, PlainRows, Restated, with_weights
from fastcmdp.errors import ModelError

TRIED = 12  # states of renewal that are compared, in models of up to SMALL states; 2 beyond, of so many tried
SMALL = 2_000
RESTART = 1e-3


def average(rows: PlainRows) -> Restated:
    """The discounted model, with one state more; or the one that restarts, with a warning.

    Raises
    ------
    ModelError
        Policies with several recurrent classes (multichain): two are named. A chain that takes beyond 1e9 steps to
        forget where it was.
    """
    visited = _renewal(rows)
    if visited is None:
        return _restarting(rows)
    renewal, weight = visited
    gamma = 1.0 - 1.0 / max(2.0, float(weight.max()))
    n, n_choices = rows.n_states, len(rows.choice_to_branch) - 1
    wider = rows._replace(
        state_to_choice=np.append(rows.state_to_choice, n_choices + 1),
        choice_to_branch=np.append(rows.choice_to_branch, rows.choice_to_branch[-1] + 1),
        branch_target=np.append(rows.branch_target, n),
        branch_prob=np.append(rows.branch_prob, 1.0),
        signals=np.vstack([rows.signals, np.zeros(rows.signals.shape[1])]),
        start=np.eye(1, n + 1, renewal)[0],
        action_of_choice=np.append(rows.action_of_choice, 0),
        variables=_with_rest(rows),
    )
    return Restated(with_weights(wider, np.append(weight, 0.0), gamma, n, 1.0, renewal), gamma)


def _with_rest(rows: PlainRows) -> dict[str, np.ndarray]:
    """Variables, 0 at rest, and one that says which state that is."""
    grown = {name: np.append(value, value.dtype.type(0)) for name, value in rows.variables.items()}
    rest = np.zeros(rows.n_states + 1, bool)
    rest[-1] = True
    number = {"state": np.arange(rows.n_states + 1)} if not rows.variables else {}
    return grown | number | {"rest": rest}


def _restarting(rows: PlainRows) -> Restated:
    """The same rows, with a discount that stands for restarts."""
    law, span = _mixing(rows)
    unit = RESTART / max(1.0, span)
    warnings.warn(
        f"no state is visited again by every policy, or not in {LONGEST:.0e} steps: averages are those of a chain that "
        f"restarts with probability {unit:.3g} a step, off by about {RESTART:g} of a signal's range for policies that "
        "mix as fast as the uniform one; fastcmdp.exact.average_of and average_optimum are exact",
        RuntimeWarning,
        stacklevel=4,
    )
    return Restated(rows._replace(signals=unit * rows.signals, start=law), 1.0 - unit)


def _mixing(rows: PlainRows) -> tuple[Floats, float]:
    """Of the uniform policy: its stationary law, and the largest span of relative values, of their signal's span.

    With z recurrent and column z of I - P made ones, A x = f has the relative values in x, but the average in x(z), and
    d A = e_z is the law.
    """
    from scipy.sparse.linalg import splu

    width = np.diff(rows.state_to_choice)
    n, n_choices = rows.n_states, int(rows.state_to_choice[-1])
    entries = np.repeat(1.0 / width, width), np.arange(n_choices), rows.state_to_choice
    uniform = scipy.sparse.csr_array(entries, shape=(n, n_choices))
    z = int(one_class(rows, np.ones(n_choices, bool))[0])
    kept = scipy.sparse.diags_array((np.arange(n) != z).astype(float))
    ones = scipy.sparse.csr_array((np.ones(n), (np.arange(n), np.full(n, z))), shape=(n, n))
    system = (scipy.sparse.eye_array(n) - uniform @ matrix(rows)) @ kept + ones
    try:
        factors = splu(scipy.sparse.csc_array(system))
    except RuntimeError:  # singular: to rounding, parts of the chain are never left
        _refuse_slow(math.inf)
    law = np.maximum(factors.solve(np.eye(1, n, z)[0], trans="T"), 0.0)
    values = factors.solve(uniform @ rows.signals)
    values[z] = 0.0
    spans = np.ptp(rows.signals, axis=0)
    moves = spans > 0
    span = float((np.ptp(values, axis=0)[moves] / spans[moves]).max(initial=0.0))
    if not span <= LONGEST:
        _refuse_slow(span)
    return law / law.sum(), span


def _refuse_slow(steps: float) -> NoReturn:
    raise ModelError(
        f"the chain of the uniform policy takes {steps:.3g} steps to forget where it was; averages can be told from "
        f"those of separate parts up to {LONGEST:.0e}: raise the least probabilities, or give a discount gamma"
    )


def _renewal(rows: PlainRows) -> tuple[int, Floats] | None:
    """The state of renewal with the least longest time among some, and the times; None where none is found.

    A state that a policy comes to in more than LONGEST steps is none.
    """
    everything = np.ones(len(rows.choice_to_branch) - 1, bool)
    met = [_only(rows, classes(rows, everything))]
    candidates = met[0]
    best: tuple[int, Floats] | None = None
    tried: list[int] = []
    n_timed, n_most = 0, TRIED if rows.n_states <= SMALL else 2
    while candidates.size and len(tried) < TRIED and n_timed < n_most:
        left = np.setdiff1d(candidates, tried)
        if not left.size:
            break
        z = int(left[(len(left) * (2 * len(tried) + 1) // (2 * TRIED)) % len(left)])
        here = np.zeros(rows.n_states, bool)
        here[z] = True
        inside, kept = never(rows, here)
        if inside.any():
            recurrent = _only(rows, classes(rows, kept))
            for other in met:
                if not np.intersect1d(recurrent, other).size:
                    _refuse(recurrent, other)
            met.append(recurrent)
            candidates = np.intersect1d(candidates, recurrent)
            continue
        tried.append(z)
        weight = longest_times(rows, np.ones(rows.n_states, bool), here)
        if np.isinf(weight).any():
            continue
        n_timed += 1
        if best is None or weight.max() < best[1].max():
            best = z, weight
    return best


def one_class(rows: PlainRows, kept: Flags) -> Integers:
    """The recurrent class of a policy that takes each kept choice with some probability; ModelError for several."""
    return _only(rows, classes(rows, kept))


def _only(rows: PlainRows, recurrent: list[Integers]) -> Integers:
    if len(recurrent) > 1:
        _refuse(recurrent[0], recurrent[1])
    return recurrent[0]


def _refuse(one: Integers, other: Integers) -> None:
    raise ModelError(
        f"the model is multichain: a policy has the recurrent classes {{{listed(one)}}} and {{{listed(other)}}}, and "
        "its average depends on where it starts. Average reward needs one class: join them by transitions of small "
        "probability, or give a discount gamma"
    )
