"""A control variate for a run's own estimates of J: the length of its rollouts, whose expectation is known.

Sums of a signal over a rollout grow with its random length, and those of a shifted signal (a limit is a shift) mostly
with that: noise of (1-gamma) limit sd(T). With y_k the mean of signal k's sums over the rollouts of outer step t and x
the excess of their mean length over its expectation,

    J_k estimate = y_k - b_k x,    b_k = S_xy / S_xx over the outer steps before t,

which is unbiased whatever b_k is, since E x = 0 and x is independent of what came before. b_k begins at the shift of
signal k, with the weight of one outer step: the sums without the shift.
"""

from __future__ import annotations

from fastcmdp.kernels.jit import kernel


@kernel
def add_estimates(state, r, total, n, excess):
    """Add this outer step's estimates of J, from rows 0..n-1 of ``total``, to the sums of replicate r.

    state.control : float64[R, 2+m], S_xx and the S_xy of all signals
    """
    sums, control, done = state.sums[r], state.control[r], state.outer[r]
    for k in range(total.shape[1]):
        mean = 0.0
        for h in range(n):
            mean += total[h, k]
        mean /= n
        estimate = mean - control[1 + k] / control[0] * excess
        if done > 0:  # there is a mean to measure deviations from
            control[1 + k] += excess * (mean - sums[k] / done)
        sums[k] += estimate
    if done > 0:
        control[0] += excess * excess
