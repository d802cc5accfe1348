"""fastcmdp's sampler and whole runs beside what a user would pick instead, in one process, interleaved.

    python bench/peers.py [--quick] [--json FILE|-] [--only S,...] [--threads 1]

Work: the batch sampler of Algorithm 1 under a fixed random policy (A = 4; S = 10 and 100 dense, larger ones with
5 branches), in nanoseconds a transition. Peers that walk chains only (QuantEcon, NumPy, Python, Gymnasium)
are timed on plain steps, which is less work. Every round times each peer once; the table shows medians over
rounds, and ratios are medians of the ratios within a round. A peer that is not installed is named as absent.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SIZES = {10: None, 100: None, 1000: 5, 100_000: 5, 1_000_000: 5}
GAMMAS = (0.99, 0.9)
N_ACTIONS = 4


def compiled(name: str, folder: str) -> ctypes.CDLL | None:
    """Build a C file with the system's compiler; None where there is none."""
    library = Path(folder) / f"{name}.so"
    command = [
        "cc",
        "-O2" if name == "lanes" else "-O3",  # whichever is faster
        "-march=native",
        "-shared",
        "-fPIC",
        str(HERE / "csrc" / f"{name}.c"),
        "-o",
        str(library),
        "-lm",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"no C peer {name}: {error}", file=sys.stderr)
        return None
    return ctypes.CDLL(str(library))


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Structure(ctypes.Structure):
    """A C struct filled from arrays (kept alive) and numbers."""

    def __init__(self, *values: Any) -> None:
        self.alive = values
        super().__init__(*[v if isinstance(v, int | float) else v.ctypes.data for v in values])


def structure(*kinds: type) -> type[Structure]:
    return type("Model", (Structure,), {"_fields_": [(f"field_{i}", kind) for i, kind in enumerate(kinds)]})


P, N, D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
ScalarModel = structure(P, P, P, P, P, P, P, P, P, P, P, N, D)
LanesModel = structure(P, P, P, P, P, P, N, N, D)


@dataclass
class Peer:
    """Something to time: ``run(n)`` does n units of work and returns the transitions made."""

    name: str
    run: Callable[[int], int]
    n: int = 1
    times: list[float] = field(default_factory=list)

    def calibrate(self, seconds: float) -> None:
        """Choose the amount of work that takes about this long; the first call compiles."""
        self.run(self.n)
        while True:
            began = time.perf_counter()
            self.run(self.n)
            took = time.perf_counter() - began
            if took > seconds / 2:
                return
            self.n = max(self.n + 1, int(self.n * min(8.0, seconds / max(took, 1e-6))))

    def time(self) -> float:
        began = time.perf_counter()
        transitions = self.run(self.n)
        nanoseconds = (time.perf_counter() - began) * 1e9 / transitions
        self.times.append(nanoseconds)
        return nanoseconds


@dataclass
class Case:
    """A model, a policy and gamma."""

    cmdp: Any
    prob: Any
    gamma: float


def make_case(n_states: int, branches: int | None, gamma: float) -> Case:
    import numpy as np

    import fastcmdp as fc

    cmdp = fc.envs.garnet(
        n_states=n_states,
        n_actions=N_ACTIONS,
        n_branches=branches,
        gamma=gamma,
        seed=0,
        limit=0.5 / (1 - gamma),
    )
    prob = np.random.default_rng(1).exponential(size=(n_states, N_ACTIONS))
    return Case(cmdp, (prob / prob.sum(axis=1, keepdims=True)).ravel(), gamma)


def ours(case: Case) -> Peer:
    import fastcmdp as fc
    from fastcmdp.kernels.algorithm.pd_anpg import sample_batch
    from fastcmdp.streams import streams
    from fastcmdp.tables import build_actions, build_tables
    from fastcmdp.worlds import TableWorld

    tables = build_tables(case.cmdp)
    actions = build_actions(tables, case.prob)
    rng = streams(0, 1)[0]
    works: dict[int, Any] = {}

    def run(n: int) -> int:
        if n not in works:
            problem = TableWorld(case.cmdp, tables, fc.TabularSoftmax().bind(case.cmdp))
            works.clear()
            works[n] = fc.PDANPG(inner=n).run(problem, 0, 0).work()
        return int(sample_batch(tables, actions, rng, n, False, works[n]))

    def replay(n: int) -> list[bytes]:
        nonlocal rng
        rng = streams(7, 1)[0]
        run(n)
        work = works[n]
        return [a.tobytes() for a in (work.pair[:n], work.occupancy_total[:n], work.advantage, rng)]

    peer = Peer("fastcmdp", run, 64)
    peer.replay = replay  # type: ignore[attr-defined]
    peer.tables, peer.actions = tables, actions  # type: ignore[attr-defined]
    return peer


