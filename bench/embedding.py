"""What it costs to call fastcmdp's kernels from elsewhere, on one thread.

    python bench/embedding.py [--envs 16 100 1000] [--rounds 15]

Every figure is a ratio of medians over rounds in which the sides take turns, so that what else the machine does hits
all. Compilation stands before.

- transitions a second of `to_gymnasium_vector` on FrozenLake-v1, beside Gymnasium's SyncVectorEnv of FrozenLake-v1 with
  as many environments and the same actions;
- nanoseconds of `embed.step` in a user's njit loop, beside the same loop written out by hand on the same arrays, and
  beside calls of the C function through its pointer.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numba import njit

import fastcmdp as fc
from fastcmdp import embed

N_STEPS = 2_000_000


def medians(rounds: int, *sides: Callable[[], object]) -> list[float]:
    """Median seconds of each side, in turns; the first turn is thrown away."""
    seconds: list[list[float]] = [[] for _ in sides]
    for r in range(rounds + 1):
        for side, taken in zip(sides, seconds, strict=True):
            begin = time.perf_counter()
            side()
            if r:
                taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in seconds]


def vectors(n_envs: int, rounds: int) -> None:
    cmdp = fc.envs.from_gymnasium("FrozenLake-v1", start="environment")
    ours = fc.envs.to_gymnasium_vector(cmdp, n_envs, unavailable="first")
    theirs = SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * n_envs)
    actions = np.random.default_rng(0).integers(0, 4, (200, n_envs))
    ours.reset(seed=0)
    theirs.reset(seed=0)

    def go(envs: gymnasium.vector.VectorEnv, n_steps: int) -> None:
        for row in actions[:n_steps]:
            envs.step(row)

    slow_steps = min(max(1, 5000 // n_envs), len(actions))
    fast, slow = medians(rounds, lambda: go(ours, len(actions)), lambda: go(theirs, slow_steps))
    fast_rate, slow_rate = len(actions) * n_envs / fast, slow_steps * n_envs / slow
    print(
        f"{n_envs} environments: {fast_rate / 1e6:.1f} M transitions/s, SyncVectorEnv {slow_rate / 1e6:.3f} M: "
        f"{fast_rate / slow_rate:.0f} times"
    )


@njit
def pieces(model, policy, rng, n):
    q = embed.first_pair(model, policy, rng)
    total = 0.0
    for _ in range(n):
        q = embed.step(model, policy, rng, q)
        total += model.choice_signal[q, 1]
    return total


@njit(error_model="numpy")
def by_hand(branch, record, width, signal, action, rng, q, n):
    """The same draws in one function: SFC64, an alias entry for the state, one for the action."""
    u = np.uint64
    a, b, c, d = rng[0], rng[1], rng[2], rng[3]
    low, total = u(0xFFFFFFFF), 0.0
    for _ in range(n):
        word = a + b + d
        a = b ^ (b >> u(11))
        b = c + (c << u(3))
        c = ((c << u(24)) | (c >> u(40))) + word
        d += u(1)
        row = record[u(q) * width]
        x = (word >> u(32)) * (row & u(0xFFFFFF))
        e = u(3) * ((row >> u(24)) + (x >> u(32)))
        code = u(branch[e + u(2) - u((x & low) < u(branch[e]))])
        size = code & (~code + u(1))
        x = (word & low) * size
        e = u(3) * (((code ^ size) >> u(1)) + (x >> u(32)))
        q = np.int64(action[e + u(2) - u((x & low) < u(action[e]))])
        total += signal[q, 1]
    rng[0], rng[1], rng[2], rng[3] = a, b, c, d
    return total


HOST = """
#include "fastcmdp.h"
double pointers(const fcmdp_api *f, const fcmdp_model *model, const uint32_t *entry, uint64_t *rng, int64_t n) {
  int64_t q = f->first_pair(model, entry, rng);
  double total = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    q = f->step(model, entry, rng, q);
    total += fcmdp_signal(model, q, 0);
  }
  return total;
}
"""


def steps(rounds: int) -> None:
    cmdp = fc.envs.garnet(n_states=100, n_actions=4, n_branches=5, gamma=0.95, seed=0, limit=10.0)
    model = embed.from_cmdp(cmdp)
    policy = embed.policy(model, np.full(cmdp.n_choices, 0.25))
    width = np.uint64(model.words)

    def hand() -> float:
        rng = embed.stream(0, 0, 0)
        q = embed.first_pair(model, policy, rng)
        arrays = model.branch_entry, model.choice_word, width, model.choice_signal, policy.entry
        return by_hand(*arrays, rng, q, N_STEPS)

    sides: dict[str, Callable[[], float]] = {
        "by hand": hand,
        "embed.step": lambda: pieces(model, policy, embed.stream(0, 0, 0), N_STEPS),
    }
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("cc"):
            api, handed = embed.c_api(), embed.c_model(model)
            api.write_header(folder)
            source, target = Path(folder) / "host.c", Path(folder) / "host.so"
            source.write_text(HOST)
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
            call = ctypes.CDLL(str(target)).pointers
            call.restype = ctypes.c_double

            def pointers() -> float:
                rng = embed.stream(0, 0, 0)
                arguments = api.address, ctypes.addressof(handed), policy.entry.ctypes.data, rng.ctypes.data
                return float(call(*map(ctypes.c_void_p, arguments), ctypes.c_int64(N_STEPS)))

            sides["C pointer"] = pointers
        assert len({side() for side in sides.values()}) == 1  # the same numbers
        seconds = dict(zip(sides, medians(rounds, *sides.values()), strict=True))
    for name, taken in seconds.items():
        print(f"{name}: {taken / N_STEPS * 1e9:.1f} ns a step, {taken / seconds['by hand']:.2f} of by hand")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", type=int, nargs="+", default=[16, 100, 1000])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    for n_envs in arguments.envs:
        vectors(n_envs, arguments.rounds)
    steps(arguments.rounds)


if __name__ == "__main__":
    main()
