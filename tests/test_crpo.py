"""CRPO: kernels against their twins, critics against exact Q, the rule for N_0, the bound for exact Q."""

from __future__ import annotations

import math
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from from_python import from_python
from numba import config
from scipy import stats
from test_neural import make as network

import fastcmdp as fc
from fastcmdp.algorithms import crpo as crpo_module
from fastcmdp.algorithms.crpo import CRPORun
from fastcmdp.kernels.algorithm import crpo as crpo_kernels
from fastcmdp.kernels.learning import td
from fastcmdp.kernels.learning.critics import Gradients
from fastcmdp.kernels.policy.scores import collect_scores
from fastcmdp.kernels.policy.softmax import LazyActions
from fastcmdp.kernels.streams import LANES
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld

SEED = 11
collect = from_python(collect_scores)
MODELS = {name: fc.CMDP(**rows) for name, rows in naive.MODELS.items()}
NO_GRADIENTS = Gradients(np.zeros(1, np.int64), np.zeros(0), 1.0)
SMALL = ["random", "no constraint", "three constraints", "one state", "start with zeros", "absorbing"]


def make_run(cmdp: fc.CMDP, policy: Any, settings: Any, replicates: int = 1, draws: str = "fast") -> CRPORun:
    run = settings.run(TableWorld.of(cmdp, policy, False, draws), SEED, replicates)
    assert isinstance(run, CRPORun)
    return run


ARCHITECTURES = {
    "network": (False, (3,), "tanh"),
    "network by choice": (True, (4, 2), "relu"),
}


def kinds_of(kind: str, cmdp: fc.CMDP) -> tuple[Any, Any]:
    """A policy of this kind, and the plain program's critic of the same features."""
    rng = np.random.default_rng(SEED)
    phi = rng.standard_normal((cmdp.n_choices, 3))
    if kind == "dense":
        return fc.LogLinear(phi), naive.Linear(phi.tolist())
    phi *= rng.random(phi.shape) < 0.6
    if kind == "sparse":
        return fc.LogLinear(sp.csr_array(phi)), naive.Linear(phi.tolist())
    if kind in ARCHITECTURES:
        policy, net = network(cmdp, *ARCHITECTURES[kind])
        return policy, naive.Tangent(naive.plain(cmdp), net, policy.bind(cmdp).critic_bound)
    if kind == "relu":
        return fc.ReluSoftmax(phi, width=6, seed=1), naive.Relu(phi.tolist(), 6)
    return fc.TabularSoftmax(), naive.Linear(naive.identity(cmdp.n_choices))


def compare(cmdp: fc.CMDP, kind: str, settings: Any, draws: str = "fast") -> naive.CRPOState:
    """A run of all its outer steps and its twin."""
    policy, net = kinds_of(kind, cmdp)
    run = make_run(cmdp, policy, settings, 2, draws)
    origin = run.steps.origin.tolist()
    if kind in ARCHITECTURES:  # away from the start, where the outputs are 0
        run.state.theta[1] += 0.5 * np.random.default_rng(1).standard_normal(run.state.theta.shape[1])
        run.refresh()
    theta = run.state.theta[1].tolist()
    run.advance(1, settings.outer - 2, run.work())
    run.advance(1, 2, run.work())
    state = naive.CRPOState(theta, origin, cmdp.n_constraints, naive.streams(SEED, 1, LANES))
    model = naive.plain(cmdp, draws == "exact")
    naive.crpo_advance(model, net, run.steps, state, origin, settings.outer, crpo_module.MOST_PAIRS)
    got = run.state
    for name in ("outer", "samples", "kept"):
        assert getattr(got, name).tolist() == [0, getattr(state, name)]
    assert got.failed.tolist() == [-1, -1]
    assert got.rng[1].tolist() == naive.state_words(state.rng)
    assert got.chain[1].T.tolist() == state.chain
    assert np.isnan(got.dual).all()
    # Rounding of 1e-16 an update, in up to 400 of them an outer step, fed back through eight outer steps.
    close = {"rtol": 1e-9, "atol": 1e-10}
    np.testing.assert_allclose(got.theta[1], state.theta, **close)
    np.testing.assert_allclose(got.critic[1], np.ravel(state.critic), **close)
    np.testing.assert_allclose(got.sums[1, : 1 + cmdp.n_constraints], state.sums, **close)
    for name in ("recent", "average", "longest"):
        np.testing.assert_allclose(getattr(got, name)[1], getattr(state, name), **close)
    return state


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("draws", ["fast", pytest.param("exact", marks=pytest.mark.slow)])
def test_softmax_equals_its_twin(name: str, draws: str) -> None:
    state = compare(MODELS[name], "tabular", fc.CRPOSoftmax(outer=8, inner=150), draws)
    assert len(state.signals) == 8
    compare(
        MODELS[name],
        "tabular",
        fc.CRPOSoftmax(outer=5, inner=20, alpha=0.1, tol=0.0, sigma=0.7, carry_over=False),
        draws,
    )
    if name == "three constraints":
        # All but unattainable limits: steps go to one of several violated constraints.
        state = compare(MODELS[name], "tabular", fc.CRPOSoftmax(outer=8, inner=40, c_tol=1e-3))
        assert set(state.signals) & {1, 2, 3}