def c_scalar(case: Case, library: ctypes.CDLL) -> Peer:
    import numpy as np

    cmdp = case.cmdp

    def alias(weight: Any, offsets: Any) -> tuple[Any, Any]:
        accept, other = np.empty(len(weight)), np.zeros(len(weight), np.int32)
        vose(weight, offsets, accept, other)
        position = np.arange(len(weight)) - np.repeat(offsets[:-1], np.diff(offsets))
        coin = np.minimum(accept * 2.0**32, 2.0**32 - 1).astype(np.uint32)
        return coin, (other - position).astype(np.int32)

    branch, action = alias(cmdp.branch_prob, cmdp.choice_to_branch), alias(case.prob, cmdp.state_to_choice)
    start = alias(cmdp.start, np.array([0, cmdp.n_states]))
    model = ScalarModel(
        cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, branch[0], action[0], start[0],
        branch[1], action[1], start[1], np.ascontiguousarray(cmdp.signals), cmdp.choice_state, cmdp.n_states,
        1 / np.log(case.gamma),
    )  # fmt: skip
    rng = np.array([1, 2, 3, 4], np.uint64)
    library.sample_batch.restype = N

    def run(n: int) -> int:
        pair, occupancy, advantage = np.empty(n, np.int64), np.empty((n, 2)), np.empty((n, 2))
        return int(
            library.sample_batch(
                ctypes.byref(model), N(n), pointer(rng), pointer(pair), pointer(occupancy), pointer(advantage)
            )
        )

    return Peer("c_scalar", run, 64)


def c_lanes(case: Case, library: ctypes.CDLL, base: Peer) -> Peer:
    import numpy as np

    from fastcmdp.streams import streams

    tables, actions = base.tables, base.actions  # type: ignore[attr-defined]
    model = LanesModel(
        tables.start_entry, tables.branch_entry, actions.entry, tables.choice_word, tables.choice_state,
        tables.state_row, tables.words, len(tables.start_entry) // 3, tables.log_gamma_inverse,
    )  # fmt: skip
    library.sample_batch.restype = N
    rng = streams(7, 1)[0]
    spaces: dict[int, list[Any]] = {}

    def run(n: int) -> int:
        if n not in spaces:
            spaces.clear()
            spaces[n] = [
                np.empty(2 * n, np.int64), np.empty(2 * n, np.uint32), np.empty(n, np.int64),
                np.empty(2 * n, np.int64), np.empty((n, 2)), np.empty((2 * n, 2)), np.empty((n, 2)),
            ]  # fmt: skip
        arguments = [pointer(a) for a in spaces[n]]
        return int(library.sample_batch(ctypes.byref(model), N(n), pointer(rng), *arguments))

    run(50)
    mine = [a.tobytes() for a in (spaces[50][2], spaces[50][4], spaces[50][6], rng)]
    if mine != base.replay(50):  # type: ignore[attr-defined]
        raise AssertionError("c_lanes and fastcmdp draw differently from the same streams")
    return Peer("c_lanes", run, 64)


def vose(weight: Any, offsets: Any, accept: Any, alias: Any) -> None:
    """Alias tables of all rows (compiled: rows are many)."""
    from numba import njit

    @njit
    def fill(weight: Any, offsets: Any, accept: Any, alias: Any) -> None:
        for row in range(len(offsets) - 1):
            first, n = offsets[row], offsets[row + 1] - offsets[row]
            small = [0 for _ in range(0)]
            large = [0 for _ in range(0)]
            for i in range(n):
                accept[first + i] = weight[first + i] * n
                alias[first + i] = i
                if accept[first + i] < 1:
                    small.append(i)
                else:
                    large.append(i)
            while small and large:
                i, j = small.pop(), large[-1]
                alias[first + i] = j
                accept[first + j] -= 1 - accept[first + i]
                if accept[first + j] < 1:
                    small.append(large.pop())

    fill(weight, offsets, accept, alias)


