"""The oracle: a slow, obvious twin of every kernel, in plain loops over lists. Nothing here imports fastcmdp.

A function bears the name of the kernel that it judges. Its random words come from numpy.random.SFC64, in the
order that kernels/sampling/rollouts.py lays down, so kernel and twin make the same draws. Labels of alias rows are the
states and choices themselves; features ``phi`` are C lists of d numbers, the unit vectors for a tabular policy.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

Row = list[tuple[float, Any, Any]]  # alias entries: threshold, accepted label, rejected label


class Model(NamedTuple):
    """A CMDP as lists, in compressed rows."""

    state_to_choice: list[int]
    choice_to_branch: list[int]
    branch_target: list[int]
    branch_prob: list[float]
    start: list[float]
    signals: list[list[float]]
    gamma: float
    exact: bool  # draws of 53 bits each, else two draws of 32 bits share a word


def plain(cmdp: Any, exact: bool = False) -> Model:
    """The lists of a model that holds arrays under the same names."""
    return Model(*(getattr(cmdp, name).tolist() for name in Model._fields[:-2]), cmdp.gamma, exact)


def random_rows(
    seed: int, n_states: int = 5, n_actions: int = 3, m: int = 1, gamma: float = 0.9, **changes: Any
) -> dict[str, Any]:
    """Arguments for a CMDP with 1 to n_actions actions a state (the first has all) and 1 to 4 branches an action."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(1, n_actions + 1, n_states)
    actions[0] = n_actions
    n_choices = int(actions.sum())
    branches = rng.integers(1, 5, n_choices)
    return {
        "state_to_choice": np.append(0, np.cumsum(actions)),
        "choice_to_branch": np.append(0, np.cumsum(branches)),
        "branch_target": rng.integers(0, n_states, int(branches.sum())),
        "branch_prob": np.concatenate([rng.dirichlet(np.ones(n)) for n in branches]),
        "reward": rng.random(n_choices),
        "costs": [rng.random(n_choices) for _ in range(m)],
        "limits": rng.random(m) / (1 - gamma),
        "start": rng.dirichlet(np.ones(n_states)),
        "gamma": gamma,
    } | changes


MODELS = {
    "random": random_rows(1),
    "no constraint": random_rows(2, m=0),
    "three constraints": random_rows(3, m=3),
    "one state": random_rows(4, n_states=1, n_actions=5),
    "one action everywhere": random_rows(5, n_actions=1),
    "many actions": random_rows(6, n_states=12, n_actions=17, m=2),
    "many states": random_rows(11, n_states=100, gamma=0.5),
    "no reward": random_rows(12, reward=[0.0] * 5),
    "short horizon": random_rows(7, n_states=4, gamma=0.1),
    "long horizon": random_rows(8, gamma=0.99),
    "start with zeros": random_rows(9, start=[0.0, 0.25, 0.0, 0.75, 0.0]),
    "absorbing": {
        "state_to_choice": [0, 2, 3, 4],
        "choice_to_branch": [0, 2, 4, 5, 6],
        "branch_target": [0, 1, 2, 2, 1, 2],  # the second choice names its target twice
        "branch_prob": [0.9, 0.1, 0.5, 0.5, 1.0, 1.0],
        "reward": [1.0, 0.0, 0.5, 0.0],
        "costs": [0.5, 0.0, 1.0, 0.0],
        "limits": 2.0,
        "start": 0,
        "gamma": 0.8,
    },
}


def choices(model: Model, s: int) -> range:
    return range(model.state_to_choice[s], model.state_to_choice[s + 1])


def branches(model: Model, q: int) -> range:
    return range(model.choice_to_branch[q], model.choice_to_branch[q + 1])


def n_states(model: Model) -> int:
    return len(model.state_to_choice) - 1


def owner(model: Model, q: int) -> int:
    """The state of choice q."""
    for s in range(n_states(model)):
        if q in choices(model, s):
            return s
    raise IndexError(q)


def identity(n: int) -> list[list[float]]:
    return [[float(i == j) for j in range(n)] for i in range(n)]


# Random numbers.


def streams(seed: int, replicate: int, lanes: int) -> list[np.random.SFC64]:
    return [
        np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(replicate, lane))) for lane in range(lanes)
    ]


def state_words(rng: list[np.random.SFC64]) -> list[list[int]]:
    """The four words of every stream: a row a word, a column a lane."""
    words: list[Any] = [stream.state["state"]["state"].tolist() for stream in rng]
    return [list(row) for row in zip(*words, strict=True)]


def next_word(stream: np.random.SFC64) -> int:
    return int(stream.random_raw())


def to_unit(word: int) -> float:
    return (word >> 11) / 2**53


def geometric_horizon(word: int, gamma: float) -> int:
    return int(math.log(1.0 - to_unit(word)) * (1.0 / math.log(gamma)))


# Draws, one word each.


def uniform(stream: np.random.SFC64) -> float:
    return to_unit(next_word(stream))


def normal_quantile(p: float) -> float:
    return statistics.NormalDist().inv_cdf(p)


def normal(stream: np.random.SFC64) -> float:
    return normal_quantile(((next_word(stream) >> 12) + 0.5) / 2**52)


def exponential(stream: np.random.SFC64) -> float:
    return -math.log(1.0 - uniform(stream))


def geometric(stream: np.random.SFC64, gamma: float) -> int:
    return geometric_horizon(next_word(stream), gamma)


def categorical(stream: np.random.SFC64, weights: list[float]) -> int:
    """The first i at which the running sum passes U times the whole; the last possible one if rounding hides it."""
    total = 0.0
    for w in weights:
        total += w
    if total == math.inf:
        return categorical(stream, [w / 2.0**64 for w in weights])
    left = uniform(stream) * total
    possible = [i for i, w in enumerate(weights) if w > 0.0]
    for i in possible:
        left -= weights[i]
        if left < 0.0:
            return i
    return possible[-1] if possible else -1


# Alias rows.


def fill_alias_row(weights: list[float], labels: list[Any], n_entries: int, exact: bool = False) -> Row:
    """Vose's construction: each light entry is filled up by the last heavy one."""
    n = len(weights)
    scaled = [w * n_entries for w in weights] + [0.0] * (n_entries - n)
    small = [i for i in range(n_entries) if scaled[i] < 1.0]
    large = [i for i in range(n_entries) if scaled[i] >= 1.0]
    row: Row = [(0, None, None)] * n_entries
    while small and large:
        i, j = small.pop(), large[-1]
        threshold = scaled[i] if exact else min(int(scaled[i] * 2.0**32), 2**32 - 1)
        row[i] = (threshold, labels[i] if i < n else labels[j], labels[j])
        scaled[j] -= 1.0 - scaled[i]
        if scaled[j] < 1.0:
            small.append(large.pop())
    for i in small + large:
        k = i if i < n and weights[i] > 0.0 else weights.index(max(weights))
        row[i] = (0, labels[k], labels[k])
    return row


def draw_label(row: Row, bits: int, exact: bool = False) -> Any:
    """Drawn by 32 bits, or by the 53 high bits of a whole word."""
    if exact:
        x = to_unit(bits) * len(row)
        number = min(int(x), len(row) - 1)
        coin: float = x - number
    else:
        number, coin = divmod(bits * len(row), 2**32)
    threshold, accepted, rejected = row[number]
    return accepted if coin < threshold else rejected


def law(row: Row, exact: bool = False) -> dict[Any, Fraction]:
    """Probability of each label, over all 2^32 half words; for exact draws, over a continuous u."""
    n, total = len(row), 1 if exact else 2**32
    prob = dict.fromkeys([label for entry in row for label in entry[1:]], Fraction(0))
    for i, (threshold, accepted, rejected) in enumerate(row):
        # Entry i is picked where i total <= u n < (i + 1) total, and accepts up to its threshold.
        ends = [Fraction(x) / n for x in (i * total, i * total + Fraction(threshold), (i + 1) * total)]
        first, middle, last = ends if exact else [Fraction(math.ceil(x)) for x in ends]
        prob[accepted] += (middle - first) / total
        prob[rejected] += (last - middle) / total
    return prob


def row_length(n: int) -> int:
    """The least power of two that is at least n."""
    return n if n & (n - 1) == 0 else row_length(n + 1)


def build_state_rows(model: Model) -> tuple[list[int], int]:
    """Row codes, 2 * first + length: longest rows first; and the number of entries."""
    lengths = [row_length(len(choices(model, s))) for s in range(n_states(model))]
    codes, first = [0] * len(lengths), 0
    for s in sorted(range(len(lengths)), key=lambda s: -lengths[s]):
        codes[s] = 2 * first + lengths[s]
        first += lengths[s]
    return codes, first


def build_start(model: Model) -> Row:
    support = [s for s in range(n_states(model)) if model.start[s] > 0.0]
    return fill_alias_row([model.start[s] for s in support], support, len(support), model.exact)


def branch_row(model: Model, q: int) -> Row:
    mine = branches(model, q)
    weights = [model.branch_prob[b] for b in mine]
    return fill_alias_row(weights, [model.branch_target[b] for b in mine], len(mine), model.exact)


def build_branches(model: Model) -> list[Row]:
    """One row a choice."""
    return [branch_row(model, q) for q in range(len(model.signals))]


def action_row(model: Model, prob: list[float], s: int) -> Row:
    mine = choices(model, s)
    return fill_alias_row([prob[q] for q in mine], list(mine), row_length(len(mine)), model.exact)


def fill_actions(model: Model, prob: list[float]) -> list[Row]:
    """One row a state."""
    return [action_row(model, prob, s) for s in range(n_states(model))]


# Rollouts.


class Rollouts(NamedTuple):
    total: list[list[float]]  # a job: sums of all signals over its T + 1 pairs
    choice: list[int]  # a job: its last pair
    horizon: list[int]  # a job: T


def bits(word: int, stream: np.random.SFC64, exact: bool) -> tuple[int, int]:
    """What draws the state and what draws the action: two halves of a word, or the word and the next."""
    return (word, next_word(stream)) if exact else divmod(word, 2**32)


def rollouts(
    model: Model,
    prob: list[float],
    rng: list[np.random.SFC64],
    jobs: list[tuple[int | None, int | None]],
) -> Rollouts:
    """Run jobs (choice, state), None for what is drawn; a lane at work is [job, transitions left]."""
    start, branch_rows, action_rows = build_start(model), build_branches(model), fill_actions(model, prob)
    out = Rollouts([[] for _ in jobs], [-1 for _ in jobs], [0 for _ in jobs])
    lanes: list[list[int] | None] = [None for _ in rng]
    next_job = 0
    while True:
        for i, stream in enumerate(rng):
            lane = lanes[i]
            while lane is None or lane[1] == 0:
                lane = lanes[i] = None
                if next_job == len(jobs):
                    break
                horizon = geometric_horizon(next_word(stream), model.gamma)
                q, s = jobs[next_job]
                if q is None:
                    high, low = bits(next_word(stream), stream, model.exact)
                    s = draw_label(start, high, model.exact) if s is None else s
                    q = draw_label(action_rows[s], low, model.exact)
                out.total[next_job] = list(model.signals[q])
                out.choice[next_job] = q
                out.horizon[next_job] = horizon
                lane = lanes[i] = [next_job, horizon]
                next_job += 1
        if all(lane is None for lane in lanes):
            return out
        for lane, stream in zip(lanes, rng, strict=True):
            word = next_word(stream)
            if lane is None:
                continue
            high, low = bits(word, stream, model.exact)
            job = lane[0]
            s = draw_label(branch_rows[out.choice[job]], high, model.exact)
            q = draw_label(action_rows[s], low, model.exact)
            out.choice[job] = q
            for k, signal in enumerate(model.signals[q]):
                out.total[job][k] += signal
            lane[1] -= 1


def first_state(model: Model, stream: np.random.SFC64) -> int:
    high, _ = halves(next_word(stream), model.exact)
    state: int = draw_label(build_start(model), high, model.exact)
    return state


def next_state(model: Model, stream: np.random.SFC64, q: int) -> int:
    high, _ = halves(next_word(stream), model.exact)
    state: int = draw_label(branch_row(model, q), high, model.exact)
    return state


def act(model: Model, prob: list[float], stream: np.random.SFC64, s: int) -> int:
    high, _ = halves(next_word(stream), model.exact)
    choice: int = draw_label(action_row(model, prob, s), high, model.exact)
    return choice


def first_pair(model: Model, prob: list[float], stream: np.random.SFC64) -> int:
    high, low = bits(next_word(stream), stream, model.exact)
    s = draw_label(build_start(model), high, model.exact)
    choice: int = draw_label(action_row(model, prob, s), low, model.exact)
    return choice


