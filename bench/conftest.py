"""Inputs shared by the benchmarks; the naive twins stand with the tests."""

from __future__ import annotations

import numpy as np
import pytest

import fastcmdp as fc
from fastcmdp.worlds import TableWorld


@pytest.fixture(scope="session")
def dense():
    """100 states, 4 actions, dense."""
    return fc.envs.garnet(n_states=100, n_actions=4, n_branches=None, gamma=0.95, seed=0, limit=10.0)


@pytest.fixture(scope="session")
def features(dense):
    """64 dense features a choice."""
    return np.random.default_rng(0).standard_normal((dense.n_choices, 64)) / 8


@pytest.fixture(scope="session")
def new_run():
    """A function that sets up two replicates of PD-ANPG that will not end."""

    def make(cmdp, policy, **settings):
        problem = TableWorld.of(cmdp, policy)
        settings = {"outer": 10**9, "inner": 100, "pilot": 0} | settings
        return fc.PDANPG(**settings).run(problem, 0, 2)

    return make
