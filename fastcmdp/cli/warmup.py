"""`fastcmdp warmup`: compile every kernel once, so that later runs start at once."""

from __future__ import annotations

import time

import numpy as np
import scipy

from fastcmdp import envs
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.cli.common import Json, Quiet, faults, note, print_json
from fastcmdp.kernels import pd_anpg
from fastcmdp.policies import LogLinear, Policy, TabularSoftmax
from fastcmdp.solve import solve


def warmup(json: Json = False, quiet: Quiet = False) -> None:
    """Compile and cache every kernel for every kind of policy; later processes take them from the cache."""
    with faults():
        seconds = {}
        cmdp = envs.river_swim(n_states=3, limit=1.0)
        identity = np.eye(cmdp.n_choices)
        kinds: dict[str, Policy] = {
            "tabular": TabularSoftmax(),
            "log-linear, dense": LogLinear(identity),
            "log-linear, sparse": LogLinear(scipy.sparse.csr_array(identity)),
        }
        for algorithm in ALGORITHMS.values():
            for kind, policy in kinds.items():
                began = time.perf_counter()
                # Shapes do not matter: numba compiles once for each combination of types.
                solve(cmdp, algorithm(outer=1, inner=2), policy=policy, optimum=False, trace=1)
                took = time.perf_counter() - began
                seconds[f"{algorithm.name}, {kind}"] = took
                if not quiet:
                    note(f"{algorithm.name}, {kind}: {took:.1f} s")
        total, folder = sum(seconds.values()), pd_anpg.advance.stats.cache_path
        if json:
            print_json({"seconds": total, "kernels": seconds, "cache": folder})
        else:
            print(f"all kernels ready in {total:.1f} s, cached in {folder}")