def step(model: Model, prob: list[float], stream: np.random.SFC64, q: int) -> int:
    high, low = bits(next_word(stream), stream, model.exact)
    s = draw_label(branch_row(model, q), high, model.exact)
    choice: int = draw_label(action_row(model, prob, s), low, model.exact)
    return choice


def halves(word: int, exact: bool) -> tuple[int, int]:
    """A word that draws once: its high half, or all of it."""
    return (word, 0) if exact else divmod(word, 2**32)


class Episodes:
    """One environment whose actions come from outside; its model draws exactly."""

    def __init__(self, model: Model, seed: np.random.SeedSequence, time_limit: int | None) -> None:
        self.model, self.time_limit = model, time_limit
        self.stream = np.random.SFC64(seed)
        self.start, self.branches = build_start(model), build_branches(model)

    def begin(self) -> int:
        """The start state, after the horizon."""
        if self.time_limit is None:
            self.left = 1 + geometric_horizon(next_word(self.stream), self.model.gamma)
        else:
            self.left = self.time_limit
        state: int = draw_label(self.start, next_word(self.stream), exact=True)
        return state

    def step(self, q: int) -> tuple[int, bool]:
        """The state after choice q, and whether the episode has ended."""
        self.left -= 1
        return draw_label(self.branches[q], next_word(self.stream), exact=True), self.left == 0


# Policies.


def logit(phi: list[list[float]], theta: list[float], q: int) -> float:
    z = 0.0
    for j, x in enumerate(phi[q]):
        z += x * theta[j]
    return z


class Network(NamedTuple):
    """A network's architecture and inputs, a row a state or a row a choice; what theta holds is said in forward."""

    features: list[list[float]]
    by_choice: bool
    hidden: tuple[int, ...]
    n_outputs: int
    relu: bool


def forward(net: Network, theta: Any, x: Any) -> Any:
    """Outputs for the input x; numbers may be complex."""
    a, at = np.asarray(x), 0
    for width in net.hidden:
        weights = theta[at : at + len(a) * width].reshape(len(a), width)
        at += len(a) * width
        z = a @ weights + theta[at : at + width]
        at += width
        a = np.where(z.real > 0, z, 0) if net.relu else np.tanh(z)
    weights = theta[at : at + net.n_outputs * len(a)].reshape(net.n_outputs, len(a))
    return weights @ a + theta[at + net.n_outputs * len(a) :]


def logits(model: Model, phi: Any, theta: Any, s: int) -> list[Any]:
    mine = choices(model, s)
    if not isinstance(phi, Network):
        return [logit(phi, theta, q) for q in mine]
    if phi.by_choice:
        return [forward(phi, theta, phi.features[q])[0] for q in mine]
    return list(forward(phi, theta, phi.features[s])[: len(mine)])


def refresh_all(model: Model, phi: Any, theta: Any) -> list[float]:
    """Action probabilities: a shifted softmax in every state."""
    prob = []
    for s in range(n_states(model)):
        z = logits(model, phi, np.asarray(theta) if isinstance(phi, Network) else theta, s)
        weights = [math.exp(x - max(z)) for x in z]
        total = 0.0
        for w in weights:
            total += w
        prob += [w / total for w in weights]
    return prob


def complex_step(model: Model, net: Network, theta: Any, s: int, position: int) -> list[float]:
    """grad log pi at theta, exact to rounding: with a tiny imaginary step h, Im f(theta + i h) / h."""
    score = []
    for j in range(len(theta)):
        moved = np.array(theta, complex)
        moved[j] += 1e-30j
        z = np.array(logits(model, net, moved, s))
        log_pi = z[position] - np.log(np.exp(z - z.real.max()).sum())
        score.append(log_pi.imag / 1e-30)
    return score


def collect_scores(
    model: Model, phi: Any, prob: list[float], pairs: list[int], theta: Any = None
) -> list[list[float]]:
    """grad log pi of every pair; for features, phi(s, a) - sum_b pi(b|s) phi(s, b)."""
    scores = []
    for chosen in pairs:
        s = owner(model, chosen)
        if isinstance(phi, Network):
            scores.append(complex_step(model, phi, theta, s, chosen - choices(model, s)[0]))
            continue
        g = list(phi[chosen])
        for q in choices(model, s):
            for j in range(len(g)):
                g[j] -= prob[q] * phi[q][j]
        scores.append(g)
    return scores


# The inner loop.


def asgd_dense(
    momentum: Any,
    scores: list[list[float]],
    target: list[float],
    n_skipped: int | None = None,
    start: list[float] | None = None,
) -> list[float]:
    """Algorithm 2's inner loop as the paper writes it; odd H averages over its (H + 1) / 2 last iterates.

    start : x_0 = v_0, 0 in the paper
    """
    alpha, beta, xi, delta = momentum
    n_steps, d = len(scores), len(scores[0])
    n_skipped = n_steps // 2 if n_skipped is None else n_skipped
    x, v, tail = list(start or [0.0] * d), list(start or [0.0] * d), []
    for h in range(n_steps):
        g = scores[h]
        y = [alpha * x[j] + (1 - alpha) * v[j] for j in range(d)]
        e = sum(g[j] * y[j] for j in range(d)) - target[h]
        gradient = [e * g[j] for j in range(d)]
        x = [y[j] - delta * gradient[j] for j in range(d)]
        z = [beta * y[j] + (1 - beta) * v[j] for j in range(d)]
        v = [z[j] - xi * gradient[j] for j in range(d)]
        if h >= n_skipped:
            tail.append(x)
    return [sum(x[j] for x in tail) / len(tail) for j in range(d)]


def fill_weights(momentum: Any, n_skipped: int, n_steps: int) -> tuple[list[float], list[float]]:
    """Powers of the decay, and what a unit impulse at each step does to the tail average, by following it."""
    alpha, beta, xi, delta = momentum
    push = []
    for h in range(n_steps):
        x, v, total = delta, xi, 0.0
        for after in range(h + 1, n_steps + 1):
            if after > n_skipped:
                total += x
            y = alpha * x + (1 - alpha) * v
            x, v = y, beta * y + (1 - beta) * v
        push.append(total / (n_steps - n_skipped))
    return [(alpha * (1 - beta)) ** n for n in range(n_steps + 1)], push


def asgd_lazy(
    momentum: Any, scores: list[list[tuple[int, float]]], target: list[float], d: int, n_skipped: int
) -> list[float]:
    """The same as asgd_dense on scores given as (coordinate, value) pairs, touching nothing else."""
    alpha, beta, xi, delta = momentum
    power, push = fill_weights(momentum, n_skipped, len(scores))
    decay = alpha * (1 - beta)
    p = alpha * beta / (1 - decay)
    u, w, last, omega = [0.0] * d, [0.0] * d, [0] * d, [0.0] * d
    for h, g in enumerate(scores):
        e = -target[h]
        for i, value in g:
            w[i] *= power[h - last[i]]
            e += value * (u[i] + (alpha - p) * w[i])
        for i, value in g:
            u[i] -= (p * delta + (1 - p) * xi) * e * value
            w[i] = decay * w[i] - (delta - xi) * e * value
            last[i] = h + 1
            omega[i] -= push[h] * e * value
    return omega


def iterate(momentum: Any, u: Any, w: Any) -> Any:
    """x of the coordinates u = p x + (1 - p) v and w = x - v that the kernels run in."""
    p = momentum.alpha * momentum.beta / (1 - momentum.alpha * (1 - momentum.beta))
    return u + (1 - p) * w


def projected_sgd(solver: Any, scores: list[list[float]], target: list[float]) -> list[float]:
    """NPG-PD's inner loop as it is written: a step, a projection, and the average with its weights."""
    d = len(scores[0])
    x, average = [0.0] * d, [0.0] * d
    for h, g in enumerate(scores):
        e = sum(g[j] * x[j] for j in range(d)) - target[h]
        x = [x[j] - solver.step[h] * e * g[j] for j in range(d)]
        norm = math.sqrt(sum(y * y for y in x))
        if norm > solver.radius:
            x = [y * solver.radius / norm for y in x]
        average = [a + solver.weight[h] * y for a, y in zip(average, x, strict=True)]
    return average


def run_inner(
    solver: Any, scores: list[list[float]], target: list[float], n_skipped: int | None, start: Any = None
) -> list[float]:
    """omega; projections of an inner loop that begins elsewhere than at zero are on a ball about its start."""
    if hasattr(solver, "radius"):
        x = start or [0.0] * len(scores[0])
        left = [
            t - sum(a * b for a, b in zip(g, x, strict=True)) for t, g in zip(target, scores, strict=True)
        ]
        return [a + b for a, b in zip(x, projected_sgd(solver, scores, left), strict=True)]
    return asgd_dense(solver, scores, target, n_skipped, start)


def natural_norm(scores: list[list[float]], omega: list[float]) -> float:
    changes = [sum(g[j] * omega[j] for j in range(len(omega))) for g in scores]
    return sum(change * change for change in changes) / len(changes)


def dual_step(dual: list[float], zeta: float, estimate: list[float], dual_max: float) -> list[float]:
    return [min(max(x - zeta * j, 0.0), dual_max) for x, j in zip(dual, estimate, strict=True)]


# The outer loop.


class Batch(NamedTuple):
    pair: list[int]
    occupancy_total: list[list[float]]
    advantage: list[list[float]]
    transitions: int
    excess: float  # of the mean length of the occupancy rollouts over its expectation; 0 with a critic
    last: list[int]  # last pairs of the Q and V rollouts, by turns
    variance: tuple[float, ...] | list[float] = ()  # of one rollout's sums, for all signals
    start: Any = None  # where the inner loop begins, in units of advantages: a vector for each signal


def sample_batch(
    model: Model, prob: list[float], rng: list[np.random.SFC64], n_pairs: int, fresh: bool
) -> Batch:
    """H pairs from nu, Q - V at each; the last occupancy total is the fresh one, if wanted."""
    first = rollouts(model, prob, rng, [(None, None)] * (n_pairs + fresh))
    pair = first.choice[:n_pairs]
    jobs: list[tuple[int | None, int | None]] = []
    for q in pair:
        jobs += [(q, None), (None, owner(model, q))]
    second = rollouts(model, prob, rng, jobs)
    n_signals = len(model.signals[0])
    advantage = [
        [second.total[2 * h][k] - second.total[2 * h + 1][k] for k in range(n_signals)]
        for h in range(n_pairs)
    ]
    excess = sum(first.horizon) / len(first.horizon) - model.gamma / (1 - model.gamma)
    moves = sum(first.horizon) + sum(second.horizon)
    variance = [mean_and_variance(first.total, n_pairs, k)[1] for k in range(n_signals)]
    return Batch(pair, first.total, advantage, moves, excess, second.choice, variance)


def add_estimates(state: State, batch: Batch) -> None:
    """Means of the batch's estimates of J, less a multiple of the excess length that earlier batches have fitted."""
    x, n, k = batch.excess, len(batch.occupancy_total), state.outer
    means = [sum(column) / n for column in zip(*batch.occupancy_total, strict=True)]
    xx, *xy = state.control
    before = state.sums[: len(means)]
    for i, mean in enumerate(means):
        state.sums[i] = before[i] + mean - xy[i] / xx * x
    if k > 0:
        fitted = [s + x * (y - b / k) for s, y, b in zip(xy, means, before, strict=True)]
        state.control = [xx + x * x, *fitted]


def mean_and_variance(total: list[list[float]], n: int, k: int) -> tuple[float, float]:
    mean = sum(row[k] for row in total[:n]) / n
    if n == 1:
        return mean, mean**2
    return mean, sum((row[k] - mean) ** 2 for row in total[:n]) / (n - 1)


class State:
    """One replicate of a run."""

    def __init__(self, d: int, m: int, n_pilot: int, rng: list[np.random.SFC64]) -> None:
        self.theta = [0.0] * d
        self.dual = [0.0] * m
        self.history: list[list[tuple[float, float, float]]] = [[] for _ in range(m)]
        self.rng = rng
        self.outer = -n_pilot
        self.samples = 0
        self.failed = -1
        self.recent = [0.0] * (2 + m)
        self.average = [0.0] * (2 + m)
        self.longest = [0.0] * (1 + m)
        self.sums = [0.0] * (1 + 2 * m)
        self.control: list[float] = []  # S_xx and S_xy of the estimates of J, of PD-ANPG and its relatives
        self.centre = [0.0] * (1 + m)  # of tabular NPG-PD alone


def levels(state: Any) -> list[float]:
    """Of the batches before: the larger of a plain average and of one that forgets 5 % a measurement."""
    return [max(pair) for pair in zip(state.recent, state.average, strict=True)]


