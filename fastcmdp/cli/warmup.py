"""`fastcmdp warmup`: compile every kernel once, so that later runs start at once."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

import numpy as np
import scipy

from fastcmdp import envs, simulators
from fastcmdp.algorithms import ALGORITHMS, PDNAC, Algorithm
from fastcmdp.cli.common import Json, Quiet, faults, note, print_json
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.streams import next_word
from fastcmdp.policies import BoundPolicy, LogLinear, NeuralSoftmax, Policy, ReluSoftmax, TabularSoftmax
from fastcmdp.solve import solve
from fastcmdp.streams import streams
from fastcmdp.tables import build_actions, build_tables
from fastcmdp.worlds import TableWorld


def warmup(json: Json = False, quiet: Quiet = False) -> None:
    """Compile and cache every kernel for every kind of policy; later processes take them from the cache.

    A process for each processor at hand, up to eight, takes one kind after the other. Two things are left to their
    first use: pieces for other people's code (``fastcmdp.embed``), which are compiled with that code or by
    ``embed.c_api()``; and methods without a critic on a model with features and more states than an outer step draws.
    """
    with faults():
        began, seconds, names = time.perf_counter(), {}, list(jobs())
        with ProcessPoolExecutor(
            min(8, len(os.sched_getaffinity(0))),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_DFL),  # Ctrl-C ends them at once
        ) as pool:
            for name, seconds[name] in zip(names, pool.map(_time, names), strict=True):
                if not quiet:
                    note(f"{name}: {seconds[name]:.1f} s")
        total, folder = time.perf_counter() - began, os.path.dirname(pd_anpg.advance.stats.cache_path)
        if json:
            print_json({"seconds": total, "kernels": seconds, "cache": folder})
        else:
            print(f"all kernels ready in {total:.1f} s, cached in {folder}")


def _time(name: str) -> float:
    """Do one job; seconds it took."""
    began = time.perf_counter()
    jobs()[name]()
    return time.perf_counter() - began


@cache  # a process does many of them, and the simulator's functions are compiled with it
def jobs() -> dict[str, Callable[[], object]]:
    """What to call, once for each combination of types; shapes and the number of constraints do not matter."""
    cmdp = envs.river_swim(n_states=3, limit=1.0)
    identity = np.eye(cmdp.n_choices)
    kinds: dict[str, Policy] = {
        "tabular": TabularSoftmax(),
        "log-linear, dense": LogLinear(identity),
        "log-linear, sparse": LogLinear(scipy.sparse.csr_array(identity)),
        "neural": NeuralSoftmax(choice_features=identity, hidden=(2,)),
        "relu": ReluSoftmax(identity, width=2),
    }
    queue = simulators.marketing(levels=2)
    live: dict[str, Policy] = {
        "log-linear, simulator": LogLinear(),
        "neural, simulator": NeuralSoftmax(hidden=(2,)),
    }
    runs: dict[str, Callable[[], object]] = {
        f"{algorithm.name}, {kind}": partial(
            solve, cmdp, algorithm.shortest(), policy=policy, optimum=False, trace=1
        )
        for algorithm in ALGORITHMS.values()
        for kind, policy in kinds.items()
        if _takes(algorithm, policy.bind(cmdp))
    }
    runs |= {
        f"{algorithm.name}, {kind}": partial(solve, queue, algorithm.shortest(), policy=policy, trace=1)
        for algorithm in ALGORITHMS.values()
        for kind, policy in live.items()
        if algorithm.simulation and _takes(algorithm, policy.bind(queue))
    }
    return runs | {"kernels that no run calls": partial(_uncalled, cmdp)}


def _takes(algorithm: type[Algorithm], policy: BoundPolicy) -> bool:
    try:
        algorithm.check_policy(policy)
    except SettingError:
        return False
    return True


def _uncalled(cmdp: CMDP) -> None:
    tables = build_tables(cmdp)
    build_actions(tables, np.full(cmdp.n_choices, 0.5))
    next_word(streams(seed=0, replicates=1)[0], 0)
    PDNAC.shortest().run(
        TableWorld.of(cmdp, TabularSoftmax()), 0, 1
    ).policies()  # theta_k in the middle of a run
    with contextlib.suppress(ModelError):  # gymnasium is not installed
        environments = envs.to_gymnasium_vector(
            cmdp, 1, autoreset="SameStep", time_limit=1, unavailable="first"
        )
        environments.reset(seed=0)
        environments.step(np.zeros(1, np.int64))
