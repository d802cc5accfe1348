"""A digest a method of what it computes: `python bench/digests.py`, in two trees one after the other, a minute each.

Theta, multipliers and samples of a run of 2e5 transitions on two discounted models, and of runs with exact values. A
change that is about something else leaves all lines as they are. Digests are of one machine: others round otherwise.
"""

from __future__ import annotations

import hashlib

import fastcmdp as fc

EXACT = {
    "rollouts": ("rpg-pd", "opg-pd", "reload", "pi-pd", "al-pqa", "arnpg-epd"),
    "trajectories": ("c-pg", "lb-sgd"),
}


def digest(result: fc.Result) -> str:
    """Of the arrays that a run ends with."""
    arrays = result.theta, result.duals, result.samples
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


def main() -> None:
    """Print a line a run."""
    models = {"garnet": fc.envs.garnet(n_states=20), "river-swim": fc.envs.river_swim()}
    for label, model in models.items():
        for name, made in fc.ALGORITHMS.items():
            settings = made.for_samples(model, 2e5)
            print(
                f"{label:12} {name:16} {digest(fc.solve(model, settings, seed=3, optimum=False))}", flush=True
            )
        for setting, names in EXACT.items():
            for name in names:
                settings = fc.ALGORITHMS[name](outer=20, **{setting: 0})
                found = digest(fc.solve(model, settings, seed=3, optimum=False))
                print(f"{label:12} {name + ', exact':16} {found}", flush=True)


if __name__ == "__main__":
    main()