def fold(state: Any, values: list[float], n_pilot: int) -> None:
    n = n_pilot + state.outer + 1
    state.average = [x + (y - x) / n for x, y in zip(state.average, values, strict=True)]
    weight = max(0.05, 1 / n)
    state.recent = [x + (y - x) * weight for x, y in zip(state.recent, values, strict=True)]


def cut(state: Any, i: int, length: float) -> float:
    """What a step of this length is multiplied by, to be no longer than any before it."""
    before = state.longest[i]
    state.longest[i] = max(before, length)
    return min(1.0, before / length) if length > 0 else 1.0


def measured_zeta(state: State, steps: Any, i: int, length: float) -> float:
    """The rate of multiplier i, from the batches before, times the cut of its step."""
    if not steps.adaptive_zeta:
        return float(steps.zeta_scale[i])
    reward, noise = levels(state)[1], levels(state)[2 + i]
    shorter = cut(state, 1 + i, length)
    if noise == 0:
        return 0.0
    scale = math.sqrt(reward if reward > 0 else noise)
    return float(steps.zeta_scale[i] * shorter * scale / (noise * math.sqrt(steps.n_outer)))


def measured_eta(state: State, steps: Any, constant: float, norm: float) -> float:
    """The rate of theta, from the batches before, times the cut of its step."""
    if not steps.adaptive_eta:
        return constant
    level, shorter = levels(state)[0], cut(state, 0, math.sqrt(norm))
    return float(steps.eta_scale * shorter / math.sqrt(steps.n_outer * level)) if level > 0 else 0.0


def advance(
    model: Model, phi: Any, solver: Any, form: Any, steps: Any, state: State, n_steps: int, memory: Any = None
) -> None:  # fmt: skip
    """Outer steps of PD-ANPG or its relatives on a table; ``memory``: the `Memory` of a run with a critic."""

    def draw() -> tuple[Batch, list[list[float]], Any]:
        prob = refresh_all(model, phi, state.theta)
        if memory is None:
            batch, learn = sample_batch(model, prob, state.rng, steps.n_inner, steps.fresh), None
        else:
            batch, learn = memory.draw(model, phi, prob, state, steps)
        if tau := getattr(solver, "tau", 0.0):  # of PDR-ANPG: an entropy bonus
            surprise = [-tau * math.log(prob[q]) / (1 - model.gamma) for q in batch.last]
            for row, x, y in zip(batch.advantage, surprise[::2], surprise[1::2], strict=True):
                row[0] += x - y
        return batch, collect_scores(model, phi, prob, batch.pair, state.theta), learn

    outer_steps(model.gamma, solver, form, steps, state, n_steps, draw)


def outer_steps(
    gamma: float, solver: Any, form: Any, steps: Any, state: State, n_steps: int, draw: Any
) -> None:  # fmt: skip
    """Algorithm 2 with the measured step sizes of `Steps`; draw() gives a batch, its scores, what learns from it."""
    n_inner, m = steps.n_inner, len(state.dual)
    for _ in range(n_steps):
        batch, scores, learn = draw()
        state.samples += batch.transitions
        weights = [1.0, *state.dual]
        target = [sum(w * a for w, a in zip(weights, row, strict=True)) for row in batch.advantage]
        target = [a / (1 - gamma) for a in target]
        start = None
        if batch.start is not None:
            columns = zip(*batch.start, strict=True)
            start = [
                sum(w * x for w, x in zip(weights, column, strict=True)) / (1 - gamma) for column in columns
            ]
        omega = run_inner(getattr(solver, "momentum", solver), scores, target, steps.n_skipped, start)
        norm = natural_norm(scores, omega)
        if not math.isfinite(norm):
            state.failed = max(state.outer, 0)
            return
        means = [mean_and_variance(batch.occupancy_total, n_inner, k)[0] for k in range(1 + m)]
        dual = list(state.dual)
        for i in range(m):
            estimate = batch.occupancy_total[n_inner][1 + i] if steps.fresh else means[1 + i]
            zeta = measured_zeta(state, steps, i, abs(estimate - steps.margin[i]))
            if state.outer >= 0:
                state.history[i].append((steps.margin[i] - estimate, zeta, steps.n_outer**-0.5))
                dual[i] = multiplier(form, state.history[i], steps.dual_max[i])
        eta = measured_eta(state, steps, steps.eta_scale, norm)
        if learn is not None:
            learn()
        if state.outer >= 0:
            add_estimates(state, batch)
            state.sums[1 + m :] = [s + x for s, x in zip(state.sums[1 + m :], state.dual, strict=True)]
            state.dual = dual
            state.theta = [t + eta * o for t, o in zip(state.theta, omega, strict=True)]
        fold(state, [norm, *batch.variance], steps.n_pilot)
        state.outer += 1


def advance_softmax(model: Model, form: Any, steps: Any, state: State, n_steps: int) -> None:
    """Outer steps of tabular NPG-PD: M rollouts from every choice, then V and J by plugging in."""
    n_choices, m, n_rollouts = len(model.signals), len(state.dual), steps.n_rollouts
    for _ in range(n_steps):
        prob = refresh_all(model, identity(n_choices), state.theta)
        jobs: list[tuple[int | None, int | None]] = [(q, None) for q in range(n_choices)] * n_rollouts
        found = rollouts(model, prob, state.rng, sorted(jobs))
        state.samples += sum(found.horizon)
        drawn = [found.total[q * n_rollouts : (q + 1) * n_rollouts] for q in range(n_choices)]
        estimate = [[sum(row[k] for row in rows) / n_rollouts for k in range(1 + m)] for rows in drawn]
        at_start = [model.start[owner(model, q)] * prob[q] for q in range(n_choices)]
        j = [sum(p * row[k] for p, row in zip(at_start, estimate, strict=True)) for k in range(1 + m)]
        squares = []
        for k in range(1 + m):
            state.centre[k] += (j[k] - state.centre[k]) * max(0.05, 1 / (state.outer + 1))
            square = 0.0
            for p, rows in zip(at_start, drawn, strict=True):
                square += p * sum((row[k] - state.centre[k]) ** 2 for row in rows) / n_rollouts
            squares.append(square)
        weights = [1.0, *state.dual]
        lagrangian = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in estimate]
        advantage = []
        for s in range(n_states(model)):
            value = sum(prob[q] * lagrangian[q] for q in choices(model, s))
            advantage += [lagrangian[q] - value for q in choices(model, s)]
        norm = sum(p * a * a for p, a in zip(prob, advantage, strict=True)) / n_states(model)
        if not math.isfinite(norm):
            state.failed = state.outer
            return
        state.sums = [before + now for before, now in zip(state.sums, j + state.dual, strict=True)]
        for i in range(m):
            zeta = measured_zeta(state, steps, i, abs(j[1 + i]))
            state.history[i].append((-j[1 + i], zeta, steps.n_outer**-0.5))
            state.dual[i] = multiplier(form, state.history[i], steps.dual_max[i])
        step = measured_eta(state, steps, steps.eta_scale / (1 - model.gamma), norm)
        fold(state, [norm, *squares], 0)
        theta = [t + step * a for t, a in zip(state.theta, advantage, strict=True)]
        if not all(map(math.isfinite, theta)):
            state.failed = state.outer
            return
        state.theta = theta
        state.outer += 1


# PMD-PD.


def truncated(
    model: Model,
    prob: list[float],
    rng: list[np.random.SFC64],
    starts: list[int | None],
    repeats: int,
    signal: list[list[float]],
    n_pairs: int,
    path: list[list[int]] | None = None,
) -> list[list[float]]:
    """For each start (None: drawn) the sum over its rollouts of their discounted sums over n_pairs pairs.

    ``path``, if given, takes the pairs of each rollout.
    """
    start, branch_rows, action_rows = build_start(model), build_branches(model), fill_actions(model, prob)
    jobs = [g for g in range(len(starts)) for _ in range(repeats)]
    out = [[0.0] * len(signal[0]) for _ in starts]
    for first in range(0, len(jobs), len(rng)):
        group = jobs[first : first + len(rng)]
        at, sums = [], []
        for g, stream in zip(group, rng, strict=False):
            q = starts[g]
            if q is None:
                high, low = bits(next_word(stream), stream, model.exact)
                q = draw_label(action_rows[draw_label(start, high, model.exact)], low, model.exact)
            at.append(q)
            sums.append(list(signal[q]))
        paths = [[q] for q in at]
        for j in range(1, n_pairs):
            for i, stream in enumerate(rng):
                word = next_word(stream)
                if i < len(group):
                    high, low = bits(word, stream, model.exact)
                    s = draw_label(branch_rows[at[i]], high, model.exact)
                    at[i] = draw_label(action_rows[s], low, model.exact)
                    paths[i].append(at[i])
                    for k, f in enumerate(signal[at[i]]):
                        sums[i][k] += model.gamma**j * f
        if path is not None:
            path += paths
        for g, one in zip(group, sums, strict=True):
            out[g] = [x + y for x, y in zip(out[g], one, strict=True)]
    return out


class MirrorState:
    """A replicate of PMD-PD: logarithms of pi_k, multipliers, the last estimate of J."""

    def __init__(self, model: Model, m: int, rng: list[np.random.SFC64]) -> None:
        self.log_pi = [-math.log(len(choices(model, owner(model, q)))) for q in range(len(model.signals))]
        self.dual: list[float] = [0.0] * m
        self.estimate: list[float] | None = None
        self.rng = rng
        self.outer = 0
        self.recent, self.average = [0.0] * (2 + m), [0.0] * (2 + m)
        self.longest = [0.0] * (1 + m)
        self.eta: list[float] = []  # of the last estimate of J


def pmd_pd(model: Model, steps: Any, state: MirrorState, n_steps: int) -> None:
    """Outer steps of PMD-PD with the settings of `kernels.algorithm.pmd_pd.Steps`."""
    n = len(model.signals)

    def softmax(z: list[float]) -> list[float]:
        out = [0.0] * n
        for s in range(n_states(model)):
            top = max(z[q] for q in choices(model, s))
            total = math.log(sum(math.exp(z[q] - top) for q in choices(model, s)))
            for q in choices(model, s):
                out[q] = z[q] - top - total
        return out

    def values() -> list[float]:
        prob = [math.exp(x) for x in state.log_pi]
        sums = truncated(model, prob, state.rng, [None], steps.n_starts, model.signals, steps.n_pairs)
        return [x / steps.n_starts for x in sums[0]]

    def dual_rates() -> list[float]:
        """Of the estimate at hand, from the levels and estimates before it."""
        out = []
        for i, eta in enumerate(steps.dual_step):
            longest = state.longest[1 + i]
            shorter = cut(state, 1 + i, abs(state.estimate[1 + i]))
            _, reward, *costs = levels(state)
            unit = shorter / longest if longest > 0 else 1 - model.gamma
            unit *= math.sqrt(reward / costs[i]) if reward > 0 and costs[i] > 0 else 1.0
            out.append(float(eta * unit) if steps.adaptive_dual else float(eta))
        return out

    for _ in range(n_steps):
        if state.estimate is None:
            state.estimate = values()
            state.eta = dual_rates()
            state.dual = [max(0.0, e * j) for e, j in zip(state.eta, state.estimate[1:], strict=True)]
        modified = [x - e * j for x, e, j in zip(state.dual, state.eta, state.estimate[1:], strict=True)]
        anchor = list(state.log_pi)
        for sweep in range(steps.n_sweeps):
            prob = [math.exp(x) for x in state.log_pi]
            reward = [f[0] + sum(x * c for x, c in zip(modified, f[1:], strict=True)) for f in model.signals]
            kl = [
                sum(prob[q] * (state.log_pi[q] - anchor[q]) for q in choices(model, s))
                for s in range(n_states(model))
            ]
            if sweep == 0:
                alpha = 0.0  # still to come; the divergence is 0
            signal = [[reward[q] - alpha * kl[owner(model, q)], *model.signals[q][1:]] for q in range(n)]
            sums = truncated(model, prob, state.rng, list(range(n)), steps.n_rollouts, signal, steps.n_pairs)
            found = [[x / steps.n_rollouts for x in row] for row in sums]
            if sweep == 0:
                norm = mean_variance(model, None, [row[0] for row in found])
                level, shorter, alpha = levels(state)[0], cut(state, 0, math.sqrt(norm)), float(steps.alpha)
                if steps.adaptive_alpha:
                    alpha *= math.sqrt(level) / shorter if level > 0 else 1 / 15 / (1 - model.gamma)
                plain = [row[0] - sum(x * c for x, c in zip(modified, row[1:], strict=True)) for row in found]
                columns = [plain, *([row[1 + i] for row in found] for i in range(len(modified)))]
                fold(state, [norm, *(mean_variance(model, None, x) for x in columns)], 0)
            share = min(steps.eta * alpha / (1 - model.gamma), 1.0)
            value = [row[0] + alpha * (kl[owner(model, q)] + anchor[q]) for q, row in enumerate(found)]
            state.log_pi = softmax(
                [(1 - share) * z + share * x / alpha for z, x in zip(state.log_pi, value, strict=True)]
            )
        state.estimate = values()
        state.eta = dual_rates()
        state.dual = [
            max(e * j, x - e * j) for x, e, j in zip(state.dual, state.eta, state.estimate[1:], strict=True)
        ]
        state.outer += 1