def chain_tables(case: Case) -> tuple[Any, Any]:
    """Dense cumulative rows (C, S) of the transitions and (S, A) of the policy."""
    import numpy as np

    cumulative = np.cumsum(case.cmdp.transition_matrix().toarray(), axis=1)
    cumulative[:, -1] = 1.0
    actions = np.cumsum(case.prob.reshape(-1, N_ACTIONS), axis=1)
    actions[:, -1] = 1.0
    return cumulative, actions


def jax_chains(case: Case, chains: int = 16_384, length: int = 64) -> Peer:
    """A jitted scan over many chains, single precision: action, next state, both signals added up, and with
    probability 1 - gamma the rollout ends, its sums are kept and the chain starts anew (as Algorithm 1 needs)."""
    import jax
    import jax.numpy as jnp

    cumulative, actions = (jnp.asarray(x, jnp.float32) for x in chain_tables(case))
    signals = jnp.asarray(case.cmdp.signals, jnp.float32)
    n_states = cumulative.shape[1]

    def step(carry: Any, key: Any) -> Any:
        state, total, kept = carry
        u = jax.random.uniform(key, (3, chains))
        action = jax.vmap(jnp.searchsorted)(actions[state], u[0])
        choice = state * N_ACTIONS + jnp.minimum(action, N_ACTIONS - 1)
        total = total + signals[choice]
        moved = jnp.minimum(jax.vmap(jnp.searchsorted)(cumulative[choice], u[1]), n_states - 1)
        ends = u[2] >= case.gamma
        first = ((u[2] - case.gamma) / (1 - case.gamma) * n_states).astype(jnp.int32)  # uniform start
        kept = kept + jnp.where(ends[:, None], total, 0)
        return (jnp.where(ends, first, moved), jnp.where(ends[:, None], 0, total), kept), None

    @jax.jit
    def walk(key: Any) -> Any:
        zero = jnp.zeros((chains, 2), jnp.float32)
        first = (jnp.zeros(chains, jnp.int32), zero, zero)
        return jax.lax.scan(step, first, jax.random.split(key, length))[0]

    keys = iter(range(1 << 30))

    def run(n: int) -> int:
        for _ in range(n):
            jax.block_until_ready(walk(jax.random.PRNGKey(next(keys))))
        return n * chains * length

    return Peer("jax", run)


def quantecon_chain(case: Case) -> Peer:
    """MarkovChain.simulate of the chain that the policy induces: no actions, no signals."""
    import numpy as np
    import quantecon as qe
    import scipy.sparse as sp

    weights = sp.csr_array(
        (case.prob, np.arange(case.cmdp.n_choices), case.cmdp.state_to_choice),
        shape=(case.cmdp.n_states, case.cmdp.n_choices),
    )
    matrix = weights @ case.cmdp.transition_matrix()
    chain = qe.MarkovChain(matrix.toarray() if case.cmdp.n_states <= 100 else sp.csr_matrix(matrix))
    length = 100_000

    def run(n: int) -> int:
        for k in range(n):
            chain.simulate(length, init=0, random_state=k)
        return n * length

    return Peer("quantecon", run)


def numpy_vectorised(case: Case, chains: int = 16_384, length: int = 16) -> Peer:
    """Alias draws for many chains at once in NumPy."""
    import numpy as np

    cmdp = case.cmdp
    tables = []
    for weight, offsets in ((cmdp.branch_prob, cmdp.choice_to_branch), (case.prob, cmdp.state_to_choice)):
        accept, alias = np.empty(len(weight)), np.zeros(len(weight), np.int32)
        vose(weight, offsets, accept, alias)
        tables.append((accept, alias, offsets, np.diff(offsets)))
    rng = np.random.Generator(np.random.SFC64(0))

    def draw(table: Any, row: Any) -> Any:
        accept, alias, offsets, length = table
        x = rng.random(chains) * length[row]
        i = x.astype(np.int64)
        e = offsets[row] + i
        return offsets[row] + np.where(x - i < accept[e], i, alias[e])

    def run(n: int) -> int:
        state = np.zeros(chains, np.int64)
        total = np.zeros((chains, 2))
        for _ in range(n * length):
            choice = draw(tables[1], state)
            total += cmdp.signals[choice]
            state = cmdp.branch_target[draw(tables[0], choice)]
        return n * length * chains

    return Peer("numpy_vectorised", run)