@pytest.mark.parametrize("name", ["random", "three constraints", "absorbing"])
@pytest.mark.parametrize(
    "kind", ["tabular", "dense", "relu", *ARCHITECTURES, pytest.param("sparse", marks=pytest.mark.slow)]
)
def test_crpo_equals_its_twin(name: str, kind: str) -> None:
    compare(MODELS[name], kind, fc.CRPO(outer=6, inner=100, rate=0.05))
    compare(MODELS[name], kind, fc.CRPO(outer=6, inner=37, rate=0.05, radius=0.2, alpha=0.3, tol=0.1))


def test_rows_made_on_demand_and_start_states_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crpo_module, "MOST_STARTS", 20)
    cmdp, settings = MODELS["many states"], fc.CRPO(outer=4, inner=45, rate=0.05)
    run = make_run(cmdp, kinds_of("dense", cmdp)[0], settings)
    assert isinstance(run.actions[0], LazyActions)
    assert run.steps.n_start_draws == 20
    compare(cmdp, "dense", settings)


# The critic and the chains against exact values.


class Fixed:
    """A model, a policy, and what chains under it measure in one long stretch, for R independent replicates."""

    R, STEPS = 48, 60_000

    def __init__(self, rule: Any, name: str) -> None:
        cmdp = self.cmdp = MODELS[name]
        rng = np.random.default_rng(3)
        self.prob = np.array(
            naive.refresh_all(
                naive.plain(cmdp),
                naive.identity(cmdp.n_choices),
                rng.standard_normal(cmdp.n_choices).tolist(),
            )
        )
        tables, data = build_tables(cmdp), fc.TabularSoftmax().bind(cmdp).data
        actions = build_actions(tables, self.prob)
        n, c = tables.n_signals, cmdp.n_choices
        self.critic, self.total = np.zeros((self.R, n, c)), np.zeros((self.R, n))
        self.pairs = np.zeros(c)
        words = streams(SEED, self.R)
        for r in range(self.R):
            pair = np.zeros(self.STEPS, np.int64)
            flat, total = np.zeros(n * c), np.zeros(n)
            found = td.run_td(
                tables, actions, words[r], np.zeros((2, LANES), np.int64), np.zeros(c, np.int64),
                rule, data, np.zeros(c), NO_GRADIENTS, cmdp.gamma,
                self.STEPS, c, np.zeros(c), flat, np.zeros(n * c), total, pair,
            )  # fmt: skip
            self.critic[r], self.total[r] = flat.reshape(n, c), total / self.STEPS
            self.pairs += np.bincount(pair[:found], minlength=c)

    def exact_q(self, gamma: float) -> np.ndarray:
        """Q of all signals, (1+m, C), by a linear system."""
        cmdp = self.cmdp
        c = cmdp.n_choices
        step = np.zeros((c, c))
        for q in range(c):
            for b in range(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1]):
                s = cmdp.branch_target[b]
                mine = np.arange(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1])
                step[q, mine] += cmdp.branch_prob[b] * self.prob[mine]
        return np.linalg.solve(np.eye(c) - gamma * step, cmdp.signals).T

    def pvalue(self, gamma: float) -> float:
        """Bonferroni's over entries, of t-tests of the critics' means against exact Q.

        What is left of the critics' start, 1e-4 of the largest Q at most, is allowed for.
        """
        exact = self.exact_q(gamma)
        z = (self.critic - exact).reshape(self.R, -1)
        spread = z.std(axis=0, ddof=1)
        excess = np.maximum(np.abs(z.mean(axis=0)) - 1e-4 * np.abs(exact).max(), 0.0)
        t = excess / np.where(spread > 0, spread, np.finfo(float).tiny) * math.sqrt(self.R)
        return float(2 * stats.t.sf(t.max(), self.R - 1) * t.size)