# Multipliers, from the whole history of violations: their definitions, not their recursions.


def multiplier(form: Any, history: list[tuple[float, float, float]], cap: float) -> float:
    """The multiplier after so many (violation, rate, pace), from 0, with a form of ``fastcmdp.duals``."""
    kind = type(form).__name__
    held, p, cost, costs, before = 0.0, 0.0, 0.0, [0.0], None
    out = 0.0
    for e, rate, pace in history:
        old = e if before is None else before
        step = rate * e
        if kind == "PID":
            held = max(0.0, held + rate * form.integral * e)
            p = form.smooth * p + (1 - form.smooth) * e
            cost = form.smooth_cost * cost + (1 - form.smooth_cost) * (e + form.limit)
            rise = max(0.0, cost - costs[0])
            costs = [*costs, cost][-form.delay :] if len(costs) >= form.delay else [*costs, cost]
            out = min(max(held + rate * (form.proportional * p + form.derivative * rise), 0.0), cap)
        elif kind in ("PI", "Damped"):
            lead = form.lead if kind == "PI" else 2 * form.damping / pace
            share = form.share if kind == "PI" else min(1.0, form.follow * pace)
            before = share * e + (1 - share) * old
            held = min(max(held + step, 0.0), cap)
            out = min(max(held + rate * lead * before, 0.0), cap)
        elif kind == "Modified":
            held = max(held + step, -step)
            out = held + step
        else:
            if kind == "NuPI":
                before = form.nu * old + (1 - form.nu) * e
                step = rate * (e + form.lead * (before - old))
            elif kind == "Optimistic":
                step, before = rate * (2 * e - old), e
            kept = held * max(0.0, 1 - rate * form.tau) if kind == "Ridge" else held
            out = held = min(max(kept + step, 0.0), cap)
    return out


# The tabular methods that read a whole table of Q.


class TableState:
    """One replicate of them; ``base`` as the rule begins with it."""

    def __init__(self, model: Model, m: int, base: list[float], rng: list[np.random.SFC64]) -> None:
        n = len(model.signals)
        self.theta, self.base, self.rng = [0.0] * n, base, rng
        self.dual = [0.0] * m
        self.history: list[list[tuple[float, float, float]]] = [[] for _ in range(m)]
        self.outer, self.samples = 0, 0
        self.recent, self.average = [0.0] * (3 + 3 * m), [0.0] * (3 + 3 * m)
        self.before, self.last_value = [0.0] * n, [0.0] * m
        self.longest = [0.0] * (1 + m)
        self.sums = [0.0] * (1 + 2 * m)


def evaluate(
    model: Model,
    prob: list[float],
    signal: list[list[float]],
    source: Any,
    rng: Any,
    visits: list[float] | None = None,
) -> Any:
    """Q of all choices: from rollouts, or by solving (I - gamma P_pi) V = f_pi; and the transitions made.

    ``visits``, if given, takes how often each state is visited: from the same rollouts, or solved for.
    """
    n = len(signal)
    if hasattr(source, "n_rollouts"):
        paths: list[list[int]] = []
        sums = truncated(model, prob, rng, list(range(n)), source.n_rollouts, signal, source.n_pairs, paths)
        for path in paths if visits is not None else []:
            for j, q in enumerate(path):
                chance = model.start[owner(model, path[0])] * prob[path[0]]
                visits[owner(model, q)] += model.gamma**j * chance  # type: ignore[index]
        moves = n * source.n_rollouts * (source.n_pairs - 1)
        return [[x / source.n_rollouts for x in row] for row in sums], moves
    chain = np.array(chain_of(model, prob))
    mean = np.zeros((n_states(model), len(signal[0])))
    for q in range(n):
        mean[owner(model, q)] += prob[q] * np.array(signal[q])
    v = np.linalg.solve(np.eye(n_states(model)) - model.gamma * chain, mean)
    if visits is not None:
        visits[:] = np.linalg.solve(np.eye(n_states(model)) - model.gamma * chain.T, model.start).tolist()
    out = []
    for q in range(n):
        ahead = sum(model.branch_prob[b] * v[model.branch_target[b]] for b in branches(model, q))
        out.append((np.array(signal[q]) + model.gamma * ahead).tolist())
    return out, 0


def nearest_probabilities(row: list[float]) -> list[float]:
    """Euclid's projection on the simplex: the shift at which the positive parts add up to 1, by bisection."""
    low, high = min(row) - 1.0, max(row)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(x - middle, 0.0) for x in row) > 1 else (low, middle)
    return [max(x - high, 0.0) for x in row]


def by_state(model: Model, x: list[float], f: Any) -> list[float]:
    """f of the numbers of each state, put together again."""
    return [y for s in range(n_states(model)) for y in f([x[q] for q in choices(model, s)])]


def centred(model: Model, prob: list[float], x: list[float]) -> list[float]:
    out = []
    for s in range(n_states(model)):
        mean = sum(prob[q] * x[q] for q in choices(model, s))
        out += [x[q] - mean for q in choices(model, s)]
    return out


def mean_variance(model: Model, prob: list[float] | None, x: list[float]) -> float:
    """Mean over states of the variance over actions; without ``prob``, all actions weigh the same."""
    total = 0.0
    for s in range(n_states(model)):
        own = choices(model, s)
        w = [1 / len(own) if prob is None else prob[q] for q in own]
        mean = sum(a * x[q] for a, q in zip(w, own, strict=True))
        total += sum(a * (x[q] - mean) ** 2 for a, q in zip(w, own, strict=True))
    return total / n_states(model)


def own_signal(model: Model, rule: Any, prob: list[float], anchor: list[float]) -> list[float] | None:
    """The rule's own signal: a state's entropy, or its divergence from the anchor."""
    if hasattr(rule, "tau"):
        terms = [-p * math.log(p) for p in prob]
    elif hasattr(rule, "alpha"):
        terms = [-rule.alpha * p * (math.log(p) - a) for p, a in zip(prob, anchor, strict=True)]
    else:
        return None
    of_state = [sum(terms[q] for q in choices(model, s)) for s in range(n_states(model))]
    return [of_state[owner(model, q)] for q in range(len(prob))]


def table_step(
    model: Model,
    rule: Any,
    state: TableState,
    prob: list[float],
    step: float,
    q: Any,
    later: Any,
    anchor: Any,
) -> list[float]:
    """The new theta, from Q_L and what the rule's own signal is worth later."""
    kind = type(rule).__name__

    def logs(x: list[float]) -> list[float]:
        return [math.log(p) if p > 0 else -700.0 for p in x]

    def along(x: list[float], d: list[float], c: float = 1.0) -> list[float]:
        return [c * a + step * b for a, b in zip(x, d, strict=True)]

    if kind == "Entropic":
        gain = [a + rule.tau * b for a, b in zip(q, later, strict=True)]
        return centred(model, prob, along(state.theta, gain, max(0.0, 1 - step * rule.tau)))
    if kind == "Anchored":
        share = min(1.0, step * rule.alpha)
        goal = [(a + b) / rule.alpha + c for a, b, c in zip(q, later, anchor, strict=True)]
        return centred(
            model, prob, [(1 - share) * a + share * b for a, b in zip(logs(prob), goal, strict=True)]
        )
    if kind == "ProjectedAscent":
        return logs(by_state(model, along(prob, q), nearest_probabilities))
    if kind == "OptimisticProjected":
        state.base = by_state(model, along(state.base, q), nearest_probabilities)
        return logs(by_state(model, along(state.base, q), nearest_probabilities))
    advantage = centred(model, prob, q)
    if kind == "OptimisticMultiplicative":
        state.base = along(state.base, advantage)
        return along(state.base, advantage)
    if kind == "Extrapolated":
        before = state.base if state.outer else advantage
        state.base = advantage
        advantage = [2 * a - b for a, b in zip(advantage, before, strict=True)]
    return along(state.theta, advantage)


def fitted_step(
    model: Model, phi: Any, state: TableState, prob: list[float], step: float, q: Any, visits: list[float]
) -> list[float]:
    """The damped step of Gauss and Newton to the tabular step's goal, as one stacked least squares by its SVD."""
    aim = [p + max(step * x, -1000.0 * p) for p, x in zip(prob, centred(model, prob, q), strict=True)]
    goal = np.array(aim)
    p, theta = np.array(prob), np.array(state.theta)
    weight = np.array([visits[owner(model, k)] for k in range(len(prob))])
    mean = [
        sum((prob[k] * np.array(phi[k]) for k in choices(model, s)), np.zeros(len(theta)))
        for s in range(n_states(model))
    ]
    score = np.array([np.array(phi[k]) - mean[owner(model, k)] for k in range(len(prob))])
    metric = np.sqrt(weight * p)[:, None] * score
    floor = 1e-9 * (metric**2).sum() / len(theta)
    for k in range(12):
        rows = np.vstack(
            [
                (np.sqrt(weight) * p)[:, None] * score,
                math.sqrt(1e-3 * 4.0**k) * metric,
                math.sqrt(floor) * np.eye(len(theta)),
            ]
        )
        right = np.append(np.sqrt(weight) * (goal - p), np.zeros(len(rows) - len(prob)))
        move = np.linalg.lstsq(rows, right, rcond=None)[0]
        moved = theta + move
        found = np.array(refresh_all(model, phi, moved.tolist()))
        nearer = (weight * (found - goal) ** 2).sum() <= (weight * (p - goal) ** 2).sum()
        if nearer and np.abs(score @ move).max() <= 0.5:
            return moved.tolist()
    return state.theta


def table_rates(model: Model, steps: Any, state: TableState, found: Any, prob: Any, j: Any, q: Any) -> Any:
    """(step, [(zeta_i, pace_i)]) from the levels so far, and the measurements of this outer step."""
    m = len(state.dual)
    level = levels(state)
    known = state.outer > 1 or (state.outer == 1 and steps.n_sweeps > 1)
    norm = mean_variance(model, None, q)
    step = steps.eta_scale / (1 - model.gamma)
    if steps.adaptive_eta:
        shorter = cut(state, 0, math.sqrt(norm))
        square = steps.shortest_eta * level[0] + steps.n_outer * steps.n_sweeps * level[2 + 2 * m]
        step = steps.eta_scale * shorter / math.sqrt(square) if known and level[0] > 0 else 0.0
    duals = []
    for i in range(m):
        longest, zeta = state.longest[1 + i], float(steps.zeta_scale[i])
        shorter = cut(state, 1 + i, abs(j[1 + i]))
        if steps.adaptive_zeta:
            reward, cost = level[1], level[2 + i]
            scale = math.sqrt((reward or cost) / cost) if cost > 0 and longest > 0 and known else 0.0
            square = steps.shortest_zeta * longest**2 + steps.n_outer * level[3 + 2 * m + i]
            zeta *= shorter * scale / math.sqrt(square) if scale else 0.0
        pace = math.sqrt(step * zeta * level[2 + m + i] / (1 - model.gamma))
        duals.append((zeta, max(pace, steps.n_outer**-0.5)))
    columns = [[row[k] for row in found] for k in range(1 + m)]
    evenly = [mean_variance(model, None, x) for x in columns]
    return step, duals, [norm, *evenly, *(mean_variance(model, prob, x) for x in columns[1:])]


def fold_table(
    state: TableState, steps: Any, measured: list[float], changes: list[float], j: list[float]
) -> None:
    """Fold the levels of an outer step in: spreads from the first outer step on, changes where there are any."""
    old, before = (state.recent, state.average), list(state.last_value)
    state.last_value = list(j)
    moved = [(a - b) ** 2 for a, b in zip(j, before, strict=True)]
    k = len(measured)
    parts = [
        (measured, slice(0, k), 0, True),
        (
            [sum(changes) / max(len(changes), 1)],
            slice(k, k + 1),
            0 if steps.n_sweeps > 1 else -1,
            bool(changes),
        ),
        (moved, slice(k + 1, None), -1, state.outer > 0),
    ]
    done: list[list[float]] = [[], []]
    for values, own, n_pilot, there in parts:
        state.recent, state.average = (x[own] for x in old)
        if there:
            fold(state, values, n_pilot)
        done[0] += state.recent
        done[1] += state.average
    state.recent, state.average = done


