"""Build the two hosts with the compilers at hand, give them fastcmdp's functions, and show what they find.

    python examples/embed_c/run.py

Any way of handing over `api.address` will do: a host program that embeds Python, a plug-in of a simulator, cffi.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import fastcmdp as fc
from fastcmdp import embed

HERE = Path(__file__).parent
N_CHOICES = 24  # of machine.c
COMMANDS = {
    "machine.c": [os.environ.get("CC", "cc"), "-std=c99"],
    "estimate.cpp": [os.environ.get("CXX", "c++"), "-std=c++17", "-pthread"],
}


def library(source: str, folder: str | Path) -> ctypes.CDLL:
    """Compile a host into a folder, beside the header, and load it."""
    embed.c_api().write_header(Path(folder) / "fastcmdp.h")
    target = Path(folder) / Path(source).with_suffix(".so").name
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*COMMANDS[source], *flags, "-o", str(target), str(HERE / source), "-lm"], check=True)
    return ctypes.CDLL(str(target))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    """The address of an array's data."""
    return ctypes.c_void_p(array.ctypes.data)


def machine(host: ctypes.CDLL, seed: int, outer: int, episodes: int) -> tuple[np.ndarray, float, np.ndarray]:
    """theta, multiplier and sums of the signals that the C host finds."""
    theta, dual, total = np.empty(N_CHOICES), np.empty(1), np.empty(2)
    api = ctypes.c_void_p(embed.c_api().address)
    counts = ctypes.c_uint64(seed), ctypes.c_int64(outer), ctypes.c_int64(episodes)
    host.machine.restype = ctypes.c_int64
    status = host.machine(api, *counts, pointer(theta), pointer(dual), pointer(total))
    if status != 0:
        raise RuntimeError(f"machine.c: status {status}")
    return theta, float(dual[0]), total


def estimate(
    host: ctypes.CDLL, model: embed.Model, prob: np.ndarray, seed: int, threads: int, n: int
) -> np.ndarray:
    """J of all signals in kernel units that the C++ host finds."""
    value, handed = np.empty(model.n_signals), embed.c_model(model)
    counts = ctypes.c_uint64(seed), ctypes.c_int64(threads), ctypes.c_int64(n)
    api = ctypes.c_void_p(embed.c_api().address)
    host.estimate.restype = ctypes.c_int64
    status = host.estimate(api, ctypes.byref(handed), pointer(prob), *counts, pointer(value))
    if status != 0:
        raise RuntimeError(f"estimate.cpp: status {status}")
    return value


def main(outer: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        episodes = 20_000
        theta, dual, total = machine(library("machine.c", folder), 0, outer, episodes)
        repairs = 1.0 - total[1] / episodes
        print(
            f"C:   output {total[0] / episodes:.3f}, {repairs:.3f} repairs (at most 1), multiplier {dual:.3f}"
        )
        worn = np.argmax(theta[1::2] > theta[0::2])
        print(f"     a machine is first repaired at wear {worn}")

        cmdp = fc.envs.river_swim()
        prob = np.full(cmdp.n_choices, 0.5)
        value = estimate(library("estimate.cpp", folder), embed.from_cmdp(cmdp), prob, 0, 2, 50_000)
        exact = fc.evaluate(cmdp, prob)
        user = cmdp.to_user_values(value)
        print(f"C++: reward {user[0]:.4f} (exactly {exact.reward:.4f}), ", end="")
        print(f"cost {user[1]:.4f} (exactly {exact.constraints[0]:.4f})")


if __name__ == "__main__":
    main()
