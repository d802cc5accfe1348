"""PD-ANPG and its relatives with a critic: twins on tables and on a simulator, and what must not change."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import naive
import numpy as np
import pytest
from test_corrected_simulators import Batch, cut_and_resumed, plain, products
from test_pd_anpg_cv import MODELS, general_policy

import fastcmdp as fc
from fastcmdp.algorithms.primal_dual import PrimalDual, PrimalDualRun
from fastcmdp.algorithms.variants import variant
from fastcmdp.kernels.learning import counts
from fastcmdp.kernels.learning.least_squares import HEAD, bound_weights, gather, solve_weights
from fastcmdp.kernels.streams import LANES
from fastcmdp.sweep.worker import _brief
from fastcmdp.worlds import SimulatedWorld, TableWorld

SEED = 6
FIELDS = (
    "theta", "dual", "recent", "average", "longest", "sums", "control", "critic", "direction",
)  # fmt: skip
SETTINGS: dict[str, PrimalDual] = {
    "control": fc.PDANPG(outer=8, inner=6, pilot=3, critic="control"),
    "start": fc.PDANPG(outer=8, inner=6, pilot=3, critic="control+start"),
    "controlled": fc.PDANPG(outer=8, inner=6, pilot=3, critic="control+start", dual="pi"),
    "inner estimate": fc.PDANPG(outer=8, inner=5, pilot=2, critic="control+start", dual_estimate="inner"),
    "one inner step": fc.PDANPG(outer=8, inner=1, pilot=2, critic="control+start"),
    "constant steps": fc.PDANPG(
        outer=8, inner=6, pilot=0, eta=0.1, zeta=0.2, lambda_max=0.5, margin=0.01, critic="control+start"
    ),
    "projected": fc.NPGPD(outer=8, inner=6, pilot=2, step=3.0, radius=0.4, critic="control+start"),
    "conservative": fc.CNPGPDA(outer=8, inner=6, pilot=2, kappa=0.05, dual="optimistic", critic="control"),
}


def agree(run: PrimalDualRun, state: naive.State, memory: Any) -> None:
    """A run of one replicate has done what its twin has."""
    assert run.state.rng[0].tolist() == naive.state_words(state.rng)
    assert (run.state.samples[0], run.state.outer[0], run.state.failed[0]) == (
        state.samples, state.outer, -1,
    )  # fmt: skip
    for field in FIELDS:
        twin = memory.critic if field in ("critic", "direction") else state
        got, want = getattr(run.state, field)[0], np.asarray(getattr(twin, field))
        if got.size:
            scale = max(np.abs(want).max(initial=0.0), 1e-3)
            np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7 * scale, err_msg=field)


def on_table(
    cmdp: fc.CMDP, policy: Any, phi: Any, settings: PrimalDual, draws: str = "fast"
) -> PrimalDualRun:
    """A run that agrees with its twin."""
    run = settings.run(TableWorld.of(cmdp, policy, False, draws), SEED, 1)
    first = run.state.theta[0].tolist()
    model, tabular = naive.plain(cmdp, draws == "exact"), phi is None
    state = naive.State(len(first), cmdp.n_constraints, settings.pilot, naive.streams(SEED, 0, LANES))
    state.theta, state.control = list(first), run.state.control[0].tolist()
    critic = naive.Improver(model, state.rng, first)
    starts = settings.critic == "control+start"
    memory = naive.Memory(critic, starts, tabular, counts.EARNED)
    n_steps, work = settings.outer + settings.pilot, run.work()
    for _ in range(n_steps):
        run.advance(0, 1, work)
    features = naive.identity(cmdp.n_choices) if tabular else phi
    naive.advance(model, features, run.solver, run.form, run.steps, state, n_steps, memory)
    agree(run, state, memory)
    assert run.state.direction.size == 0 or (starts and not tabular)
    assert (
        cmdp.widest == 1
        or not run.state.critic[..., 0].any()
        or np.abs(run.state.theta[0] - first).max() > 1e-3
    )
    return run


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
# Exact draws are in the rollouts alone, whose test is PD-ANPG-CV's; each line here is an outer loop to compile.
@pytest.mark.parametrize("draws", ["fast", pytest.param("exact", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "many states"])
def test_tabular_policies(name: str, draws: str, settings: PrimalDual) -> None:
    on_table(MODELS[name], fc.TabularSoftmax(), None, settings, draws)


@pytest.mark.parametrize(
    ("kind", "critic"),
    [
        ("dense", "control+start"),
        ("network", "control"),
        pytest.param("dense", "control", marks=pytest.mark.slow),
        pytest.param("sparse", "control", marks=pytest.mark.slow),
        pytest.param("sparse", "control+start", marks=pytest.mark.slow),
        pytest.param("network", "control+start", marks=pytest.mark.slow),
    ],
)
def test_general_policies(kind: str, critic: Any) -> None:
    cmdp = MODELS["random"]
    policy, phi = general_policy(kind, cmdp)
    run = on_table(cmdp, policy, phi, fc.PDANPG(outer=10, inner=6, pilot=3, critic=critic))
    assert critic == "control" or np.abs(run.state.direction).max() > 1e-3


class OnQueue:
    """The twin's batches on the tandem queue: rollouts in plain Python, a policy and a critic linear in features."""

    def __init__(self, queue: fc.Simulator, run: PrimalDualRun, state: naive.State) -> None:
        self.queue, self.run, self.state = queue, run, state
        self.copy = Batch(queue, 1)  # reads theta and critic as the rollouts in plain Python do
        self.stream = run.state.rng[0][:, 0].copy()
        self.layout = run.work().critic.control.space.layout
        d = self.layout.d
        self.evidence = np.zeros(d * d + 2 * d + 2)
        self.direction = np.zeros((2, 20))
        self.turn = 0

    def score(self, state: Any, action: int) -> Any:
        weight = -self.copy.probabilities(state)
        weight[action] += 1.0
        return np.outer(weight, self.queue.features(state)).ravel()

    def known(self, state: Any, action: int) -> Any:
        w = self.copy.values(state)
        return w[:, action] - w @ self.copy.probabilities(state)

    def draw(self) -> Any:
        self.copy.theta[:] = self.state.theta
        steps, tape = self.run.steps, []  # type: ignore[var-annotated]
        n = steps.n_inner
        first = [plain(self.copy, self.stream, (None, -1, False), tape) for _ in range(n + steps.fresh)]
        starts = np.mean([w for _, w, *_ in first], axis=0)
        sums = np.cumsum([self.signals(record) if record[0] >= 0 else [0.0, 0.0] for record in tape], axis=0)[
            [j for j, record in enumerate(tape) if record[0] < 0]
        ]
        sums = np.diff(sums, axis=0, prepend=0.0)[:n]
        pair = [end for *_, end, _ in first[:n]]
        jobs = [(s, a, False) for s, a in pair] + [(s, a, True) for s, a in pair[: steps.n_wanders]]
        second = [plain(self.copy, self.stream, job, tape) for job in jobs]
        total = [(starts + c).tolist() for c, *_ in first]
        mean = np.mean(total[:n], axis=0)
        advantage = [(self.known(*at) + c).tolist() for at, (c, *_) in zip(pair, second[:n], strict=True)]
        moved = sum(made for *_, made in first + second)
        variance = ((sums - mean) ** 2).mean(axis=0).tolist()
        batch = naive.Batch(
            [], total, advantage, moved, 0.0, [], variance, [w.tolist() for w in self.direction]
        )
        rows = pair + [(s, (self.turn + h) % 4) for h, (s, _) in enumerate(pair)]
        scores = [self.score(*at) for at in rows]

        def learn() -> None:
            for g, at in zip(scores, rows, strict=True):
                e = self.known(*at) - self.direction @ g
                self.direction += np.outer(e, g) / (g @ g + 0.1 * steps.score_bound)
            self.fit(tape)

        return batch, [g.tolist() for g in scores[:n]], learn

    def signals(self, record: Any) -> Any:
        world = self.run.world.tables
        return world.factor * record[1:3] + world.offset

    def fit(self, tape: list[Any]) -> None:
        """Least squares by the kernels that test_corrected_simulators.py holds against numpy."""
        world, d, gamma = self.run.world.tables, self.layout.d, self.queue.gamma
        kept = np.concatenate([[len(tape), len(tape)], np.ravel(tape)])
        assert HEAD == 2
        forget = min(max(0.003, 2.0 / (self.turn + 2.0)), 1.0)
        gather(kept, self.layout, world.factor, world.offset, gamma, forget, np.zeros(d), self.evidence)
        if solve_weights(
            self.layout, self.evidence, gamma, np.zeros((d, d)), np.zeros((d, 2)), self.copy.critic
        ):
            bound_weights(self.layout, kept, world.factor, world.offset, gamma, self.copy.critic)
        self.turn += 1


