"""What a type checker sees of the library: mypy --strict examples/typed.py finds nothing to say.

Each line states a type that users rely on; one that changes is a change of the interface.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import fastcmdp as fc
from fastcmdp.bootstrap import Interval
from fastcmdp.comparison import Comparison

Float = NDArray[np.float64]


def main() -> None:
    """Call what most programs call."""
    model = assert_type(fc.envs.river_swim(), fc.CMDP)
    best = fc.optimum(model)
    assert_type(best.reward, float)
    assert_type(best.policy, Float)
    result = assert_type(fc.solve(model, fc.PDANPG(outer=20, inner=5), replicates=2), fc.Result)
    assert_type(result.gap, Float)
    assert_type(result.policy("last"), Float)
    assert_type(result.notes(), list[str])
    assert_type(fc.PDANPG.for_samples(model, 1e5), fc.PDANPG)
    found = assert_type(fc.compare(model, ["pd-anpg"], samples=2e4, replicates=2), Comparison)
    assert_type(found.to_latex(), str)
    assert_type(found.improvement("pd-anpg", "pd-anpg"), Interval)
    rows: list[dict[str, Any]] = found.rows()
    print(len(rows), result)


if __name__ == "__main__":
    main()
