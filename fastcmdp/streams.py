"""Random streams: their words, and those of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.kernels.streams import LANES


def words_of(sequence: np.random.SeedSequence) -> NDArray[np.uint64]:
    """The state of ``numpy.random.SFC64(sequence)``, uint64[4]."""
    bits: Any = np.random.SFC64(sequence)
    words: NDArray[np.uint64] = bits.state["state"]["state"].astype(np.uint64)
    return words


def streams(seed: int, replicates: int) -> NDArray[np.uint64]:
    """Random streams of a run, uint64[replicates, 4, LANES].

    Lane l of replicate r is ``numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=(r, l)))``, so a user
    can replay any of them, and a replicate does not depend on how many others there are.
    """
    rng = np.empty((replicates, 4, LANES), np.uint64)
    for r in range(replicates):
        for lane in range(LANES):
            rng[r, :, lane] = words_of(np.random.SeedSequence(seed, spawn_key=(r, lane)))
    return rng