def test_log_linear_policies_on_a_simulator() -> None:
    queue = fc.simulators.tandem_queue(gamma=0.8)
    assert len(products(queue.features([0.0, 0.0]))) == 20
    settings = fc.PDANPG(outer=6, inner=8, pilot=2, critic="control+start")
    run = settings.run(SimulatedWorld.of(queue, fc.LogLinear(), settings.rolls), SEED, 1)
    state = naive.State(20, 1, settings.pilot, naive.streams(SEED, 0, LANES))
    state.control = run.state.control[0].tolist()
    twin = OnQueue(queue, run, state)
    twin.copy.critic[:] = 0.0
    run.advance(0, 8, run.work())
    naive.outer_steps(queue.gamma, run.solver, run.form, run.steps, state, 8, twin.draw)
    assert run.state.rng[0][:, 0].tolist() == twin.stream.tolist()
    assert (run.state.samples[0], run.state.outer[0]) == (state.samples, 6)
    want = {"critic": twin.copy.critic, "direction": twin.direction, "evidence": twin.evidence}
    for field in ("theta", "dual", "recent", "average", "longest", "sums", "critic", "direction", "evidence"):
        expected = np.asarray(want.get(field, getattr(state, field, None)))
        scale = max(np.abs(expected).max(initial=0.0), 1e-3)
        np.testing.assert_allclose(
            getattr(run.state, field)[0], expected, rtol=1e-6, atol=1e-6 * scale, err_msg=field
        )
    assert np.abs(run.state.theta).max() > 1e-3


