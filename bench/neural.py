"""NeuralSoftmax: what a score costs beside a forward and backward sweep in C, and how well it learns.

    python bench/neural.py [--only scores|learning]

Scores: 400 pairs of a 20-state garnet with 4 actions, one-hot and dense inputs, one and two layers; kernel and C
(-O2 -march=native) by turns in one process; the ratio is the median over rounds, with the extremes. The C code
computes the softmax as well (the kernel has it from the last refresh: its forward sweep stands in for that).
Learning: last quarter and mixture of the output, one-hot features, 32 tanh units, documented settings.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import fastcmdp as fc
from fastcmdp.kernels.policy.scores import collect_scores
from fastcmdp.tables import build_tables
from fastcmdp.worlds import TableWorld

HERE = Path(__file__).parent
PAIRS = 400


@njit
def collect_many(
    data: Any, theta: Any, tables: Any, actions: Any, pair: Any, scores: Any, times: int
) -> None:
    for _ in range(times):
        collect_scores(data, theta, tables, actions, pair, pair.shape[0], scores)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def score_ratio(library: Any, x: np.ndarray, hidden: tuple[int, ...], activation: Any) -> None:
    cmdp = fc.envs.garnet(n_states=20)
    policy = fc.NeuralSoftmax(x, hidden, activation).bind(cmdp)
    run = fc.PDANPG(inner=PAIRS).run(TableWorld(cmdp, build_tables(cmdp), policy), 0, 1)
    rng = np.random.default_rng(0)
    theta = run.state.theta[0]
    theta += 0.3 * rng.standard_normal(theta.shape)
    run.refresh()
    pair, scores = rng.integers(0, cmdp.n_choices, PAIRS), run.scores(PAIRS)
    state, action = cmdp.choice_state[pair].astype(np.int64), cmdp.action_of_choice[pair].astype(np.int64)
    out = np.empty_like(scores.dense)
    number = ctypes.c_int64

    def ours(times: int) -> None:
        collect_many(policy.data, theta, run.world.tables, run.actions[0], pair, scores, times)

    def c(times: int) -> None:
        for _ in range(times):
            library.scores(
                pointer(x), number(x.shape[1]), pointer(theta), number(hidden[0]),
                number(hidden[1] if len(hidden) > 1 else 0), number(cmdp.n_actions),
                ctypes.c_int(activation == "relu"), number(len(theta)), pointer(state), pointer(action),
                number(PAIRS), pointer(out),
            )  # fmt: skip

    ours(1)
    c(1)
    np.testing.assert_allclose(out, scores.dense, rtol=1e-9, atol=1e-12)
    ratios, ns = [], []
    for _ in range(31):
        began = time.perf_counter()
        ours(20)
        middle = time.perf_counter()
        c(20)
        ratios.append((middle - began) / (time.perf_counter() - middle))
        ns.append((middle - began) / 20 / PAIRS * 1e9)
    print(
        f"score, {x.shape[1]} {'one-hot' if (x == np.eye(20, x.shape[1])).all() else 'dense'} inputs, hidden {hidden}, "
        f"{activation}: {statistics.median(ns):.0f} ns, {statistics.median(ratios):.2f} times C "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
        flush=True,
    )


def scores() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "neural.so"
        source = str(HERE / "csrc" / "neural.c")
        subprocess.run(
            ["cc", "-O2", "-march=native", "-shared", "-fPIC", source, "-o", str(path), "-lm"], check=True
        )
        library = ctypes.CDLL(str(path))
        dense = np.random.default_rng(1).standard_normal((20, 20))
        for x in (np.eye(20), dense):
            for hidden in ((32,), (32, 32)):
                for activation in ("tanh", "relu"):
                    score_ratio(library, x, hidden, activation)


def learning() -> None:
    for settings in (fc.PDANPG(outer=10_000, inner=400), fc.CRPO(outer=600, inner=2000)):
        for seed in range(3):
            cmdp = fc.envs.garnet(n_states=20, seed=seed)
            result = fc.solve(cmdp, settings, policy=fc.NeuralSoftmax(np.eye(20)), replicates=2)
            best = result.optimum.reward
            late, mixture = result.last_quarter.gap / best, result.gap / best
            print(
                f"{settings.name}, garnet, seed {seed}: gap {late.max():.1%} in the last quarter, {mixture.max():.1%} "
                f"in the mixture (the worse of 2 replicates), violation {result.violation.max():.2g}, "
                f"{result.run.state.samples.mean():.2g} transitions, {result.trace.seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["scores", "learning"])
    only = parser.parse_args().only
    if only != "learning":
        scores()
    if only != "scores":
        learning()
    sys.exit(0)