def advance_table(
    model: Model,
    rule: Any,
    dual: Any,
    source: Any,
    steps: Any,
    state: TableState,
    n_steps: int,
    phi: Any = None,
) -> None:
    """Outer steps of RPG-PD, OPG-PD, ReLOAD, PI-PD, AL-PQA or ARNPG-EPD: what the rule, form and settings make it."""
    n, m = len(model.signals), len(state.dual)
    features = identity(n) if phi is None else phi
    for _ in range(n_steps):
        anchor = [math.log(p) for p in refresh_all(model, features, state.theta)]
        price, j, changes = list(state.dual), [0.0] * (1 + m), []
        for sweep in range(steps.n_sweeps):
            prob = refresh_all(model, features, state.theta)
            own = own_signal(model, rule, prob, anchor)
            signal = [list(row) + ([own[q]] if own else []) for q, row in enumerate(model.signals)]
            visits = [0.0] * n_states(model)
            counted = [] if phi is None else [visits]
            found, moves = evaluate(model, prob, signal, source, state.rng, *counted)
            state.samples += moves
            if sweep == 0 or steps.each:
                at_start = [model.start[owner(model, q)] * prob[q] for q in range(n)]
                new = [sum(p * row[k] for p, row in zip(at_start, found, strict=True)) for k in range(1 + m)]
                j = [(a * sweep + b) / (sweep + 1) for a, b in zip(j, new, strict=True)]
            if sweep == 0:
                q0 = [row[0] + sum(x * c for x, c in zip(price, row[1:], strict=False)) for row in found]
                step, rates, measured = table_rates(model, steps, state, found, prob, j, q0)
            moved = [[*state.history[i], (-j[1 + i], *rates[i])] for i in range(m)]
            if steps.ahead and (sweep == 0 or steps.each):
                price = [multiplier(dual, moved[i], steps.dual_max[i]) for i in range(m)]
            q_l = [row[0] + sum(x * c for x, c in zip(price, row[1 : 1 + m], strict=True)) for row in found]
            if sweep + state.outer:
                difference = [a - b for a, b in zip(q_l, state.before, strict=True)]
                changes.append(mean_variance(model, None, difference))
            state.before = q_l
            later = [row[-1] - own[q] for q, row in enumerate(found)] if own else None
            if phi is None:
                state.theta = table_step(model, rule, state, prob, step, q_l, later, anchor)
            else:
                state.theta = fitted_step(model, phi, state, prob, step, q_l, visits)
        fold_table(state, steps, measured, changes, j[1:])
        state.sums = [a + b for a, b in zip(state.sums, j + price, strict=True)]
        state.history = moved
        state.dual = [multiplier(dual, moved[i], steps.dual_max[i]) for i in range(m)]
        state.outer += 1


# C-PG and LB-SGD: trajectories, plain gradients.


def trajectories(model: Model, prob: list[float], rng: Any, n_paths: int, n_pairs: int) -> list[list[int]]:
    """Pairs of so many trajectories, LANES in step: every lane spends a word a transition, at work or not."""
    lanes, out = len(rng), []
    for first in range(0, n_paths, lanes):
        n = min(lanes, n_paths - first)
        group = [[first_pair(model, prob, rng[i])] for i in range(n)]
        for _ in range(1, n_pairs):
            for i in range(lanes):
                if i < n:
                    group[i].append(step(model, prob, rng[i], group[i][-1]))
                else:
                    next_word(rng[i])
        out += group
    return out


class GradientState:
    """One replicate."""

    def __init__(self, d: int, m: int, rng: list[np.random.SFC64]) -> None:
        self.theta, self.rng = [0.0] * d, rng
        self.dual, self.quantile = [0.0] * m, [0.0] * m
        self.history: list[list[tuple[float, float, float]]] = [[] for _ in range(m)]
        self.outer, self.samples = 0, 0
        self.recent, self.average = [0.0] * (2 + 2 * m), [0.0] * (2 + 2 * m)
        self.longest = [0.0] * (2 + 2 * m)
        self.sums = [0.0] * (1 + 2 * m)


class Gathered(NamedTuple):
    """What an outer step knows; ``losses`` are variances of the discounted sums, of those with a level of risk."""

    pair: list[int]
    weight: list[list[float]]
    mean: list[float]
    value: list[float]
    doubt: list[float]
    losses: list[float]


def discounted(model: Model, path: list[int], first: int, k: int) -> float:
    return sum(model.gamma**t * model.signals[path[t]][k] for t in range(first, len(path)))


def gather_recorded(
    model: Model, source: Any, prob: Any, state: GradientState, size: tuple[int, int]
) -> Gathered:
    """Values from B trajectories, GPOMDP weights from B others; values at risk by an auxiliary variable."""
    (n, n_pairs), n_signals = size, len(model.signals[0])
    paths = trajectories(model, prob, state.rng, n, n_pairs)
    mean, value, doubt, losses, at = [], [], [], [], {}
    for k in range(n_signals):
        sums = [discounted(model, path, 0, k) for path in paths]
        j, variance = mean_and_variance([[x] for x in sums], n, 0)
        mean.append(j)
        value.append(j)
        doubt.append(math.sqrt(variance / n))
        if k == 0:
            continue
        tail = float(source.tail[k - 1])
        losses.append(variance if tail else 0.0)
        if tail:
            u = -j if state.outer == 0 else state.quantile[k - 1]
            at[k] = u
            value[k] = -(u + sum(max(-x - u, 0.0) for x in sums) / n / (1 - tail))
            beyond = sum(-x > u for x in sums) / n
            scale = math.sqrt(levels(state)[1 + n_signals + k - 1] / (state.outer + 1))
            state.quantile[k - 1] = u - scale * (1 - beyond / (1 - tail))
    paths = trajectories(model, prob, state.rng, n, n_pairs)
    pair, weight = [], []
    for path in paths:
        for t in range(n_pairs):
            row = []
            for k in range(n_signals):

                def gain(other: list[int], k: int = k, t: int = t) -> float:
                    if k not in at:
                        return discounted(model, other, t, k)
                    return -max(-discounted(model, other, 0, k) - at[k], 0.0) / (
                        1 - float(source.tail[k - 1])
                    )

                others = sum(gain(other) for other in paths if other is not path) / (n - 1)
                row.append((gain(path) - others) / n)
            pair.append(path[t])
            weight.append(row)
    state.samples += 2 * n * (n_pairs - 1)
    return Gathered(pair, weight, mean, value, doubt, losses)


def gather_known(model: Model, prob: list[float]) -> Gathered:
    """By solving two linear systems."""
    signals = np.array(model.signals)
    q, _ = evaluate(model, prob, model.signals, None, None)
    visits = np.linalg.solve(
        np.eye(n_states(model)) - model.gamma * np.array(chain_of(model, prob)).T, np.array(model.start)
    )
    weight, mean = [], np.zeros(signals.shape[1])
    for s in range(n_states(model)):
        v = sum(prob[a] * np.array(q[a]) for a in choices(model, s))
        mean += model.start[s] * v
        weight += [(visits[s] * prob[a] * (np.array(q[a]) - v)).tolist() for a in choices(model, s)]
    zeros = [0.0] * (len(mean) - 1)
    return Gathered(list(range(len(prob))), weight, mean.tolist(), mean.tolist(), [0.0, *zeros], zeros)


def follow_multipliers(
    steps: Any, rule: Any, state: GradientState, got: Gathered, squares: list[float]
) -> list[float]:
    """C-PG's prices: the multipliers move first."""
    level = levels(state)
    for i in range(len(state.dual)):
        zeta, longest = float(steps.zeta_scale[i]), state.longest[1 + i]
        shorter = cut(state, 1 + i, abs(got.value[1 + i]))
        if steps.adaptive_zeta:
            scale = math.sqrt((level[1] or level[2 + i]) / level[2 + i]) if longest and level[2 + i] else 0.0
            zeta *= shorter * scale / (math.sqrt(steps.n_outer) * longest) if scale else 0.0
        state.history[i].append((-got.value[1 + i], zeta, 1.0))
        state.dual[i] = multiplier(rule.dual, state.history[i], steps.dual_max[i])
    return [1.0, *state.dual]


def barrier_prices(
    steps: Any, rule: Any, state: GradientState, got: Gathered, squares: list[float]
) -> list[float]:
    """LB-SGD's: of the barrier, or the way in."""
    lower = [v - steps.z * d - steps.bias for v, d in zip(got.value[1:], got.doubt[1:], strict=True)]
    out = [1.0 if all(a > 0 for a in lower) else 0.0]
    for a, square in zip(lower, squares[1:], strict=True):
        out.append(steps.barrier / a if a > 0 else (1 / math.sqrt(square) if square else 0.0))
    state.dual = out[1:]
    return out


def safe_step(
    steps: Any, state: GradientState, got: Gathered, price: Any, grads: Any, direction: Any
) -> float:
    """LB-SGD's: half of every lower bound stays, and the barrier's curvature is minded."""
    m, length = len(state.dual), float(np.linalg.norm(direction))
    smooth = []
    for k in range(1 + m):
        given = float(steps.smoothness[k])
        smooth.append(given or state.longest[1 + m + k] / steps.reach)
        if not given:
            cut(state, 1 + m + k, float(np.linalg.norm(grads[k])))
    if not any(smooth) or length == 0:
        return 0.0
    curvature, bound = price[0] * smooth[0], math.inf
    for k in range(1, 1 + m):
        along = abs(float(grads[k] @ direction)) / length
        a = got.value[k] - steps.z * got.doubt[k] - steps.bias
        if a > 0:
            bound = min(bound, a / (2 * along + math.sqrt(a * smooth[k])))
            curvature += price[k] * (10 * smooth[k] + 8 * along**2 / a)
        else:
            curvature += price[k] * smooth[k]
    return min(1 / curvature, bound / length)


def advance_gradients(
    model: Model, phi: Any, source: Any, rule: Any, steps: Any, state: GradientState, size: Any, n_steps: int
) -> None:
    """Outer steps of C-PG or LB-SGD, as the rule says."""
    primal_dual, m = hasattr(rule, "dual"), len(state.dual)
    for _ in range(n_steps):
        prob = refresh_all(model, phi, state.theta)
        sampled = hasattr(source, "tail")
        got = gather_recorded(model, source, prob, state, size) if sampled else gather_known(model, prob)
        scores = np.array(collect_scores(model, phi, prob, got.pair, state.theta))
        grads = np.array(got.weight).T @ scores
        squares = (grads**2).sum(axis=1).tolist()
        price = (follow_multipliers if primal_dual else barrier_prices)(steps, rule, state, got, squares)
        direction = np.array(price) @ grads
        norm = float(direction @ direction)
        if primal_dual:
            eta, level = float(steps.eta_scale), levels(state)[0]
            if steps.adaptive_eta:
                eta *= cut(state, 0, math.sqrt(norm))
                eta = eta / math.sqrt(steps.n_outer * level) if level else 0.0
            fold(state, [norm, *squares, *(got.losses or [0.0] * m)], 0)
        else:
            eta = safe_step(steps, state, got, price, grads, direction)
        state.theta = (np.array(state.theta) + eta * direction).tolist()
        state.sums = [a + b for a, b in zip(state.sums, got.mean + state.dual, strict=True)]
        state.outer += 1


# CRPO: chains with restarts, critics by temporal differences, the outer loop.


class Linear:
    """A critic, and the logits, of features phi."""

    def __init__(self, phi: list[list[float]]) -> None:
        self.phi = phi

    def value(self, w: list[float], q: int) -> float:
        return logit(self.phi, w, q)

    def gradient(self, w: list[float], q: int) -> list[float]:
        return self.phi[q]

    def at(self, theta: list[float]) -> Any:
        """The critics' class while the actor stands at theta."""
        return self


class Relu:
    """H^-1/2 sum_r b_r max(W_r . psi, 0), b = 1 for the first half of the units and -1 for the second."""

    def __init__(self, psi: list[list[float]], width: int) -> None:
        self.psi, self.width = psi, width

    def unit(self, w: list[float], q: int, r: int) -> tuple[float, float]:
        """Input of unit r, and its sign over the root of H."""
        z = 0.0
        for j, x in enumerate(self.psi[q]):
            z += x * w[j * self.width + r]
        return z, (1.0 if 2 * r < self.width else -1.0) / math.sqrt(self.width)

    def value(self, w: list[float], q: int) -> float:
        units = [self.unit(w, q, r) for r in range(self.width)]
        return sum(b * z for z, b in units if z > 0)

    def gradient(self, w: list[float], q: int) -> list[float]:
        g = [0.0] * len(w)
        for r in range(self.width):
            z, b = self.unit(w, q, r)
            for j, x in enumerate(self.psi[q]):
                g[j * self.width + r] = b * x if z > 0 else 0.0
        return g

    def at(self, theta: list[float]) -> Any:
        return self