@pytest.mark.parametrize("name", ["random", "absorbing"])
def test_critics_converge_to_exact_q(name: str) -> None:
    """False-alarm rate 1e-4 each. The tests find a discount that is off by one in a thousand."""
    case = Fixed(td.Decaying(rate=1.0, delay=500.0, sigma=0.8), name)
    gamma = case.cmdp.gamma
    assert case.pvalue(gamma) > 1e-4
    assert case.pvalue(gamma - 0.001 if name == "random" else gamma - 0.01) < 1e-6
    # One critic is near on its own.
    exact = case.exact_q(gamma)
    assert np.sqrt(((case.critic - exact) ** 2).mean()) < 0.05 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["random", "absorbing"])
def test_chains_visit_pairs_by_occupancy(name: str) -> None:
    """False-alarm rate 1e-4. An absorbing state does not hold chains for ever: their law is nu, restarts included."""
    case = Fixed(td.Averaged(rate=0.1, radius=math.inf), name)
    nu = fc.occupancy(case.cmdp, case.prob)
    seen = nu > 0
    assert not case.pairs[~seen].any()
    expected = nu[seen] * case.pairs.sum()
    assert stats.chisquare(case.pairs[seen], expected).pvalue > 1e-4
    wrong = fc.occupancy(case.cmdp, 1.0 / np.diff(case.cmdp.state_to_choice)[case.cmdp.choice_state])
    wrong = wrong[seen] / wrong[seen].sum() * case.pairs.sum()
    assert stats.chisquare(case.pairs[seen], wrong).pvalue < 1e-6
    # Means of signals along the chains are (1 - gamma) J; the start from rho weighs 1/((1-gamma) steps): 3e-4.
    j = nu @ case.cmdp.signals
    z = (case.total.mean(axis=0) - j) / (case.total.std(axis=0, ddof=1) / math.sqrt(case.R))
    assert np.abs(z).max() < 5.0


# The rule for N_0.


@pytest.mark.filterwarnings(
    "ignore::fastcmdp.errors.NearlyInfeasibleWarning"
)  # which the limit is on purpose
def test_empty_n0_is_flagged_and_has_the_policy_that_met_the_limits_best() -> None:
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, seed=2)
    best = fc.optimum(cmdp)
    tight = cmdp.with_limits(best.constraint_range[:, 0] + 1e-9)
    result = fc.solve(tight, fc.CRPOSoftmax(outer=30, inner=2000, alpha=0.01, tol=0.0), replicates=3)
    assert result.empty.all()
    assert not result.run.kept().any()
    assert "No outer step met its tolerance" in result.summary()
    slack = tight.slack(np.concatenate([result.trace.reward[:, :, None], result.trace.constraints], axis=2))
    np.testing.assert_allclose(result.violation[:, 0], -slack[:, :, 0].max(axis=1), rtol=1e-12)
    loose = fc.solve(tight, fc.CRPOSoftmax(outer=30, inner=2000, alpha=0.01, tol=100.0), replicates=3)
    assert not loose.empty.any()
    assert (loose.run.kept() == 30).all()  # every step was one on the reward
    assert (loose.mixture.reward > result.mixture.reward).all()


def test_the_policy_before_the_step_is_the_one_in_n0() -> None:
    """One outer step whose policy meets the limit: the output is the uniform policy, not the one after the step."""
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, seed=2)
    uniform = fc.evaluate(cmdp, np.full(cmdp.n_choices, 1 / 3))
    model = cmdp.with_limits(uniform.constraints * 1.5)
    run = make_run(model, fc.TabularSoftmax(), fc.CRPOSoftmax(outer=1, inner=400_000, alpha=1.0))
    run.advance(0, 1, run.work())
    assert run.kept().tolist() == [1]
    assert np.abs(run.state.theta).max() > 1.0
    got = model.to_user_values(run.state.sums[0, :2])
    # 400,000 transitions of correlation time 1/(1-gamma): within 1 % of J, where one step moves it by far more.
    np.testing.assert_allclose(got[0], uniform.reward, rtol=0.01)
    moved = fc.evaluate(model, run.policies()[0])
    assert moved.reward > 1.05 * uniform.reward


