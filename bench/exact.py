"""Exact control: what an optimum costs in products of the transition matrix, and beside other solvers.

    python bench/exact.py [--only "NAME; ..."] [--peers] [--sizes 1e4,1e5] [--threads 1]
    python bench/exact.py --targets [--small]

The unit is m, the least time of 60 of SciPy's ``P @ v`` on the same model, one thread, taken before and after in the
same process; seconds are the processor's. Garnets have 4 actions and 5 branches. With ``--peers``: the unconstrained
problem at gamma 0.95, values to 1e-6 by each solver's own proof, seconds of the wall without building the model; a peer
that is not installed is named as absent. With ``--targets``, within fifteen minutes: what has a figure to reach, beside
the figure (``exact_targets.py``).
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcmdp as fc
from fastcmdp.exact import sweeps
from fastcmdp.exact.control import Control

GAMMA = 0.95
TOLERANCE = 1e-6


def ring(n: int = 20_000, gamma: float = 0.99) -> fc.CMDP:
    """Left, stay or right on a ring, each with slips of 0.1 to the other two; random rewards and costs."""
    rng = np.random.default_rng(0)
    s = np.arange(n)
    columns = np.concatenate([(s - 1) % n, s, (s + 1) % n])

    def moves(*shares: float) -> Any:
        return sp.csr_array((np.repeat(shares, n), (np.tile(s, 3), columns)), shape=(n, n))

    tables = [moves(0.8, 0.1, 0.1), moves(0.1, 0.8, 0.1), moves(0.1, 0.1, 0.8)]
    cmdp = fc.CMDP.from_arrays(tables, rng.random((n, 3)), rng.random((n, 3)), gamma=gamma, limits=0.0)
    return cmdp.with_limits(0.8 * fc.evaluate(cmdp, np.full(cmdp.n_choices, 1 / 3)).constraints)


def grid(side: int = 1_000, gamma: float = 0.99) -> fc.CMDP:
    """Four moves on a square, slips of 0.05 to each side; a goal in one corner, hazards on a fifth of the cells."""
    rng = np.random.default_rng(0)
    s = np.arange(side * side)
    x, y = s // side, s % side
    to = [
        np.maximum(x - 1, 0) * side + y,
        np.minimum(x + 1, side - 1) * side + y,
        x * side + np.maximum(y - 1, 0),
        x * side + np.minimum(y + 1, side - 1),
    ]
    rows, columns = np.tile(s, 4), np.concatenate(to)
    tables = [
        sp.csr_array((np.repeat(np.where(np.arange(4) == a, 0.85, 0.05), len(s)), (rows, columns)))
        for a in range(4)
    ]
    hazard = (rng.random(len(s)) < 0.2).astype(float)
    cmdp = fc.CMDP.from_arrays(tables, (s == len(s) - 1).astype(float), hazard, gamma=gamma, limits=0.0)
    return cmdp.with_limits(0.7 * fc.evaluate(cmdp, np.full(cmdp.n_choices, 0.25)).constraints)


def _rows(cases: list[tuple[float, Any]]) -> Any:
    """A table of moves: with a probability each, every state goes to one of the targets."""
    n = len(cases[0][1])
    rows = np.tile(np.arange(n), len(cases))
    return sp.csr_array(
        (np.repeat([p for p, _ in cases], n), (rows, np.concatenate([to for _, to in cases]))), shape=(n, n)
    )


def tandem(capacity: int = 999, gamma: float = 0.99) -> fc.CMDP:
    """Two queues in a row, one event a slot; arrivals are admitted or turned away. Reward of admission against the
    number held."""
    side = capacity + 1
    a, b = np.divmod(np.arange(side**2), side)
    moved = np.where((a > 0) & (b < capacity), (a - 1) * side + b + 1, a * side + b)
    served = a * side + np.maximum(b - 1, 0)
    tables = [
        _rows(
            [(0.3, np.where(admit, np.minimum(a + 1, capacity), a) * side + b), (0.4, moved), (0.3, served)]
        )
        for admit in (False, True)
    ]
    reward = np.column_stack((np.zeros(side**2), 0.3 * (a < capacity)))
    held = np.column_stack((a + b, a + b)) / (2.0 * capacity)
    cmdp = fc.CMDP.from_arrays(tables, reward, held, gamma=gamma, start=0, limits=0.0)
    least, most = (fc.evaluate(cmdp, np.tile(pi, side**2)).constraints for pi in ([1.0, 0.0], [0.0, 1.0]))
    return cmdp.with_limits(0.5 * (least + most))


def inventories(capacity: int = 999, gamma: float = 0.95) -> fc.CMDP:
    """Two goods on shelves, of which two are asked for or none, each with probability 1/2; five more of either may be
    ordered. Profit against goods left on the shelves."""
    side = capacity + 1
    x, y = np.divmod(np.arange(side**2), side)
    tables, profits = [], []
    for more_x in (0, 5):
        for more_y in (0, 5):
            up, across = np.minimum(x + more_x, capacity), np.minimum(y + more_y, capacity)
            ways = [(i, j) for i in (0, 2) for j in (0, 2)]
            tables.append(
                _rows([(0.25, np.maximum(up - i, 0) * side + np.maximum(across - j, 0)) for i, j in ways])
            )
            sold = 0.5 * (np.minimum(up, 2) + np.minimum(across, 2))
            profits.append(sold - 0.4 * (up - x + across - y))
    shelves = np.tile(((x + y) / (2.0 * capacity))[:, None], (1, 4))
    cmdp = fc.CMDP.from_arrays(tables, np.column_stack(profits), shelves, gamma=gamma, limits=0.0)
    wanted = 2 * (x == 0) + (y == 0)  # the actions are: none, y, x, both
    none, empty = (
        fc.evaluate(cmdp, np.eye(4)[actions].ravel()).constraints for actions in (0 * wanted, wanted)
    )
    return cmdp.with_limits(0.5 * (none + empty))


def garnet(n_states: float, gamma: float = GAMMA, m: int = 1) -> fc.CMDP:
    return fc.envs.garnet(n_states=int(n_states), gamma=gamma, seed=1, n_constraints=m)


MODELS: dict[str, Callable[[], fc.CMDP]] = {
    "garnet 1e4": lambda: garnet(1e4),
    "garnet 1e5": lambda: garnet(1e5),
    "garnet 3e4, gamma 0.99": lambda: garnet(3e4, 0.99),
    "garnet 1e5, two constraints": lambda: garnet(1e5, m=2),
    "ring 2e4": ring,
    "grid 300 x 300": lambda: grid(300),
    "grid 1000 x 1000": grid,
    "two queues in a row, 1e6": tandem,
    "stocks of two goods, 1e6": inventories,
    "garnet 1e6": lambda: garnet(1e6),
}


def product(cmdp: fc.CMDP) -> float:
    """m, in seconds."""
    matrix, vector = cmdp.transition_matrix(), np.random.default_rng(0).random(cmdp.n_states)

    def once() -> float:
        begun = time.perf_counter()
        matrix @ vector
        return time.perf_counter() - begun

    return min(once() for _ in range(60))


def ours(names: list[str]) -> None:
    print(f"{'model':30}{'m, ms':>8}{'seconds':>9}{'in m':>7}  reward, multipliers, gap")
    for name in names:
        cmdp = MODELS[name]()
        before = product(cmdp)
        begun = time.process_time()
        best = fc.optimum(cmdp)
        seconds = time.process_time() - begun
        m = min(before, product(cmdp))
        duals = ", ".join(f"{dual:.6g}" for dual in best.duals)
        print(
            f"{name:30}{1e3 * m:8.2f}{seconds:9.2f}{seconds / m:7.0f}  {best.reward:.7g}, {duals}, {best.gap:.1e}"
        )
        if name == "garnet 1e4":
            begun = time.process_time()
            fc.frontier(cmdp)
            again = time.process_time() - begun
            print(
                f"{'  200 points of its frontier':30}{'':8}{again:9.2f}{again / m:7.0f}  {again / seconds:.1f} optima"
            )


def peers(sizes: list[float]) -> None:
    print(f"{'states':>9}  {'solver':28}{'seconds':>9}{'ours is':>9}  largest difference of values")
    for size in sizes:
        cmdp = garnet(size)
        reward = np.ascontiguousarray(cmdp.signals[:, :1])
        relative = TOLERANCE * (1 - cmdp.gamma)
        seconds, response = timed(lambda: Control(cmdp).respond(reward, np.ones(1), relative=relative))  # noqa: B023
        print(f"{cmdp.n_states:9,}  {'fastcmdp':28}{seconds:9.3f}")
        for name, solve in PEERS.items():
            try:
                taken, values = solve(cmdp)
            except ImportError as error:
                print(f"{cmdp.n_states:9,}  {name:28}   absent: {error}")
                continue
            off = np.abs(np.asarray(values) - response.values[:, 0]).max()
            print(f"{cmdp.n_states:9,}  {name:28}{taken:9.3f}{taken / seconds:8.1f}x  {off:.1e}")


def timed(call: Callable[[], Any], times: int = 5) -> tuple[float, Any]:
    """Seconds, the least of so many where they are short, and what was returned."""
    least = np.inf
    for _ in range(times):
        begun = time.perf_counter()
        found = call()
        least = min(least, time.perf_counter() - begun)
        if least > 1.0:
            break
    return least, found


def quantecon(method: str) -> Callable[[fc.CMDP], tuple[float, Any]]:
    def solve(cmdp: fc.CMDP) -> tuple[float, Any]:
        ddp = importlib.import_module("quantecon.markov").DiscreteDP
        if method == "pi":
            _small(cmdp, "factors of a random graph take minutes", 3_000)
        small = ddp(np.ones(2), sp.csr_matrix(np.ones((2, 1))), 0.9, [0, 0], [0, 1])
        small.solve(method=method)  # compiles
        problem = ddp(
            cmdp.signals[:, 0].copy(),
            sp.csr_matrix(cmdp.transition_matrix()),
            cmdp.gamma,
            cmdp.choice_state.astype(np.int64),
            cmdp.action_of_choice.astype(np.int64),
        )
        taken, found = timed(lambda: problem.solve(method=method, epsilon=TOLERANCE, max_iter=100_000))
        return taken, found.v

    return solve


def storm(cmdp: fc.CMDP) -> tuple[float, Any]:
    """Discounting as moves to a state at which all ends."""
    stormpy = importlib.import_module("stormpy")
    _small(cmdp, "its model is built in Python loops", 200_000)
    done, lines = cmdp.n_states, ["@type: MDP", "@parameters", "", "@reward_models", "gain"]
    lines += ["@nr_states", str(done + 1), "@nr_choices", str(cmdp.n_choices + 1), "@model"]
    for s in range(done):
        lines.append(f"state {s} [0]" + " init" * (s == 0))
        for a, q in enumerate(range(cmdp.state_to_choice[s], cmdp.state_to_choice[s + 1])):
            lines.append(f"\taction {a} [{float(cmdp.signals[q, 0])!r}]")
            lot = slice(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1])
            moves = sorted(zip(cmdp.branch_target[lot].tolist(), cmdp.branch_prob[lot].tolist(), strict=True))
            lines += [f"\t\t{t} : {cmdp.gamma * p!r}" for t, p in moves]
            lines.append(f"\t\t{done} : {1 - cmdp.gamma!r}")
    lines += [f"state {done} [0] done", "\taction 0 [0]", f"\t\t{done} : 1"]
    with tempfile.NamedTemporaryFile("w", suffix=".drn") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        model = stormpy.build_model_from_drn(file.name)
    (wanted,) = stormpy.parse_properties('R{"gain"}max=? [F "done"]')
    at = importlib.import_module("stormpy.environments").default(model)  # sound: values with bounds
    bound = at.solver().min_max()
    bound.precision, bound.relative_termination_criterion = stormpy.Rational(str(TOLERANCE)), False
    taken, found = timed(
        lambda: stormpy.model_checking(model, wanted, only_initial_states=False, environment=at)
    )
    return taken, [found.get_value(s) for s in range(done)]


def _small(cmdp: fc.CMDP, why: str, most: int) -> None:
    if cmdp.n_states > most:
        raise ImportError(f"{why} at this size")


def toolbox(cmdp: fc.CMDP) -> tuple[float, Any]:
    _small(cmdp, "takes minutes", 3_000)

    mdp = importlib.import_module("mdptoolbox.mdp")
    n_actions = cmdp.n_actions
    matrix = sp.csr_matrix(cmdp.transition_matrix())
    tables = [matrix[a::n_actions] for a in range(n_actions)]
    reward = cmdp.signals[:, 0].reshape(-1, n_actions).copy()
    problem = mdp.PolicyIterationModified(tables, reward, cmdp.gamma, epsilon=TOLERANCE)
    taken, _ = timed(problem.run, 1)
    return taken, problem.V


def mdpsolver(cmdp: fc.CMDP) -> tuple[float, Any]:
    module = importlib.import_module("mdpsolver")
    shape = (cmdp.n_states, cmdp.n_actions, -1)
    least = np.inf
    for _ in range(3):  # models anew: one that has been solved begins at its solution
        model = module.model()
        model.mdp(
            discount=cmdp.gamma,
            rewards=cmdp.signals[:, 0].reshape(shape[:2]).tolist(),
            tranMatProbs=cmdp.branch_prob.reshape(shape).tolist(),
            tranMatColumns=cmdp.branch_target.reshape(shape).tolist(),
        )
        taken, _ = timed(lambda: model.solve(algorithm="mpi", tolerance=TOLERANCE), 1)  # noqa: B023
        least = min(least, taken)
    return least, model.getValueVector()


def highs(cmdp: fc.CMDP) -> tuple[float, Any]:
    from scipy.optimize import linprog

    _small(cmdp, "takes minutes", 3_000)
    owner = sp.csr_array(
        (np.ones(cmdp.n_choices), (np.arange(cmdp.n_choices), cmdp.choice_state)),
        shape=(cmdp.n_choices, cmdp.n_states),
    )
    system = cmdp.gamma * cmdp.transition_matrix() - owner
    taken, found = timed(
        lambda: linprog(
            np.full(cmdp.n_states, 1 / cmdp.n_states), A_ub=system, b_ub=-cmdp.signals[:, 0], bounds=(None, None),
            method="highs",
        )
    )  # fmt: skip
    return taken, found.x


PEERS: dict[str, Callable[[fc.CMDP], tuple[float, Any]]] = {
    "QuantEcon, mod. policy it.": quantecon("mpi"),
    "QuantEcon, policy iteration": quantecon("pi"),
    "pymdptoolbox, mod. policy it.": toolbox,
    "MDPSolver, mod. policy it.": mdpsolver,
    "Storm, Rmax=? [F done]": storm,
    "HiGHS on the programme": highs,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--targets", action="store_true")
    parser.add_argument("--small", action="store_true", help="--targets at a hundredth of the sizes")
    parser.add_argument("--line", help=argparse.SUPPRESS)  # of --targets, in this process
    parser.add_argument("--sizes", default="1e4,1e5")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.targets or given.line:
        lines = importlib.import_module("exact_targets")
        return lines.measure(given.line, given.small) if given.line else lines.targets(given.small)
    sweeps.available_threads = lambda: given.threads
    fc.optimum(garnet(300))  # loads the kernels
    fc.optimum(ring(300))
    if given.peers:
        peers([float(size) for size in given.sizes.split(",")])
    else:
        ours([name.strip() for name in given.only.split(";")] if given.only else list(MODELS))


if __name__ == "__main__":
    main()
