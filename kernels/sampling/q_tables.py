"""Tables of Q of a whole model, one column a signal: from rollouts of a generative model, or exact ones.

Where they come from is data: `Sampled` draws rollouts from every choice, `Exact` evaluates the policy. So a recursion
can be seen with exact gradients, in the same machine code as from samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastcmdp.kernels.dispatch import generic
from fastcmdp.kernels.jit import kernel
from fastcmdp.kernels.sampling.truncated import NoTally, Tally, truncated
from fastcmdp.kernels.stop import leaves


class Sampled(NamedTuple):
    """M rollouts of N pairs from every choice."""

    n_rollouts: int
    n_pairs: int
    choices: np.ndarray  # int64[C]: 0, 1, ..


class Exact(NamedTuple):
    """Evaluation by sweeps over the states, until no value moves by more than the tolerance over 1/(1-gamma)."""

    choice_to_branch: np.ndarray  # int64[C+1]
    branch_target: np.ndarray  # integers[B]
    branch_prob: np.ndarray  # float64[B]
    tolerance: float


@generic("source")
def evaluate(source, tables, actions, rng, signal, gamma, out, tally):
    """Q of every choice and signal under ``actions``, to out float64[C, n]; return the transitions drawn.

    tally : Tally, to whose visits the occupancy goes, up to a factor; or NoTally
    """


@generic("tally")
def begin_tally(tally, tables, prob):
    """Forget visits and find the chances of all first pairs."""


@begin_tally.on(NoTally)
def begin_nothing(tally, tables, prob):
    pass


@begin_tally.on(Tally)
def begin_visits(tally, tables, prob):
    tally.visit[:] = 0.0
    for q in range(prob.shape[0]):
        tally.chance[q] = tally.start[tables.choice_state[q]] * prob[q]


@evaluate.on(Sampled)
def evaluate_by_rollouts(source, tables, actions, rng, signal, gamma, out, tally):
    begin_tally(tally, tables, actions.prob)
    transitions = truncated(
        tables, actions, rng, source.choices, source.n_rollouts, signal, gamma, source.n_pairs, out, tally
    )
    for q in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[q, k] /= source.n_rollouts
    return transitions


@evaluate.on(Exact)
def evaluate_exactly(source, tables, actions, rng, signal, gamma, out, tally):
    state_to_choice, prob = tables.state_to_choice, actions.prob
    first_branch, target, weight = source.choice_to_branch, source.branch_target, source.branch_prob
    n_states, n = state_to_choice.shape[0] - 1, signal.shape[1]
    value = np.zeros((n_states, n))
    moved = np.inf
    while moved > source.tolerance and not leaves(tables.stop):
        moved = 0.0
        for s in range(n_states):
            for k in range(n):
                new = 0.0
                for q in range(state_to_choice[s], state_to_choice[s + 1]):
                    ahead = 0.0
                    for b in range(first_branch[q], first_branch[q + 1]):
                        ahead += weight[b] * value[target[b], k]
                    out[q, k] = signal[q, k] + gamma * ahead
                    new += prob[q] * out[q, k]
                moved = max(moved, abs(new - value[s, k]))
                value[s, k] = new
    visit_exactly(tally, source, tables, prob, gamma)
    return 0


@kernel
def reach_exactly(source, tables, prob, gamma, start, reach, ahead):
    """Discounted visits of every state, float64[S], by sweeps with the model's rows; ahead: work space."""
    reach[:] = start
    moved = np.inf
    while moved > source.tolerance and not leaves(tables.stop):
        ahead[:] = start
        for q in range(prob.shape[0]):
            flow = gamma * reach[tables.choice_state[q]] * prob[q]
            for b in range(source.choice_to_branch[q], source.choice_to_branch[q + 1]):
                ahead[source.branch_target[b]] += flow * source.branch_prob[b]
        moved = 0.0
        for s in range(reach.shape[0]):
            moved += abs(ahead[s] - reach[s])
        reach[:] = ahead


@generic("tally")
def visit_exactly(tally, source, tables, prob, gamma):
    """Write the occupancy to the tally's visits."""


@visit_exactly.on(NoTally)
def visit_nothing(tally, source, tables, prob, gamma):
    pass


@visit_exactly.on(Tally)
def visit_by_sweeps(tally, source, tables, prob, gamma):
    reach, ahead = np.empty(tally.start.shape[0]), np.empty(tally.start.shape[0])
    reach_exactly(source, tables, prob, gamma, tally.start, reach, ahead)
    for q in range(prob.shape[0]):
        tally.visit[q] = reach[tables.choice_state[q]] * prob[q]