def test_the_tolerance_follows_the_level_and_falls_with_the_outer_steps() -> None:
    """T = 25: 0.3 sqrt(0.04)/5 = 0.012 for one constraint, 0.3 sqrt(0.16)/5 = 0.024 for the other."""
    cmdp = fc.CMDP(**naive.random_rows(21, m=2))
    run = make_run(cmdp, fc.TabularSoftmax(), fc.CRPOSoftmax(outer=25, c_tol=1.0))
    steps = run.steps._replace(tol=np.array([0.3, 0.3]))
    run.state.average[0] = [9.0, 0.04, 0.01]
    run.state.recent[0] = [9.0, 0.01, 0.16]
    for value, signal in (([1.0, -0.0119, -0.0239], 0), ([1.0, -0.0121, 0.0], 1), ([1.0, 0.0, -0.0241], 2)):
        violated = np.zeros(2, np.int64)
        found = crpo_kernels.signal_to_improve(steps, run.state, np.array(value), violated, 0, 5.0)
        assert found == signal


def test_one_of_the_violated_constraints_uniformly() -> None:
    """False-alarm rate 1e-4."""
    rows = naive.random_rows(21, m=3)
    cmdp = fc.CMDP(
        **(rows | {"limits": [-1.0, -1.0, -1.0]})
    )  # costs are positive: all violated, whatever one does
    n = 600
    run = make_run(cmdp, fc.TabularSoftmax(), fc.CRPOSoftmax(outer=1, inner=64, alpha=0.1, tol=0.0), n)
    work = run.work()
    chosen = np.zeros(4)
    for r in range(n):
        run.advance(r, 1, work)
        critics = run.state.critic[r].reshape(4, -1)
        match = [np.allclose(run.state.theta[r], 0.1 / (1 - cmdp.gamma) * w, rtol=1e-12) for w in critics]
        assert sum(match) == 1
        chosen[match.index(True)] += 1
    assert chosen[0] == 0
    assert not run.kept().any()
    assert stats.chisquare(chosen[1:]).pvalue > 1e-4
    assert stats.chisquare(chosen[1:], [n / 2, n / 4, n / 4]).pvalue < 1e-6


# The bound for exact Q.


def exact_crpo(cmdp: fc.CMDP, n_outer: int, step: float, tol: float) -> tuple[np.ndarray, int]:
    """Mean over N_0 of J (kernel units) and its size, with exact Q; violated: the worst."""
    c, gamma = cmdp.n_choices, cmdp.gamma
    states = cmdp.choice_state
    step_to = np.zeros((c, cmdp.n_states))
    for q in range(c):
        for b in range(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1]):
            step_to[q, cmdp.branch_target[b]] += cmdp.branch_prob[b]
    theta, total, size = np.zeros(c), np.zeros(1 + cmdp.n_constraints), 0
    for _ in range(n_outer):
        p = np.exp(theta - np.maximum.reduceat(theta, cmdp.state_to_choice[:-1])[states])
        p /= np.add.reduceat(p, cmdp.state_to_choice[:-1])[states]
        mix = np.zeros((cmdp.n_states, c))
        mix[states, np.arange(c)] = p
        q_all = np.linalg.solve(np.eye(c) - gamma * step_to @ mix, cmdp.signals)
        j = cmdp.start @ mix @ q_all
        if (j[1:] >= -tol).all():
            total, size = total + j, size + 1
            theta = theta + step * q_all[:, 0]
        else:
            theta = theta + step * q_all[:, 1 + int(np.argmin(j[1:]))]
    return total / max(size, 1), size


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_for_exact_q(seed: int) -> None:
    """The recursion itself with exact Q (written out here, no kernel), step (1-gamma) sqrt(2 log A / T): N_0 is not
    empty, gap and violation over it are at most tol.

    The bound's tol exceeds the range of J for short runs, and then asks for nothing; T makes it a quarter of that.
    """
    gamma = 0.4
    rng = np.random.default_rng(seed)
    available = np.arange(3) <= np.arange(5)[:, None] % 3
    model = fc.CMDP.from_arrays(
        rng.dirichlet(np.full(5, 0.5), (5, 3)),
        rng.random((5, 3)),
        [rng.random((5, 3)), rng.random((5, 3))],
        gamma=gamma,
        limits=[1.0, 1.0],
        available=available,
    )
    span = fc.optimum(model).constraint_range
    model = model.with_limits(0.6 * span[:, 0] + 0.4 * span[:, 1])
    try:
        best = fc.optimum(model)
    except fc.InfeasibleError:
        model = model.with_limits(0.3 * span[:, 0] + 0.7 * span[:, 1])
        best = fc.optimum(model)
    log_a = math.log(3)
    for n_outer in (400, 1600):
        tol = 2 * math.sqrt(2) * math.sqrt(log_a) / ((1 - gamma) ** 2 * math.sqrt(n_outer))
        step = (1 - gamma) * math.sqrt(2 * log_a / n_outer)
        j, size = exact_crpo(model, n_outer, step, tol)
        assert size > 0
        gap = (best.reward - model.to_user_values(j)[0]) / model.reward_scale
        assert gap <= tol
        assert (j[1:] >= -tol).all()
        # A tenth of tol, as in practice, makes it switch, and is respected as well on these models.
        j, size = exact_crpo(model, n_outer, step, tol / 10)
        assert size > 0
        assert (j[1:] >= -tol / 10).all()
    # Negative control: without steps on constraints the reward alone breaks the limits by more.
    free, _ = exact_crpo(model, 1600, step, math.inf)
    assert free[1:].min() < j[1:].min()


