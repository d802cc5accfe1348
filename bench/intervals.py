"""How often bootstrap intervals cover: plain percentile ones, and `fastcmdp.bootstrap`'s; about a minute.

    python bench/intervals.py [--trials N]

Per cent of trials in which the 95 % interval of the mean of n replicates holds the true mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from fastcmdp.bootstrap import bootstrap

Draw = Callable[[np.random.Generator, int], np.ndarray]
POPULATIONS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(3.0, 2.0, n), 3.0),
    "exponential": (lambda rng, n: rng.exponential(1.0, n), 1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3000)
    trials = parser.parse_args().trials
    print(f"{'n':12}{'percentile':>12}{'fastcmdp':>10}")
    for name, (draw, truth) in POPULATIONS.items():
        for n in (2, 4, 8, 20):
            rng, held = np.random.default_rng(n), np.zeros(2)
            for i in range(trials):
                x = draw(rng, n)
                means = x[rng.integers(0, n, (1000, n))].mean(axis=1)
                low, high = np.percentile(means, [2.5, 97.5])
                found = bootstrap(x, draws=1000, seed=i)
                held += [low <= truth <= high, found.low <= truth <= found.high]
            shares = 100 * held / trials
            print(f"{name:9}{n:3}{shares[0]:>12.0f}{shares[1]:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