class Tangent(Linear):
    """Features that are the gradients of a network's logits at theta; updates cut them to |g|^2 <= bound."""

    def __init__(self, model: Model, net: Network, bound: float) -> None:
        self.model, self.net, self.bound = model, net, bound

    def value(self, w: list[float], q: int) -> float:
        """The logit of q with parameters w."""
        s = owner(self.model, q)
        return float(logits(self.model, self.net, np.array(w), s)[q - choices(self.model, s)[0]])

    def at(self, theta: list[float]) -> Any:
        """Gradients by complex steps."""
        rows = []
        for s in range(n_states(self.model)):
            columns = []
            for j in range(len(theta)):
                moved = np.array(theta, complex)
                moved[j] += 1e-30j
                columns.append([z.imag / 1e-30 for z in logits(self.model, self.net, moved, s)])
            rows += np.transpose(columns).tolist()
        return Shortened(rows, self.bound)


class Shortened(Linear):
    """Features phi, whose part in an update of w is cut to |phi|^2 <= bound."""

    def __init__(self, phi: list[list[float]], bound: float) -> None:
        super().__init__(phi)
        self.bound = bound

    def gradient(self, w: list[float], q: int) -> list[float]:
        square = sum(x * x for x in self.phi[q])
        return [x * min(1.0, self.bound / square) for x in self.phi[q]] if square > 0 else self.phi[q]


class Learned(NamedTuple):
    critic: list[list[float]]
    total: list[float]  # sums of the signals over the pairs moved from
    pair: list[int]  # last pairs of segments that ended