def test_the_kernels_follow_the_exact_recursion_and_its_bound() -> None:
    """Through `solve`, with critics of many transitions: gap and violation over N_0 within tol, and near those of the
    recursion with exact Q."""
    gamma, n_outer = 0.4, 400
    rng = np.random.default_rng(1)
    model = fc.CMDP.from_arrays(
        rng.dirichlet(np.full(5, 0.5), (5, 3)), rng.random((5, 3)), rng.random((5, 3)), gamma=gamma, limits=1.0
    )  # fmt: skip
    low, high = fc.optimum(model).constraint_range[0]
    model = model.with_limits(0.6 * low + 0.4 * high)
    best = fc.optimum(model)
    assert best.duals[0] > 0
    tol = 0.2 * math.sqrt(2 * math.log(3) / n_outer) / (1 - gamma) ** 2
    step = (1 - gamma) * math.sqrt(2 * math.log(3) / n_outer)
    wanted, size = exact_crpo(model, n_outer, step, tol)
    made = fc.CRPOSoftmax(
        outer=n_outer, inner=20_000, alpha=step * (1 - gamma), tol=tol * float(model.constraint_scale[0]), c_step=10.0
    )  # fmt: skip
    result = fc.solve(model, made, optimum=best, trace=n_outer)
    kept = int(result.run.kept()[0])
    assert kept > 0
    assert abs(kept - size) < 0.1 * n_outer
    gap = result.gap[0] / model.reward_scale
    assert gap <= 10 * tol
    assert result.violation[0, 0] / model.constraint_scale[0] <= 1.5 * tol
    got = model.signals.T @ fc.exact.occupancy(model, result.policy()) / (1 - gamma)
    np.testing.assert_allclose(got, wanted, atol=0.05)


# Settings and policies.


def test_settings_out_of_range() -> None:
    for made in (fc.CRPO, fc.CRPOSoftmax):
        for name, value in [
            ("tol", -0.1),
            ("tol", "low"),
            ("alpha", 0.0),
            ("inner", 0),
            ("c_tol", math.nan),
            ("carry_over", 1),
        ]:
            with pytest.raises(fc.SettingError, match=name):
                made(**{name: value})
    for name in ("sigma", "rate"):
        with pytest.raises(fc.SettingError, match=name):
            fc.CRPOSoftmax(**{name: 1.01})
    with pytest.raises(fc.SettingError, match="tol has 2 values"):
        fc.solve(fc.envs.garnet(n_states=4), fc.CRPOSoftmax(outer=1, tol=[0.1, 0.2]))
    with pytest.raises(fc.SettingError, match="c_T"):
        fc.CRPO.for_epsilon(fc.envs.garnet(), 0.1, c_T=0.0)


