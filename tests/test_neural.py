"""NeuralSoftmax: its kernels beside numpy with complex steps and beside finite differences; its runs; its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from from_python import from_python

import fastcmdp as fc
from fastcmdp.algorithms.primal_dual import PrimalDualRun
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels.policy.scores import collect_scores
from fastcmdp.kernels.policy.softmax import LazyActions
from fastcmdp.kernels.streams import LANES
from fastcmdp.worlds import TableWorld

SEED = 20
RNG = np.random.default_rng(SEED)
MODELS = {name: CMDP(**rows) for name, rows in naive.MODELS.items()}
ARCHITECTURES = [
    (by_choice, hidden, activation)
    for by_choice in (False, True)
    for hidden in ((3,), (4, 2))
    for activation in ("tanh", "relu")
]
every_architecture = pytest.mark.parametrize(("by_choice", "hidden", "activation"), ARCHITECTURES)


def make(
    cmdp: CMDP, by_choice: bool, hidden: tuple[int, ...], activation: Any
) -> tuple[fc.NeuralSoftmax, naive.Network]:
    """A policy with some zeros among its features, and its twin."""
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((cmdp.n_choices if by_choice else cmdp.n_states, 3))
    x *= rng.random(x.shape) < 0.8
    policy = fc.NeuralSoftmax(
        **{"choice_features" if by_choice else "state_features": x}, hidden=hidden, activation=activation
    )
    n_outputs = 1 if by_choice else int(np.diff(cmdp.state_to_choice).max())
    return policy, naive.Network(x.tolist(), by_choice, hidden, n_outputs, activation == "relu")


def make_run(cmdp: CMDP, policy: fc.NeuralSoftmax, settings: fc.PDANPG, replicates: int = 1) -> PrimalDualRun:
    run = settings.run(TableWorld.of(cmdp, policy), SEED, replicates)
    run.state.theta[:] += 0.5 * np.random.default_rng(1).standard_normal(run.state.theta.shape)
    run.refresh()
    return run


collect = from_python(collect_scores)


def scores_of(run: PrimalDualRun) -> np.ndarray:
    """Scores of all choices at the theta of replicate 0."""
    problem, n = run.world, run.world.model.n_choices
    scores = run.scores(n)
    scores.dense[:] = np.nan
    d = collect(
        problem.policy.data, run.state.theta[0], problem.tables, run.actions[0], np.arange(n), n, scores
    )
    assert d == problem.policy.n_parameters
    return scores.dense


@every_architecture
@pytest.mark.parametrize("name", ["random", "many actions"])
def test_probabilities_and_scores(
    name: str, by_choice: bool, hidden: tuple[int, ...], activation: str
) -> None:
    cmdp = MODELS[name]
    policy, net = make(cmdp, by_choice, hidden, activation)
    run = make_run(cmdp, policy, fc.PDANPG())
    theta, model = run.state.theta[0], naive.plain(cmdp)
    prob = np.array(naive.refresh_all(model, net, theta))
    np.testing.assert_allclose(run.policies()[0], prob, rtol=1e-12)
    got = scores_of(run)
    expected = naive.collect_scores(model, net, prob.tolist(), list(range(cmdp.n_choices)), theta)
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)

    def log_pi(moved: np.ndarray) -> np.ndarray:
        run.state.theta[0] = moved
        run.refresh()
        return np.log(run.policies()[0])

    centre = theta.copy()
    for j in range(len(centre)):  # the kernels' own forward sweep by central differences: error about h^2
        step = np.zeros_like(centre)
        step[j] = 1e-5
        difference = (log_pi(centre + step) - log_pi(centre - step)) / 2e-5
        np.testing.assert_allclose(got[:, j], difference, rtol=1e-5, atol=1e-7)


SETTINGS = fc.PDANPG(outer=5, inner=7, pilot=2)


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("random", 0),
        ("three constraints", 3),
        ("many actions", 6),
        ("absorbing", 5),
        ("many states", 2),
        ("many states", 4),
    ],
)
def test_runs_replay(name: str, architecture: int) -> None:
    cmdp = MODELS[name]
    policy, net = make(cmdp, *ARCHITECTURES[architecture])
    run = make_run(cmdp, policy, SETTINGS, replicates=2)
    assert isinstance(run.actions[1], LazyActions) is (name == "many states")
    start = run.state.theta[1].tolist()
    run.advance(1, 7, run.work())
    state = naive.State(len(start), cmdp.n_constraints, 2, naive.streams(SEED, 1, LANES))
    state.theta, state.control = start, run.state.control[0].tolist()
    naive.advance(naive.plain(cmdp), net, run.solver, run.form, run.steps, state, 7)
    assert run.state.samples[1] == state.samples
    assert run.state.rng[1].tolist() == naive.state_words(state.rng)
    assert np.abs(run.state.theta[1] - start).max() > 1e-3
    for field in ("theta", "dual", "recent", "average", "sums", "control"):
        # Rounding of 1e-16 a step, fed back through seven outer steps.
        np.testing.assert_allclose(
            getattr(run.state, field)[1], getattr(state, field), rtol=1e-9, atol=1e-10, err_msg=field
        )


def test_the_first_policy_is_uniform_and_its_parameters_come_from_the_seed() -> None:
    cmdp = MODELS["many actions"]
    x = RNG.standard_normal((cmdp.n_states, 4))
    one, same, other = (fc.NeuralSoftmax(x, (64, 8), seed=seed).bind(cmdp).initial for seed in (1, 1, 2))
    assert one is not None
    assert same is not None
    assert other is not None
    assert (one == same).all()
    assert np.abs(one - other).max() > 0.1
    n = np.diff(cmdp.state_to_choice)[cmdp.choice_state]
    run = SETTINGS.run(TableWorld.of(cmdp, fc.NeuralSoftmax(x)), SEED, replicates=2)
    np.testing.assert_allclose(run.policies(), [1.0 / n, 1.0 / n], rtol=1e-12)
    # Inputs of the first layer have variance 1 in the mean over rows (4 + 1 terms, 64 units: 4 sd = 0.6).
    pre = x @ one[: 4 * 64].reshape(4, 64) + one[4 * 64 : 5 * 64]
    assert 0.4 < (pre**2).mean() < 1.6


@every_architecture
def test_score_bound_is_the_longest_first_score(
    by_choice: bool, hidden: tuple[int, ...], activation: str
) -> None:
    cmdp = MODELS["many actions"]
    policy, _ = make(cmdp, by_choice, hidden, activation)
    run = SETTINGS.run(TableWorld.of(cmdp, policy), SEED, 1)
    longest = (scores_of(run) ** 2).sum(axis=1).max()
    assert run.world.policy.score_bound == pytest.approx(longest, rel=1e-12)


def test_sparse_features_are_spelled_as_dense_ones() -> None:
    cmdp = MODELS["random"]
    dense, sparse = (fc.NeuralSoftmax(x) for x in (np.eye(5), sp.eye_array(5)))
    assert dense.fingerprint() == sparse.fingerprint()
    assert (dense.bind(cmdp).initial == sparse.bind(cmdp).initial).all()


def test_fingerprints_differ() -> None:
    x = np.eye(5)
    made = [
        fc.NeuralSoftmax(x), fc.NeuralSoftmax(2 * x), fc.NeuralSoftmax(x, (31,)), fc.NeuralSoftmax(x, (32, 1)),
        fc.NeuralSoftmax(x, activation="relu"), fc.NeuralSoftmax(x, seed=1), fc.NeuralSoftmax(choice_features=x),
        fc.LogLinear(x),
    ]  # fmt: skip
    assert len({policy.fingerprint() for policy in made}) == len(made)


def test_threads_pieces_and_files_give_the_same_bits(tmp_path: Path) -> None:
    cmdp = fc.envs.river_swim()
    policy = fc.NeuralSoftmax(np.eye(cmdp.n_states), (8,))
    settings = fc.PDANPG(outer=40, inner=9, pilot=3)
    whole = fc.solve(cmdp, settings, policy=policy, replicates=3, threads=1)
    path = tmp_path / "run.npz"

    def interrupt(progress: Any) -> None:
        if progress.outer >= 20:
            raise KeyboardInterrupt

    cut = fc.solve(
        cmdp, settings, policy=policy, replicates=3, threads=2, piece=3, progress=interrupt, checkpoint=path
    )
    assert not cut.finished
    again = fc.resume(fc.load_run(path, cmdp, policy))
    assert again.theta.tolist() == whole.theta.tolist()
    assert again.trace.sums.tolist() == whole.trace.sums.tolist()
    with pytest.raises(fc.ModelError, match="another policy"):
        fc.load_run(path, cmdp, fc.NeuralSoftmax(np.eye(cmdp.n_states), (8,), seed=1))


EYE = np.eye(5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"state_features": EYE, "choice_features": EYE}, "not both"),
        ({"state_features": [1.0, 2.0]}, r"shape \(2,\)"),
        ({"state_features": [[1.0, np.nan]]}, "state 0 are not finite"),
        ({"choice_features": [["x"]]}, "choice_features are no table"),
        ({"state_features": EYE, "hidden": ()}, "hidden"),
        ({"state_features": EYE, "hidden": (1, 2, 3)}, "hidden"),
        ({"state_features": EYE, "hidden": 32}, "hidden"),
        ({"state_features": EYE, "hidden": (2.5,)}, "hidden"),
        ({"state_features": EYE, "hidden": (0,)}, "hidden"),
        ({"state_features": EYE, "hidden": (True,)}, "hidden"),
        ({"state_features": EYE, "activation": "sin"}, "activation = 'sin'"),
        ({"state_features": EYE, "seed": -1}, "seed = -1"),
    ],
    ids=str,
)
def test_bad_input_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(fc.ModelError, match=message):
        fc.NeuralSoftmax(**arguments)


@pytest.mark.parametrize(
    "policy",
    [fc.NeuralSoftmax(np.eye(5), (65_536, 65_536)), fc.ReluSoftmax(np.zeros((10, 2100)), 65_536)],
    ids=["neural", "relu"],
)
def test_networks_without_bounds_are_refused(policy: Any) -> None:
    """Before memory is taken for 32 GiB, and for 1."""
    with pytest.raises(fc.ModelError, match=r"(hidden|width) = .* makes [\d,]+ parameters; give fewer"):
        policy.bind(fc.envs.garnet(n_states=5, n_actions=2))


def test_rows_must_fit_the_model() -> None:
    with pytest.raises(fc.ModelError, match="state_features have 4 rows, the model has 5 states"):
        fc.NeuralSoftmax(np.eye(4)).bind(MODELS["random"])
    with pytest.raises(fc.ModelError, match="choice_features have 4 rows"):
        fc.NeuralSoftmax(choice_features=np.eye(4)).bind(MODELS["random"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_it_learns(seed: int) -> None:
    """All of the output within 10 % of J_r*, with one-hot features and the default network."""
    cmdp = fc.envs.garnet(n_states=20, seed=seed)
    policy = fc.NeuralSoftmax(np.eye(20))
    result = fc.solve(cmdp, fc.PDANPG(outer=10_000, inner=400), policy=policy, replicates=2)
    assert result.optimum is not None
    assert (result.gap <= 0.1 * result.optimum.reward).all(), result.gap / result.optimum.reward
    assert (result.violation <= 0.01 * np.ptp(result.optimum.constraint_range, axis=1)).all()