@pytest.mark.parametrize("critic", ["control", "control+start"])
def test_samples_are_those_that_are_expected(critic: Any) -> None:
    """Corrected rollouts of mean length 1/(1-gamma): 2 H, a fresh one, and exploring ones where the start asks."""
    cmdp = fc.envs.garnet(n_states=5, gamma=0.8)
    settings = fc.PDANPG(outer=2000, inner=7, critic=critic)
    assert settings.n_rollouts == 2 * 7 + 1 + (3 if critic == "control+start" else 0)
    drawn = fc.solve(cmdp, settings, seed=2, optimum=False, trace=1).run.state.samples[0]
    n = 2040 * settings.n_rollouts
    deviation = np.sqrt(n * cmdp.gamma) / (1 - cmdp.gamma)
    assert abs(drawn - settings.expected_samples(cmdp)) < 4.5 * deviation


@pytest.mark.parametrize("critic", ["control", "control+start"])
@pytest.mark.parametrize(
    ("model", "policy"),
    [
        (fc.envs.garnet(n_states=20), fc.TabularSoftmax()),
        (fc.envs.garnet(n_states=20), fc.LogLinear(np.random.default_rng(0).normal(size=(80, 6)))),
        (fc.simulators.tandem_queue(gamma=0.8), fc.LogLinear()),
    ],
    ids=["table", "features", "simulator"],
)
def test_pieces_threads_and_a_pause_change_nothing(
    model: Any, policy: Any, critic: Any, tmp_path: Any
) -> None:
    settings = fc.PDANPG(outer=12, inner=4, pilot=3, critic=critic)
    whole = cut_and_resumed(model, settings, policy, tmp_path / "run.npz")
    assert np.abs(whole.run.state.critic).max() > 0.0


def test_runs_that_were_saved_without_a_critic_load(tmp_path: Any) -> None:
    """Files of earlier versions name no critic and hold no arrays of one."""
    cmdp = fc.envs.river_swim()
    settings, path = fc.PDANPG(outer=6, inner=4, pilot=2), tmp_path / "run.npz"
    result = fc.solve(cmdp, settings)
    result.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    head = arrays["header"].tobytes().decode()
    assert ', "critic": "none"' in head
    old = head.replace(', "critic": "none"', "")
    arrays["header"] = np.frombuffer(old.encode(), np.uint8)
    for name in ("state_critic", "state_evidence", "state_direction"):
        assert arrays.pop(name).size == 0
    np.savez(path, **arrays)
    again = fc.load_run(path, cmdp)
    assert again.algorithm == settings
    np.testing.assert_array_equal(again.theta, result.theta)
    assert set(asdict(settings)) >= {"critic"}


def test_a_critic_is_a_setting_like_any_other() -> None:
    with pytest.raises(fc.SettingError, match="critic"):
        fc.PDANPG(critic="tabular")  # type: ignore[arg-type]
    with pytest.raises(fc.SettingError, match="critic"):
        fc.PDRANPG(critic="control")
    made = variant("pd-anpg?critic=control+start&dual=pi")
    assert made.settings == {"critic": "control+start", "dual": "pi"}
    brief = _brief(fc.PDANPG(critic="control", eta=0.5))
    assert brief == replace(fc.PDANPG.shortest(), critic="control")


def test_the_critic_pays() -> None:
    """Error of the last quarter at 1e6 transitions on twenty states: without, with, and with the start (seed 0)."""
    cmdp = fc.envs.garnet(n_states=20)
    errors = []
    for critic in ("none", "control", "control+start"):
        settings = fc.PDANPG.for_samples(cmdp, 1e6, critic=critic)
        late = fc.solve(cmdp, settings, replicates=2, seed=0).last_quarter
        errors.append(float(np.abs(late.gap).max()))
    assert errors[2] < errors[1] < errors[0]