def test_tolerance_is_in_the_users_units() -> None:
    cmdp = fc.envs.garnet(n_states=5)
    run = make_run(cmdp, fc.TabularSoftmax(), fc.CRPOSoftmax(tol=0.3))
    assert run.steps.tol * cmdp.constraint_scale == pytest.approx([0.3])
    times_ten = fc.CMDP(
        cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, cmdp.reward,
        [10 * cmdp.costs[:, 0]], gamma=cmdp.gamma, limits=10 * cmdp.limits,
    )  # fmt: skip
    other = make_run(times_ten, fc.TabularSoftmax(), fc.CRPOSoftmax(tol=3.0))
    assert times_ten.constraint_scale != cmdp.constraint_scale
    assert other.steps.tol * times_ten.constraint_scale == pytest.approx([3.0])


def test_gradients_that_do_not_fit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two, or one, pairs of one transition share a row."""
    cmdp, settings = MODELS["random"], fc.CRPO(outer=4, inner=90)
    policy, _ = kinds_of("network", cmdp)
    thetas = []
    for wanted, most, rows in ((32, 2**28, 32), (2, 2**28, 2), (32, 0, 1)):
        monkeypatch.setattr(crpo_module, "_ROWS", wanted)
        monkeypatch.setattr(crpo_module, "_MOST", most)
        monkeypatch.setattr(crpo_module, "_GRADIENTS", 0)
        run = make_run(cmdp, policy, settings)
        work = run.work()
        assert work.gradients.tag.size == 1 + min(rows, cmdp.n_choices)
        run.advance(0, 4, work)
        thetas.append(run.state.theta[0].tolist())
    assert thetas[0] == thetas[1] == thetas[2]


def test_networks_learn() -> None:
    """One-hot inputs and 32 hidden units on the 20-state garnet: within 3 % (1.2 to 1.4 % on ten seeds)."""
    cmdp = fc.envs.garnet(n_states=20)
    policy = fc.NeuralSoftmax(np.eye(20))
    result = fc.solve(cmdp, fc.CRPO(outer=600, inner=2000), policy=policy, replicates=2, seed=1)
    assert (result.gap < 0.03 * fc.optimum(cmdp).reward).all()
    assert (result.violation < 0.03 * np.abs(cmdp.limits)).all()
    first = fc.evaluate(cmdp, fc.PDANPG().run(result.run.world, 0, 1).policies()[0])
    assert fc.optimum(cmdp).reward - first.reward > 0.1 * fc.optimum(cmdp).reward


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="about compiled code")
def test_kernels_compile_once_a_kind() -> None:
    """Other models and other spellings of settings compile nothing more."""
    spelled = fc.CRPOSoftmax(
        outer=np.int32(2), inner=np.int8(20), alpha=np.float32(0.1), tol=[0, 0, 0], sigma=1,
        rate=np.float16(0.5), delay=3,
    )  # fmt: skip
    count = None
    for settings, name in [(fc.CRPOSoftmax(outer=2, inner=20), name) for name in SMALL] + [
        (spelled, "three constraints")
    ]:
        run = make_run(MODELS[name], fc.TabularSoftmax(), settings)
        run.advance(0, 2, run.work())
        count = count or len(crpo_kernels.advance.signatures)
        assert len(crpo_kernels.advance.signatures) == count, name


def test_overflow_stops_a_replicate() -> None:
    run = make_run(MODELS["random"], fc.TabularSoftmax(), fc.CRPOSoftmax(outer=6, inner=50, alpha=1e308))
    run.advance(0, 6, run.work())
    assert 0 <= run.state.failed[0] < 6
    assert run.state.outer[0] == run.state.failed[0]
    assert np.isfinite(run.state.theta).all()


# The two-layer ReLU network as a policy class.


def test_relu_policy_starts_uniform_and_is_homogeneous() -> None:
    cmdp = MODELS["many actions"]
    policy, net = kinds_of("relu", cmdp)
    bound = policy.bind(cmdp)
    assert bound.initial is not None
    run = make_run(cmdp, policy, fc.CRPO(outer=1, inner=10))
    n = np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    np.testing.assert_allclose(run.policies()[0], 1 / n, rtol=1e-12)
    w = np.random.default_rng(0).standard_normal(bound.n_parameters)
    for q in (0, 5):
        value = net.value(w.tolist(), q)
        assert net.value((2.5 * w).tolist(), q) == pytest.approx(2.5 * value, rel=1e-12)
        got = np.zeros(cmdp.n_choices)
        run.state.theta[0] = w
        run.refresh()
        got = np.log(run.policies()[0])
        mine = np.flatnonzero(cmdp.choice_state == cmdp.choice_state[q])
        logits = np.array([net.value(w.tolist(), int(a)) for a in mine])
        np.testing.assert_allclose(got[mine] - got[q], logits - net.value(w.tolist(), q), atol=1e-12)


def test_relu_scores_and_their_bound() -> None:
    cmdp = MODELS["random"]
    policy, net = kinds_of("relu", cmdp)
    bound = policy.bind(cmdp)
    pairs = list(range(cmdp.n_choices))
    run = make_run(cmdp, policy, fc.CRPO(outer=1, inner=10))
    for seed in range(5):
        w = np.random.default_rng(seed).standard_normal(bound.n_parameters)
        run.state.theta[0] = w
        run.refresh()
        prob = run.policies()[0]
        scores = run.scores(len(pairs))
        n_slots = collect(
            bound.data, w, run.world.tables, run.actions[0], np.array(pairs), len(pairs), scores
        )
        phi = [net.gradient(w.tolist(), q) for q in pairs]
        expected = naive.collect_scores(naive.plain(cmdp), phi, prob.tolist(), pairs)
        got = np.zeros((len(pairs), bound.n_parameters))
        for h in pairs:
            part = slice(scores.first[h], scores.first[h + 1])
            got[h, scores.coordinate[scores.slot[part]]] = scores.value[part]
        np.testing.assert_allclose(got, expected, atol=1e-12)
        assert n_slots <= len(scores.coordinate)
        assert (got**2).sum(axis=1).max() <= bound.score_bound
        assert np.diff(scores.first).max() <= bound.support


def test_relu_score_bound_is_reached() -> None:
    """All units active for both choices, whose features are orthogonal, and all probability on the other one."""
    cmdp = fc.CMDP([0, 2], [0, 1, 2], [0, 0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0], gamma=0.5, limits=1.5)
    policy = fc.ReluSoftmax(np.eye(2), width=4)
    bound = policy.bind(cmdp)
    run = make_run(cmdp, policy, fc.CRPO(outer=1, inner=10))
    run.state.theta[0] = [1, 1, 1, 1, 50, 50, 1, 1]  # W_r = (1, 50) where b_r = 1, else (1, 1)
    run.refresh()
    scores = run.scores(1)
    collect(bound.data, run.state.theta[0], run.world.tables, run.actions[0], np.array([0]), 1, scores)
    assert (scores.value**2).sum() == pytest.approx(2.0, rel=1e-6)
    assert bound.score_bound == 2.0


def test_relu_policies_learn() -> None:
    """Neural CRPO on one-hot features, and PD-ANPG with the same policy class."""
    cmdp = fc.envs.garnet(n_states=5, n_actions=3, gamma=0.8, seed=4)
    best = fc.optimum(cmdp)
    start = fc.evaluate(cmdp, np.full(cmdp.n_choices, 1 / 3))
    span = best.reward - start.reward
    policy = fc.ReluSoftmax(np.eye(cmdp.n_choices), width=16)
    for made in (fc.CRPO(outer=300, inner=600), fc.PDANPG(outer=1500, inner=40)):
        late = fc.solve(cmdp, made, policy=policy, replicates=2, optimum=best).last_quarter
        assert abs(late.gap.mean()) < span / 2
        assert late.violation.mean() < span / 4


@pytest.mark.parametrize("wrong", [{"width": 5}, {"width": 0}, {"width": 2.5}, {"seed": -1}])
def test_relu_policy_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(fc.ModelError, match=next(iter(wrong))):
        fc.ReluSoftmax(np.eye(3), **wrong)
    cmdp = fc.envs.garnet(n_states=3)
    with pytest.raises(fc.ModelError, match="rows"):
        fc.ReluSoftmax(np.eye(2)).bind(cmdp)
    prints = {fc.ReluSoftmax(np.eye(3), w, seed=s).fingerprint() for w in (2, 2.0, 4) for s in (0, 1)}
    assert len(prints) == 4