def python_loop(case: Case, length: int = 1_000) -> Peer:
    """rng.choice in a loop, as most published code does."""
    import numpy as np

    rng = np.random.default_rng(0)
    policy = case.prob.reshape(-1, N_ACTIONS)
    cmdp = case.cmdp

    def run(n: int) -> int:
        s, total = 0, np.zeros(2)
        for _ in range(n * length):
            q = s * N_ACTIONS + rng.choice(N_ACTIONS, p=policy[s])
            total += cmdp.signals[q]
            row = slice(cmdp.choice_to_branch[q], cmdp.choice_to_branch[q + 1])
            s = rng.choice(cmdp.branch_target[row], p=cmdp.branch_prob[row])
        return n * length

    return Peer("python_loop", run)


def gymnasium_steps(length: int = 1_000) -> Peer:
    """Random actions in FrozenLake-v1."""
    import gymnasium

    env = gymnasium.make("FrozenLake-v1")

    def run(n: int) -> int:
        env.reset(seed=0)
        for _ in range(n * length):
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
        return n * length

    return Peer("gymnasium", run)


def runs(gamma: float = 0.95, inner: int = 100) -> list[Peer]:
    """Whole PD-ANPG runs on a dense 100-state model, H = 100; nanoseconds a transition, everything included."""
    import fastcmdp as fc

    case = make_case(100, None, gamma)
    began = fc.PDANPG(inner=inner, outer=1_000_000, pilot=0)
    result = {}

    def mine(n: int) -> int:
        from fastcmdp.policies import TabularSoftmax
        from fastcmdp.worlds import TableWorld

        if not result:
            problem = TableWorld.of(case.cmdp, TabularSoftmax())
            result["run"] = began.run(problem, 0, 1)
            result["work"] = result["run"].work()
        before = int(result["run"].state.samples[0])
        result["run"].advance(0, n, result["work"])
        return int(result["run"].state.samples[0]) - before

    peers = [Peer("fastcmdp", mine)]
    peers += present("jax", lambda: jax_run(case, inner))
    peers += present("numpy", lambda: numpy_run(case, inner))
    return peers