def run_td(
    model: Model,
    prob: list[float],
    rng: list[np.random.SFC64],
    chain: list[list[int]],
    visits: dict[int, int],
    rule: Any,
    net: Any,
    critic: list[list[float]],
    origin: list[float],
    n_steps: int,
) -> Learned:
    """Chains [pair, transitions left] are moved on; what ``rule`` returns is the last or the mean iterate."""
    start, branch_rows, action_rows = build_start(model), build_branches(model), fill_actions(model, prob)
    w = [list(row) for row in critic]
    d, lanes = len(origin), len(rng)
    rounds = -(-n_steps // lanes)
    mean = [[0.0] * d for _ in w]
    total, pair = [0.0] * len(w), []
    for k in range(rounds):
        n = min(lanes, n_steps - k * lanes)
        for i in range(n):
            if chain[i][1] == 0:
                left = geometric_horizon(next_word(rng[i]), model.gamma) + 1
                high, low = bits(next_word(rng[i]), rng[i], model.exact)
                s = draw_label(start, high, model.exact)
                chain[i][:] = [draw_label(action_rows[s], low, model.exact), left]
        after = []
        for i in range(lanes):
            word = next_word(rng[i])
            if i < n:
                high, low = bits(word, rng[i], model.exact)
                s = draw_label(branch_rows[chain[i][0]], high, model.exact)
                after.append(draw_label(action_rows[s], low, model.exact))
        averaged = hasattr(rule, "radius")
        rate = rule.rate if averaged else rule.rate * (1 + k * lanes / rule.delay) ** -rule.sigma
        for i in range(n):
            q = chain[i][0]
            visits[q] += 1
            step = rate if averaged else max(rate, 1 / visits[q])
            for f, signal in enumerate(model.signals[q]):
                error = signal + model.gamma * net.value(w[f], after[i]) - net.value(w[f], q)
                g = net.gradient(w[f], q)
                w[f] = [w[f][j] + step * error * g[j] for j in range(d)]
                total[f] += signal
        for i in range(n):
            if chain[i][1] == 1:
                pair.append(chain[i][0])
            chain[i][:] = [after[i], chain[i][1] - 1]
        if averaged:
            for f in range(len(w)):
                away = math.sqrt(sum((w[f][j] - origin[j]) ** 2 for j in range(d)))
                if away > rule.radius:
                    w[f] = [origin[j] + rule.radius / away * (w[f][j] - origin[j]) for j in range(d)]
                mean[f] = [mean[f][j] + w[f][j] / rounds for j in range(d)]
    return Learned(mean if hasattr(rule, "radius") else w, total, pair or [chain[0][0]])


class CRPOState:
    """One replicate of a run."""

    def __init__(self, theta: list[float], origin: list[float], m: int, rng: list[np.random.SFC64]) -> None:
        self.theta = list(theta)
        self.critic = [list(origin) for _ in range(1 + m)]
        self.chain = [[0, 0] for _ in rng]
        self.visits: dict[int, int] = Counter()
        self.rng = rng
        self.outer = self.samples = self.kept = 0
        self.recent = [0.0] * (1 + m)
        self.average = [0.0] * (1 + m)
        self.longest = [0.0] * (1 + m)
        self.sums = [0.0] * (1 + m)
        self.signals: list[int] = []  # what each step was on: 0 the reward, 1 .. m a constraint


def plug_in(model: Model, prob: list[float], net: Any, steps: Any, state: CRPOState) -> list[float]:
    """Estimates of J from the critics, over the support of rho or over states drawn from it."""
    weighted = [(s, p) for s, p in enumerate(model.start) if p > 0]
    if steps.n_start_draws > 0:
        drawn = []
        for _ in range(steps.n_start_draws):
            u = to_unit(next_word(state.rng[0]))
            i = sum(float(x) <= u for x in steps.start_sum)
            drawn.append((weighted[min(i, len(weighted) - 1)][0], 1 / steps.n_start_draws))
        weighted = drawn
    return [
        sum(p * prob[q] * net.value(w, q) for s, p in weighted for q in choices(model, s))
        for w in state.critic
    ]


def advantage_square(model: Model, prob: list[float], net: Any, w: list[float], pairs: list[int]) -> float:
    """Mean over the pairs' states of the variance over actions of Q."""
    total = 0.0
    for pair in pairs:
        mine = choices(model, owner(model, pair))
        v = sum(prob[q] * net.value(w, q) for q in mine)
        total += sum(prob[q] * (net.value(w, q) - v) ** 2 for q in mine)
    return total / len(pairs)


def crpo_advance(
    model: Model, net: Any, steps: Any, state: CRPOState, origin: list[float], n_steps: int, most_pairs: int
) -> None:
    """Outer steps of CRPO with the measured step sizes of its `Steps`."""
    m, root = len(state.critic) - 1, math.sqrt(steps.n_outer)
    for _ in range(n_steps):
        z = [net.value(state.theta, q) for q in range(len(model.signals))]
        prob = refresh_all(model, identity(len(z)), z)
        if not steps.carry_over:
            state.critic = [list(origin) for _ in state.critic]
            state.visits.clear()
        critics = net.at(state.theta)
        learned = run_td(
            model,
            prob,
            state.rng,
            state.chain,
            state.visits,
            steps.rule,
            critics,
            state.critic,
            origin,
            steps.n_inner,
        )
        state.samples += steps.n_inner
        state.critic = learned.critic
        value = plug_in(model, prob, critics, steps, state)
        square = [
            advantage_square(model, prob, critics, w, learned.pair[: min(most_pairs, steps.n_inner)])
            for w in state.critic
        ]
        level = levels(state)
        tol = [
            steps.tol[i] * (math.sqrt(level[1 + i]) / root if steps.adaptive_tol else 1.0) for i in range(m)
        ]
        violated = [1 + i for i in range(m) if value[1 + i] < -tol[i]]
        f = violated[0] if violated else 0
        if len(violated) > 1:
            f = violated[(next_word(state.rng[0]) >> 32) * len(violated) >> 32]
        h = steps.step
        shorter = [cut(state, k, math.sqrt(square[k])) for k in range(1 + m)]
        if steps.adaptive_step:
            h = h * shorter[f] / math.sqrt(steps.n_outer * level[f]) if level[f] > 0 else 0.0
        fold(state, square, 0)
        if f == 0:
            state.kept += 1
            state.sums = [
                s + t / steps.n_inner / (1 - model.gamma)
                for s, t in zip(state.sums, learned.total, strict=True)
            ]
        state.signals.append(f)
        state.theta = [t + h * w for t, w in zip(state.theta, state.critic[f], strict=True)]
        state.outer += 1


# PD-NAC: every entry of theta at every step, as the recursion says.


class ActorCritic:
    """A replicate of PD-NAC; the stream of lane 0 serves."""

    def __init__(self, model: Model, m: int, stream: np.random.SFC64) -> None:
        n = len(model.signals)
        self.theta = [0.0] * n
        self.drawn = [0.0] * n  # the logits that the entries of a state were made from
        self.critic = [[0.0] * (1 + m) for _ in range(n)]
        self.dual = [0.0] * m
        self.sums = [0.0] * (1 + 2 * m)
        self.stream = stream
        self.pair: int | None = None
        self.left = 0
        self.visits = [0] * n
        self.spreads: list[float] = []  # of Q_L over actions, at every look


def softmax(logits: list[float]) -> list[float]:
    weights = [math.exp(z - max(logits)) for z in logits]
    return [w / sum(weights) for w in weights]


def behave(model: Model, state: ActorCritic, s: int, word: int, explore: float) -> int:
    """An action of epsilon / A + (1 - epsilon) pi: proposed by an older pi, accepted by the change since."""

    def half(word: int, high: bool) -> int:
        return word if model.exact else divmod(word, 2**32)[0 if high else 1]

    def fraction(bits: int) -> float:
        return to_unit(bits) if model.exact else bits / 2**32

    def low(word: int) -> int:
        return next_word(state.stream) if model.exact else half(word, False)

    def entries(logits: list[float]) -> Row:
        return fill_alias_row(softmax(logits), list(mine), row_length(len(mine)), model.exact)

    mine = choices(model, s)
    second = next_word(state.stream)
    action = low(word)
    accept = fraction(low(second))
    if fraction(half(second, True)) < explore:
        return mine[min(int(fraction(action) * len(mine)), len(mine) - 1)]
    q: int = draw_label(entries([state.drawn[b] for b in mine]), action, model.exact)
    change = [state.theta[b] - state.drawn[b] for b in mine]
    if accept < math.exp(state.theta[q] - state.drawn[q] - max(change)):
        return q
    for b in mine:
        state.drawn[b] = state.theta[b]
    anew: int = draw_label(
        entries([state.drawn[b] for b in mine]), half(next_word(state.stream), True), model.exact
    )
    return anew


def actor_rate(steps: Any, spreads: list[float], gamma: float) -> float:
    """Alpha, given or over the root of the mean variance of Q_L over actions."""
    if not steps.adaptive:
        return float(steps.alpha)
    spread = math.sqrt(sum(spreads) / max(len(spreads), 1))
    return float(steps.alpha / (max(spread, 1e-9 / (1 - gamma)) if spread > 0 else 0.04 / (1 - gamma)))


def pd_nac(model: Model, steps: Any, state: ActorCritic, n_steps: int) -> None:
    """Steps of PD-NAC: transition, actor, dual, critics, all from the numbers of step k."""
    m = len(state.dual)
    start, branch_rows = build_start(model), build_branches(model)

    def begin() -> tuple[int, int]:
        """Time to the next look, and a start state with the word that an action may use."""
        state.left = geometric_horizon(next_word(state.stream), model.gamma)
        word = next_word(state.stream)
        return draw_label(start, word if model.exact else word >> 32, model.exact), word

    def plug_in(s: int) -> list[float]:
        pi = softmax([state.theta[q] for q in choices(model, s)])
        pairs = list(zip(pi, choices(model, s), strict=True))
        return [sum(p * state.critic[q][k] for p, q in pairs) for k in range(1 + m)]

    if state.pair is None:
        s, word = begin()
        state.pair = behave(model, state, s, word, steps.explore)
    for _ in range(n_steps):
        here = state.pair
        word = next_word(state.stream)
        there = draw_label(branch_rows[here], word if model.exact else word >> 32, model.exact)
        then = following = behave(model, state, there, word, steps.explore)
        look = state.left == 0
        state.left -= 1
        value = [0.0] * (1 + m)
        if steps.every:
            for s, p in enumerate(model.start):
                value = [x + p * y for x, y in zip(value, plug_in(s), strict=True)]
        if look:
            s, word = begin()
            if not steps.every:
                value = [y / (1 - model.gamma) for y in plug_in(s)]
            if steps.restart:
                following = behave(model, state, s, word, steps.explore)
        error = [
            f + model.gamma * later - now
            for f, later, now in zip(model.signals[here], state.critic[then], state.critic[here], strict=True)
        ]
        lagrangian = [
            sum(w * c for w, c in zip([1.0, *state.dual], critic, strict=True)) for critic in state.critic
        ]
        alpha = actor_rate(steps, state.spreads, model.gamma)
        state.theta = [x + alpha * y for x, y in zip(state.theta, lagrangian, strict=True)]
        if look:
            state.spreads.append(float(np.var([lagrangian[q] for q in choices(model, owner(model, here))])))
        state.sums = [x + y for x, y in zip(state.sums, value + state.dual, strict=True)]
        if look or steps.every:
            for i in range(m):
                moved = state.dual[i] - steps.eta[i] * value[1 + i]
                state.dual[i] = min(max(moved, 0.0), steps.dual_max[i])
        state.visits[here] += 1
        beta = max(steps.beta, steps.first / state.visits[here])
        for k in range(1 + m):
            state.critic[here][k] += beta * error[k]
        state.pair = following


# Exact control: sweeps, each state after the other.


def improve(model: Model, signal: list[float], value: list[float]) -> tuple[list[float], list[int]]:
    """The Bellman operator, and the first best choice of each state."""
    out, best_choices = [], []
    for s in range(n_states(model)):
        q_values = []
        for q in choices(model, s):
            ahead = 0.0
            for b in branches(model, q):
                ahead += model.branch_prob[b] * value[model.branch_target[b]]
            q_values.append(signal[q] + model.gamma * ahead)
        out.append(max(q_values))
        best_choices.append(choices(model, s)[q_values.index(max(q_values))])
    return out, best_choices


def improve_in_place(
    model: Model, signal: list[float], value: list[float], backward: bool, block: int
) -> list[float]:
    """The same, new values used at once by states of the same block; a choice is repeated until it leaves."""
    out = list(value)
    states = list(range(n_states(model)))
    for s in reversed(states) if backward else states:
        q_values = []
        for q in choices(model, s):
            stay = sum(model.branch_prob[b] for b in branches(model, q) if model.branch_target[b] == s)
            ahead = 0.0
            for b in branches(model, q):
                t = model.branch_target[b]
                if t != s:
                    ahead += model.branch_prob[b] * (out[t] if t // block == s // block else value[t])
            q_values.append((signal[q] + model.gamma * ahead) / (1 - model.gamma * stay))
        out[s] = max(q_values)
    return out


def chain_of(model: Model, prob: list[float]) -> list[list[float]]:
    """P_pi as a table."""
    table = [[0.0] * n_states(model) for _ in range(n_states(model))]
    for s in range(n_states(model)):
        for q in choices(model, s):
            for b in branches(model, q):
                table[s][model.branch_target[b]] += prob[q] * model.branch_prob[b]
    return table


def relax(
    table: list[list[float]], right: list[float], gamma: float, value: list[float], backward: bool, block: int
) -> list[float]:
    """Gauss-Seidel for x = right + gamma table x."""
    out = list(value)
    states = list(range(len(table)))
    for s in reversed(states) if backward else states:
        others = sum(
            table[s][t] * (out[t] if t // block == s // block else value[t]) for t in states if t != s
        )
        out[s] = (right[s] + gamma * others) / (1 - gamma * table[s][s])
    return out


# PD-ANPG with a critic as control variate.


class Corrected(NamedTuple):
    total: list[list[float]]  # a job: sum of f + gamma Wbar(s') - W over its T + 1 transitions, all signals
    choice: list[int]  # a job: its last pair
    seen: list[tuple[int, int]]  # choice and next state, in the order of the draws


def any_of(model: Model, s: int, number: int) -> int:
    """A uniform choice of state s, by 32 bits, or by the 53 high bits of a word."""
    mine = choices(model, s)
    if model.exact:
        return mine[min(int(to_unit(number) * len(mine)), len(mine) - 1)]
    return mine[number * len(mine) // 2**32]


def corrected_rollouts(
    model: Model,
    prob: list[float],
    rng: list[np.random.SFC64],
    jobs: list[tuple[int | None, bool]],
    critic: list[list[float]],
    mean: list[list[float]],
) -> Corrected:
    """Run jobs (first choice, None: drawn; whether it wanders). Lanes out of work change places with the last one."""
    start, branch_rows, action_rows = build_start(model), build_branches(model), fill_actions(model, prob)
    signals = range(len(model.signals[0]))
    out = Corrected([[] for _ in jobs], [-1 for _ in jobs], [])
    places = list(range(len(rng)))  # lane at each place
    work: dict[int, list[int]] = {}  # lane: job, transitions left, pair
    next_job = 0
    while True:
        i = 0
        while i < len(places):
            lane = places[i]
            if lane in work and work[lane][1] > 0:
                i += 1
                continue
            work.pop(lane, None)
            if next_job == len(jobs):
                places[i] = places[-1]
                places.pop()
                continue
            stream = rng[lane]
            horizon = geometric_horizon(next_word(stream), model.gamma)
            q, _ = jobs[next_job]
            if q is None:
                high, low = bits(next_word(stream), stream, model.exact)
                s = draw_label(start, high, model.exact)
                q = draw_label(action_rows[s], low, model.exact)
            work[lane] = [next_job, horizon + 1, q]
            out.total[next_job] = [0.0 for _ in signals]
            next_job += 1
            i += 1
        if not places:
            return out
        words = [next_word(stream) for stream in rng]
        for lane in places:
            job, left, q = work[lane]
            high, low = bits(words[lane], rng[lane], model.exact)
            s = draw_label(branch_rows[q], high, model.exact)
            for f in signals:
                out.total[job][f] += model.signals[q][f] + model.gamma * mean[s][f] - critic[q][f]
            out.seen.append((q, s))
            out.choice[job] = q
            wandering = jobs[job][1] and low % 2 == 1
            then = any_of(model, s, low) if wandering else draw_label(action_rows[s], low, model.exact)
            work[lane] = [job, left - 1, then]


class Improver:
    """One replicate of PD-ANPG-CV; theta0: where a policy with other parameters than one a choice begins."""

    def __init__(self, model: Model, rng: list[np.random.SFC64], theta0: Any = None) -> None:
        c, n = len(model.signals), len(model.signals[0])
        self.theta = [0.0] * c if theta0 is None else [float(x) for x in theta0]
        self.origin = list(self.theta)
        self.direction = [[0.0] * len(self.theta) for _ in range(n)]
        self.dual, self.dual_mean = ([0.0] * (n - 1) for _ in range(2))
        self.rng, self.outer, self.samples, self.noise = rng, 0, 0, 0.0
        self.critic = [[0.0] * n for _ in range(c)]
        self.count: dict[tuple[int, int], int] = {}  # choice and next state
        self.gram, self.spread = ([[0.0] * n for _ in range(n)] for _ in range(2))
        self.excess, self.value = [0.0] * n, [0.0] * n
        self.sums = [0.0] * (2 * n - 1)


def visits(count: dict[tuple[int, int], int], q: int) -> int:
    return sum(n for (chosen, _), n in count.items() if chosen == q)


def explored(model: Model, state: Improver, first: Corrected, n: int) -> list[int]:
    """The choices tried least in the visited states, by their counts; then those in the pairs' states."""
    number = [visits(state.count, q) for q in range(len(model.signals))]
    least = [min(choices(model, s), key=number.__getitem__) for s in range(n_states(model))]
    rare = sorted(dict.fromkeys(least[owner(model, q)] for q, _ in first.seen), key=number.__getitem__)[:n]
    return rare + [least[owner(model, q)] for q in first.choice[len(rare) : n]]


def critic_means(model: Model, prob: list[float], state: Improver) -> list[list[float]]:
    """Wbar; actions never tried take the mean of the others."""
    means = []
    for s in range(n_states(model)):
        tried = [q for q in choices(model, s) if visits(state.count, q) > 0]
        weight = sum(prob[q] for q in tried)
        row = [
            sum(prob[q] * state.critic[q][f] for q in tried) / weight if tried else 0.0
            for f in range(len(state.value))
        ]
        for q in choices(model, s):
            if q not in tried:
                state.critic[q] = list(row)
        means.append(row)
    return means


def corrected_batch(
    model: Model, prob: list[float], state: Improver, n: int, n_first: int, n_wanders: int
) -> tuple[list[list[float]], list[float], Corrected, Corrected]:
    """Wbar, the critic's J, occupancy rollouts, and those from the first n last pairs with exploring ones."""
    mean = critic_means(model, prob, state)
    plug = [sum(p * mean[s][f] for s, p in enumerate(model.start)) for f in range(len(state.value))]
    frozen = [list(row) for row in state.critic], [list(row) for row in mean]
    first = corrected_rollouts(model, prob, state.rng, [(None, False)] * n_first, *frozen)
    jobs: list[tuple[int | None, bool]] = [(q, False) for q in first.choice[:n]]
    jobs += [(q, True) for q in explored(model, state, first, n_wanders)]
    return mean, plug, first, corrected_rollouts(model, prob, state.rng, jobs, *frozen)


class Memory:
    """The critic of one replicate of PD-ANPG; ``starts``: it says where the inner loop begins, too."""

    def __init__(self, critic: Improver, starts: bool, tabular: bool, earned: int) -> None:
        self.critic, self.starts, self.tabular, self.earned = critic, starts, tabular, earned

    def draw(self, model: Model, phi: Any, prob: list[float], state: State, steps: Any) -> tuple[Batch, Any]:
        """A batch, and what learns from it once it has been used."""
        critic, n, signals = self.critic, steps.n_inner, range(len(self.critic.value))
        critic.theta = state.theta
        mean, plug, first, second = corrected_batch(model, prob, critic, n, n + steps.fresh, steps.n_wanders)
        pair, seen = first.choice[:n], first.seen + second.seen
        known = [[critic.critic[q][f] - mean[owner(model, q)][f] for f in signals] for q in range(len(prob))]
        total = [[p + c for p, c in zip(plug, row, strict=True)] for row in first.total]
        variance = []
        for f in signals:
            j = sum(row[f] for row in total[:n]) / n
            second_moment = (
                sum(model.signals[q][f] * (2 * critic.critic[q][f] - model.signals[q][f]) for q in pair) / n
            )
            variance.append(max(second_moment / (1 - model.gamma) - j**2, 0.0))
        advantage = [
            [a + c for a, c in zip(known[q], row, strict=True)]
            for q, row in zip(pair, second.total[:n], strict=True)
        ]
        start = None
        if self.starts:
            start = (
                [[row[f] for row in known] for f in signals]
                if self.tabular
                else [list(w) for w in critic.direction]
            )
        batch = Batch(pair, total, advantage, len(seen), 0.0, [], variance, start)

        def learn() -> None:
            if self.starts and not self.tabular:
                learn_direction(model, phi, prob, critic, mean, pair, steps.score_bound)
            back_up(model, prob, critic, mean, seen, self.earned)
            critic.outer += 1

        return batch, learn


def proximal_newton(state: Improver, share: float, gamma: float) -> list[float]:
    """The multipliers that are predicted to undo a share of the violations, by enumerating which are zero."""
    m = len(state.dual)
    matrix, linear = np.zeros((m, m)), np.zeros(m)
    for i in range(m):
        d = 0.05 * spread_of(state, 1 + i, gamma) or 1.0
        for j in range(m):
            matrix[i, j] = state.gram[1 + i][1 + j] + (d if i == j else 0.0)
        linear[i] = state.gram[0][1 + i] + share * (1 - gamma) * state.value[1 + i] - d * state.dual[i]
    best, least = np.zeros(m), math.inf
    for mask in range(2**m):
        free = [i for i in range(m) if mask >> i & 1]
        x = np.zeros(m)
        if free:
            x[free] = np.linalg.solve(matrix[np.ix_(free, free)], -linear[free])
        loss = x @ matrix @ x / 2 + linear @ x
        if (x >= 0).all() and loss < least:
            best, least = x, loss
    width = [math.sqrt(spread_of(state, f, gamma)) for f in range(1 + m)]
    most = [100 * (width[0] / w if width[0] > 0 else 1.0) if w > 0 else 0.0 for w in width[1:]]
    return [min(float(x), top) for x, top in zip(best, most, strict=True)]


def spread_of(state: Improver, f: int, gamma: float) -> float:
    """A signal's spread over actions, if it is more than rounding."""
    return state.spread[f][f] if math.sqrt(state.spread[f][f]) > 64 * 2.0**-52 / (1 - gamma) else 0.0


def fold_measurements(
    model: Model, prob: list[float], state: Improver, mean: list[list[float]], pairs: list[int],
    plug: list[float], totals: list[list[float]], far: Any, gram: Any = None,
) -> None:  # fmt: skip
    n, h = len(state.value), len(pairs)
    weight = max(0.03, 1 / (state.outer + 1))

    def off_mean(q: int, f: int) -> float:
        return float(np.clip(state.critic[q][f] - mean[owner(model, q)][f], -far[f], far[f]))

    for f in range(n):
        for g in range(n):
            product = covariance = 0.0
            for pair in pairs:
                mine = choices(model, owner(model, pair))
                product += sum(prob[q] * off_mean(q, f) * off_mean(q, g) for q in mine)
                rows = np.array([[off_mean(q, f), off_mean(q, g)] for q in mine])
                covariance += float(np.cov(rows.T, bias=True)[0, 1])
            product = product / h if gram is None else gram[f, g]
            state.gram[f][g] += weight * (product - state.gram[f][g])
            state.spread[f][g] += weight * (covariance / h - state.spread[f][g])
        off = sum(row[f] for row in totals) / h
        state.excess[f] += weight * (off - state.excess[f])
        state.value[f] = plug[f] + state.excess[f]


def back_up(
    model: Model, prob: list[float], state: Improver, mean: list[list[float]], seen: list[tuple[int, int]],
    earned: int,
) -> None:  # fmt: skip
    """Raise the counts, then back choices up from them, the latest first, which is free, and while money lasts."""
    for pair in seen:
        state.count[pair] = state.count.get(pair, 0) + 1
    money = earned
    for t, (q, _) in enumerate(reversed(seen)):
        money += earned
        if t > 0 and len(branches(model, q)) > money:
            continue
        money = max(money - len(branches(model, q)), 0)
        s, n = owner(model, q), visits(state.count, q)
        for f in range(len(state.value)):
            average = sum(c / n * mean[then][f] for (chosen, then), c in state.count.items() if chosen == q)
            new = model.signals[q][f] + model.gamma * average
            mean[s][f] += prob[q] * (new - state.critic[q][f])
            state.critic[q][f] = new


def in_turn(model: Model, state: Improver, pairs: list[int]) -> list[int]:
    """A choice of the state of every pair: each is looked at in its turn."""
    turn = []
    for h, q in enumerate(pairs):
        mine = choices(model, owner(model, q))
        turn.append(mine[(state.outer + h) % len(mine)])
    return turn


def learn_direction(
    model: Model, phi: Any, prob: list[float], state: Improver, mean: list[list[float]], pairs: list[int],
    bound: float,
) -> Any:  # fmt: skip
    """Kaczmarz steps towards the critic's advantages: of the pairs, then of a choice in turn in each one's state.

    Return E_nu E_pi of the products of g . w_f, from both rows of a state with the weights of the balance heuristic.
    """
    gram = np.zeros((len(state.value), len(state.value)))
    if isinstance(phi, Network):
        state.direction = [[0.99 * x for x in w] for w in state.direction]
    rows = pairs + in_turn(model, state, pairs)
    for q, g in zip(rows, collect_scores(model, phi, prob, rows, state.theta), strict=True):
        step = 1.0 / (sum(x * x for x in g) + 0.1 * bound)
        moves = []
        for f, w in enumerate(state.direction):
            moves.append(sum(x * y for x, y in zip(g, w, strict=True)))
            e = state.critic[q][f] - mean[owner(model, q)][f] - moves[f]
            state.direction[f] = [y + step * e * x for x, y in zip(g, w, strict=True)]
        uniform = 1.0 / len(choices(model, owner(model, q)))
        gram += prob[q] / (prob[q] + uniform) * np.outer(moves, moves) / len(pairs)
    return gram


def moved_logits(
    model: Model, theta: list[float], state: Improver, mean: list[list[float]], far: Any
) -> list[float]:
    """Logits at most 15 below the largest of their state, which is 0; further where a constraint is far off."""
    moved = []
    for s in range(n_states(model)):
        top = max(theta[q] for q in choices(model, s))
        for q in choices(model, s):
            beyond = [(mean[s][f] - state.critic[q][f]) / far[f] for f in range(1, len(far))]
            moved.append(max(theta[q] - top, -15 - math.log(max(1.0, *beyond, 1.0))))
    return moved


def pd_anpg_cv(
    model: Model, momentum: Any, steps: Any, state: Improver, n_steps: int, earned: int = 24, phi: Any = None
) -> None:
    """Outer steps of PD-ANPG-CV; ASGD begins at the critic's advantage, on the whole targets.

    phi : features or Network of a policy whose starts of the inner loop are learned; None: tabular softmax
    """
    tabular, h, n = phi is None, steps.n_inner, len(state.value)
    phi = identity(len(model.signals)) if tabular else phi
    for _ in range(n_steps):
        prob = refresh_all(model, phi, state.theta)
        mean, plug, first, second = corrected_batch(model, prob, state, h, h, steps.n_wanders)
        seen = first.seen + second.seen
        state.samples += len(seen)
        weights = [1.0, *state.dual_mean]
        square = sum(weights[f] * weights[g] * state.spread[f][g] for f in range(n) for g in range(n))
        square = max(square, 0.01 * sum(w * w * state.spread[f][f] for f, w in enumerate(weights)))
        if spread_of(state, 0, model.gamma) == 0.0:
            square = sum(
                max(w * w, 1.0) * spread_of(state, f, model.gamma) for f, w in enumerate(weights) if f
            )
        moved = None
        if square > 0.0:
            sigma = math.sqrt(square)
            eta = min(steps.eta, 30 / math.sqrt(state.outer)) / sigma
            state.dual = proximal_newton(state, steps.dual * sigma, model.gamma)
            state.dual_mean = [a + 0.03 * (x - a) for a, x in zip(state.dual_mean, state.dual, strict=True)]
            weights = [1.0, *state.dual]
            advantage = [
                sum(w * (state.critic[q][f] - mean[owner(model, q)][f]) for f, w in enumerate(weights))
                for q in range(len(prob))
            ]
            x = advantage
            if not tabular:
                x = [
                    sum(w * row[j] for w, row in zip(weights, state.direction, strict=True))
                    for j in range(len(state.theta))
                ]
            scores = collect_scores(model, phi, prob, first.choice, state.theta)
            target = [
                advantage[q] + sum(w * c for w, c in zip(weights, row, strict=True))
                for q, row in zip(first.choice, second.total[:h], strict=True)
            ]
            errors = [
                t - sum(a * b for a, b in zip(g, x, strict=True)) for t, g in zip(target, scores, strict=True)
            ]
            trust = 0.3 * min(1.0, sigma / math.sqrt(state.noise)) if state.noise > 0 else 0.0
            made = momentum._replace(xi=momentum.xi * trust, delta=momentum.delta * trust)
            omega = asgd_dense(made, scores, target, steps.n_skipped, x)
            noise = sum(e * e for e in errors) / h
            state.noise += (max(0.03, 1 / state.outer) if state.noise > 0 else 1.0) * (noise - state.noise)
            moved = [t + eta * o for t, o in zip(state.theta, omega, strict=True)]
            if tabular:
                moved = moved_logits(model, moved, state, mean, steps.far)
            else:
                rows = first.choice + in_turn(model, state, first.choice)
                deep = isinstance(phi, Network) and min(prob[q] for q in rows) < math.exp(-15)
                pull = min(max(2 / state.outer, 0.003 if deep else 0.0), 1)
                moved = [t - pull * (t - o) for t, o in zip(moved, state.origin, strict=True)]
        gram = None
        if not tabular:
            gram = learn_direction(model, phi, prob, state, mean, first.choice, steps.score_bound)
        fold_measurements(model, prob, state, mean, first.choice, plug, first.total, steps.far, gram)
        estimate = [p + sum(row[f] for row in first.total) / h for f, p in enumerate(plug)]
        state.sums = [a + b for a, b in zip(state.sums, estimate + state.dual, strict=True)]
        back_up(model, prob, state, mean, seen, earned)
        state.theta = moved or state.theta
        state.outer += 1


# PD-NAC for the average reward.


class AverageActorCritic:
    """A replicate; the stream of lane 0 serves."""

    def __init__(self, model: Model, d: int, m: int, stream: np.random.SFC64) -> None:
        self.theta = np.zeros(d)
        self.dual = np.zeros(m)
        self.critic = np.zeros((1 + m, d))
        self.mean = np.zeros(1 + m)
        self.square = np.zeros(1 + m)
        self.largest = np.zeros(1 + m)
        self.sums = np.zeros(1 + 2 * m)
        self.stream = stream
        self.pair: int | None = None
        self.left = 0
        self.outer = self.samples = 0


def average_trajectories(
    model: Model, prob: list[float], steps: Any, state: AverageActorCritic, n: int
) -> list[list[tuple[int, int]]]:
    """n lists of transitions, each from a pair to the next one, all on one chain."""
    lengths = []
    for _ in range(n):
        word = next_word(state.stream)
        q = 1 + (64 if word == 0 else (word & -word).bit_length() - 1)
        lengths.append(2**q if 2**q <= steps.longest else 1)

    def follow(q: int | None) -> int:
        word, s = 0, 0
        if q is not None:
            word = next_word(state.stream)
            s = draw_label(branch_row(model, q), word if model.exact else word >> 32, model.exact)
            state.left -= 1
        if q is None or (steps.restart and state.left < 0):
            state.left = geometric_horizon(next_word(state.stream), model.gamma)
            word = next_word(state.stream)
            s = draw_label(build_start(model), word if model.exact else word >> 32, model.exact)
        low = next_word(state.stream) if model.exact else word % 2**32
        choice: int = draw_label(action_row(model, prob, s), low, model.exact)
        return choice

    if state.pair is None:
        state.pair = follow(None)
    found = []
    for length in lengths:
        found.append([])
        for _ in range(length):
            here, state.pair = state.pair, follow(state.pair)
            found[-1].append((here, state.pair))
    state.samples += sum(lengths)
    return found


def multi_level(values: list[Any]) -> Any:
    """v^0 + 2^Q (v^Q - v^(Q-1)), v^j the mean over the first 2^j values; v^0 of a single one."""
    n = len(values)
    if n == 1:
        return values[0]
    return values[0] + n * (np.mean(values, axis=0) - np.mean(values[: n // 2], axis=0))


def pd_nac_average(
    model: Model, phi: Any, steps: Any, state: AverageActorCritic, n: int, n_steps: int
) -> None:
    """Outer steps with n inner ones each; phi (C, d)."""
    phi, signals = np.asarray(phi), np.asarray(model.signals)
    means = np.array([phi[list(choices(model, s))].mean(axis=0) for s in range(n_states(model))])
    m = len(state.dual)
    for _ in range(n_steps):
        prob = refresh_all(model, phi.tolist(), state.theta.tolist())
        if not steps.carry_over:
            state.critic[:] = state.mean[:] = 0.0
        square, count = np.zeros(1 + m), 0
        for way in average_trajectories(model, prob, steps, state, n):
            pushes, moves = [], []
            for here, then in way:
                excess = signals[here] - state.mean
                now, after = means[owner(model, here)], means[owner(model, then)]
                error = excess + state.critic @ (after - now)
                pushes.append(excess)
                moves.append(np.outer(error, now))
                square += error**2
                count += 1
            state.critic = state.critic + steps.rate * multi_level(moves)
            state.mean = np.clip(state.mean + steps.pace * multi_level(pushes), -1.0, 1.0)
        price, omega = np.append(1.0, state.dual), np.zeros(len(state.theta))
        for way in average_trajectories(model, prob, steps, state, n):
            moves = []
            for here, then in way:
                ahead = state.critic @ (means[owner(model, then)] - means[owner(model, here)])
                advantage = price @ (signals[here] - state.mean + ahead)
                g = np.array(collect_scores(model, phi.tolist(), prob, [here])[0])
                moves.append(g * (advantage - g @ omega))
            omega = omega + steps.natural * multi_level(moves)
        level = price @ np.sqrt(state.square)
        alpha = steps.alpha
        if steps.adaptive_alpha:
            alpha = alpha / level if level > 0 else 0.0
        state.theta = state.theta + alpha * omega
        state.sums += np.concatenate((state.mean / (1 - model.gamma), state.dual))
        for i in range(m):
            beta = steps.beta[i]
            if steps.adaptive_beta:
                noise = state.square[1 + i]
                size = math.sqrt(noise) * state.largest[1 + i]
                reward = state.square[0] if state.square[0] > 0 else noise
                beta = beta * math.sqrt(reward) / size if size > 0 else 0.0
            state.dual[i] = min(max(state.dual[i] - beta * state.mean[1 + i], 0.0), steps.dual_max[i])
        state.square += max(0.01, 1 / (state.outer + 1)) * (square / count - state.square)
        state.largest = np.maximum(state.largest, np.abs(state.mean))
        state.outer += 1
