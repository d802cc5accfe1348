"""What every algorithm starts from: a model, its tables, a policy class bound to it, the exact optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.exact import Optimum
from fastcmdp.kernels.streams import LANES
from fastcmdp.policies import BoundPolicy

EXACT_CHOICES = 20_000  # up to here the optimum and the record are exact unless the caller says otherwise


@dataclass(frozen=True)
class Problem:
    """A model with all that is derived from it once and shared by replicates and threads.

    Attributes
    ----------
    cmdp : CMDP
        Or a Simulator, which has what runs and results read of a model.
    tables : Tables or World
        What the sampler reads.
    policy : BoundPolicy
    optimum : Optimum or None
        None where the model is too large, or the caller does not want it.
    draws : "fast" or "exact"
        See ``build_tables``.
    """

    cmdp: CMDP
    tables: Any
    policy: BoundPolicy
    optimum: Optimum | None
    draws: str = "fast"


def streams(seed: int, replicates: int) -> NDArray[np.uint64]:
    """Random streams of a run, uint64[replicates, 4, LANES].

    Lane l of replicate r is ``numpy.random.SFC64(numpy.random.SeedSequence(seed, spawn_key=(r, l)))``, so a user
    can replay any of them, and a replicate does not depend on how many others there are.
    """
    rng = np.empty((replicates, 4, LANES), np.uint64)
    for r in range(replicates):
        for lane in range(LANES):
            bits: Any = np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(r, lane)))
            rng[r, :, lane] = bits.state["state"]["state"]
    return rng