def numpy_run(case: Case, inner: int) -> Peer:
    """PD-ANPG as one would vectorise it in NumPy: all rollouts of an outer step side by side, then ASGD."""
    import math

    import numpy as np

    cmdp, gamma = case.cmdp, case.gamma
    cumulative = np.cumsum(cmdp.transition_matrix().toarray(), axis=1)
    cumulative[:, -1] = 1.0
    rng = np.random.default_rng(0)
    n_states, d = cmdp.n_states, cmdp.n_choices
    theta, dual = np.zeros((n_states, N_ACTIONS)), 0.0
    root = 3 * math.sqrt(5)
    alpha, beta, xi, delta = root * 2 / (0.1 + root * 2), 0.1 / 18, 1 / (root * 2), 0.1

    def action(policy: Any, s: Any) -> Any:
        return s * N_ACTIONS + (policy[s] < rng.random(len(s))[:, None]).sum(axis=1).clip(max=N_ACTIONS - 1)

    def roll(policy: Any, q: Any) -> Any:
        left = np.floor(np.log(1 - rng.random(len(q))) / math.log(gamma)).astype(int)
        made = int(left.sum())
        total = cmdp.signals[q].copy()
        q = q.copy()
        while (moving := np.flatnonzero(left > 0)).size:
            u = rng.random(len(moving))
            s = (cumulative[q[moving]] < u[:, None]).sum(axis=1)
            q[moving] = action(policy, s)
            total[moving] += cmdp.signals[q[moving]]
            left[moving] -= 1
        return q, total, made

    def run(n: int) -> int:
        nonlocal theta, dual
        transitions = 0
        for _ in range(n):
            prob = np.exp(theta - theta.max(axis=1, keepdims=True))
            prob /= prob.sum(axis=1, keepdims=True)
            policy = prob.cumsum(axis=1)
            s0 = rng.integers(n_states, size=inner + 1)
            pair, occupancy, made = roll(policy, action(policy, s0))
            transitions += made
            pair = pair[:-1]
            _, q_total, made = roll(policy, pair)
            transitions += made
            _, v_total, made = roll(policy, action(policy, pair // N_ACTIONS))
            transitions += made
            target = (q_total - v_total) @ np.array([1.0, dual]) / (1 - gamma)
            x, v, omega = np.zeros(d), np.zeros(d), np.zeros(d)
            for h in range(inner):
                g = np.zeros(d)
                row = pair[h] // N_ACTIONS
                g[row * N_ACTIONS : (row + 1) * N_ACTIONS] = -prob[row]
                g[pair[h]] += 1
                y = alpha * x + (1 - alpha) * v
                e = g @ y - target[h]
                x, v = y - delta * e * g, beta * y + (1 - beta) * v - xi * e * g
                if h >= inner // 2:
                    omega += x
            theta = theta + 1e-4 * (omega / (inner - inner // 2)).reshape(theta.shape)
            dual = max(0.0, dual - 1e-4 * occupancy[-1, 1])
        return transitions

    return Peer("numpy", run)


def jax_run(case: Case, inner: int) -> Peer:
    """PD-ANPG jitted whole: rollouts side by side in a while loop, ASGD as a scan."""
    import math

    import jax
    import jax.numpy as jnp

    cumulative = jnp.asarray(chain_tables(case)[0], jnp.float32)
    signals = jnp.asarray(case.cmdp.signals, jnp.float32)
    n_states, gamma = case.cmdp.n_states, case.gamma
    root = 3 * math.sqrt(5)
    alpha, beta, xi, delta = root * 2 / (0.1 + root * 2), 0.1 / 18, 1 / (root * 2), 0.1

    def action(policy: Any, s: Any, key: Any) -> Any:
        a = jax.vmap(jnp.searchsorted)(policy[s], jax.random.uniform(key, s.shape))
        return s * N_ACTIONS + jnp.minimum(a, N_ACTIONS - 1)

    def roll(policy: Any, q: Any, key: Any) -> Any:
        key, sub = jax.random.split(key)
        left = jnp.floor(jnp.log1p(-jax.random.uniform(sub, q.shape)) / math.log(gamma)).astype(jnp.int32)

        def body(carry: Any) -> Any:
            q, total, left, key = carry
            key, one, two = jax.random.split(key, 3)
            s = jax.vmap(jnp.searchsorted)(cumulative[q], jax.random.uniform(one, q.shape))
            moved = action(policy, jnp.minimum(s, n_states - 1), two)
            go = left > 0
            q = jnp.where(go, moved, q)
            return q, total + jnp.where(go[:, None], signals[q], 0), left - 1, key

        made = left.sum()
        q, total, *_ = jax.lax.while_loop(lambda c: (c[2] > 0).any(), body, (q, signals[q], left, key))
        return q, total, made

    def outer(carry: Any, key: Any) -> Any:
        theta, dual = carry
        keys = jax.random.split(key, 6)
        prob = jax.nn.softmax(theta, axis=1)
        policy = prob.cumsum(axis=1)
        s0 = jax.random.randint(keys[0], (inner + 1,), 0, n_states)
        pair, occupancy, one = roll(policy, action(policy, s0, keys[1]), keys[2])
        pair = pair[:-1]
        _, q_total, two = roll(policy, pair, keys[3])
        _, v_total, three = roll(policy, action(policy, pair // N_ACTIONS, keys[4]), keys[5])
        target = (q_total - v_total) @ jnp.array([1.0, dual]) / (1 - gamma)
        score = jax.nn.one_hot(pair % N_ACTIONS, N_ACTIONS) - prob[pair // N_ACTIONS]

        def asgd(carry: Any, sample: Any) -> Any:
            x, v = carry
            row, g, a = sample
            y = alpha * x + (1 - alpha) * v
            e = g @ y[row] - a
            return (y.at[row].add(-delta * e * g), (beta * y + (1 - beta) * v).at[row].add(-xi * e * g)), (
                row,
                e,
                g,
            )

        zero = jnp.zeros_like(theta)

        def averaged(carry: Any, sample: Any) -> Any:
            state, total, h = carry
            state, _ = asgd(state, sample)
            return (state, total + jnp.where(h >= inner // 2, 1.0, 0.0) * state[0], h + 1), None

        (_, total, _), _ = jax.lax.scan(averaged, ((zero, zero), zero, 0), (pair // N_ACTIONS, score, target))
        theta = theta + 1e-4 * total / (inner - inner // 2)
        dual = jnp.maximum(0.0, dual - 1e-4 * occupancy[-1, 1])
        return (theta, dual), one + two + three

    steps = 10
    advance = jax.jit(lambda carry, key: jax.lax.scan(outer, carry, jax.random.split(key, steps)))
    state: Any = (jnp.zeros((n_states, N_ACTIONS)), jnp.float32(0))
    keys = iter(range(1 << 30))

    def run(n: int) -> int:
        nonlocal state
        transitions = 0
        for _ in range(n):
            state, made = advance(state, jax.random.PRNGKey(next(keys)))
            transitions += int(made.sum())
        return transitions

    return Peer("jax", run)


def present(name: str, make: Callable[[], Peer]) -> list[Peer]:
    """The peer, or none with a word about it where its library is not installed."""
    try:
        return [make()]
    except ImportError as error:
        print(f"absent: {name} ({error})", file=sys.stderr)
        return []


def measure(peers: list[Peer], rounds: int, seconds: float) -> dict[str, Any]:
    """Interleave the peers; figures and ratios to the first."""
    for peer in peers:
        peer.calibrate(seconds)
    ratios: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        base = peers[0].time()
        for peer in peers[1:]:
            ratios[peer.name].append(base / peer.time())
    return {
        peer.name: {
            "ns": statistics.median(peer.times),
            "ours_over_it": statistics.median(ratios[peer.name]) if ratios[peer.name] else 1.0,
        }
        for peer in peers
    }


def machine() -> dict[str, Any]:
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="two sizes, one gamma, few rounds: within a minute once compiled"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write figures and ratios there; - for standard output"
    )
    parser.add_argument("--only", help="sizes, separated by commas")
    parser.add_argument("--peers", help="names, separated by commas; default: all")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=1, help="processors for every peer")
    options = parser.parse_args()
    os.sched_setaffinity(
        0, sorted(os.sched_getaffinity(0))[-options.threads :]
    )  # before any library starts threads
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sizes = (
        [int(float(s)) for s in options.only.split(",")]
        if options.only
        else list(SIZES)[: 3 if options.quick else None]
    )
    gammas = GAMMAS[:1] if options.quick else GAMMAS
    rounds = options.rounds or (5 if options.quick else 15)
    seconds = 0.02 if options.quick else 0.1
    wanted = set(options.peers.split(",")) if options.peers else None

    def pick(peers: list[Peer]) -> list[Peer]:
        return [peer for peer in peers if wanted is None or peer.name in wanted | {"fastcmdp"}]

    out: dict[str, Any] = {"machine": machine(), "sampler": [], "runs": []}
    prose = sys.stderr if options.json == "-" else sys.stdout

    def show(title: str, figures: dict[str, Any]) -> None:
        print(title, file=prose)
        for name, f in figures.items():
            print(
                f"  {name:18}{f['ns']:12.2f} ns   fastcmdp / it = {f['ours_over_it']:.4g}",
                file=prose,
                flush=True,
            )

    with tempfile.TemporaryDirectory() as folder:
        libraries = {name: compiled(name, folder) for name in ("scalar", "lanes")}
        for n_states in sizes:
            for gamma in gammas:
                case = make_case(n_states, SIZES.get(n_states, 5), gamma)
                peers = [ours(case)]
                if libraries["scalar"]:
                    peers.append(c_scalar(case, libraries["scalar"]))
                if libraries["lanes"]:
                    peers.append(c_lanes(case, libraries["lanes"], peers[0]))
                if n_states <= 1000:
                    makers: tuple[tuple[str, Callable[[], Peer]], ...] = (
                        ("jax", lambda case=case: jax_chains(case)),
                        ("quantecon", lambda case=case: quantecon_chain(case)),
                        ("numpy_vectorised", lambda case=case: numpy_vectorised(case)),
                        ("python_loop", lambda case=case: python_loop(case)),
                        ("gymnasium", gymnasium_steps),
                    )
                    for name, make in makers:
                        peers += present(name, make) if wanted is None or name in wanted else []
                figures = measure(pick(peers), rounds, seconds)
                out["sampler"].append({"states": n_states, "gamma": gamma, "peers": figures})
                show(f"sampler, S = {n_states}, gamma = {gamma}, {options.threads} thread(s)", figures)
    figures = measure(pick(runs()), rounds, seconds)
    out["runs"].append({"states": 100, "gamma": 0.95, "inner": 100, "peers": figures})
    show("whole PD-ANPG run, S = 100 dense, gamma = 0.95, H = 100", figures)
    if options.json == "-":
        print(json.dumps(out))
    elif options.json:
        Path(options.json).write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
