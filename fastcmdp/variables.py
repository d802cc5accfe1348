"""What states mean: values of named variables, one for each state, as files of model checkers tell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcmdp.errors import ModelError
from fastcmdp.text import visible

Variables = Mapping[str, npt.NDArray[Any]]
_KINDS: dict[str, type[np.generic]] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


def state_variables(arrays: Mapping[str, npt.ArrayLike], n_states: int) -> Variables:
    """Variables checked, as arrays of booleans, 64-bit integers or doubles that are read-only.

    Raises
    ------
    ModelError
        Not one number or truth value for each state.
    """
    checked: dict[str, npt.NDArray[Any]] = {}
    for name, values in arrays.items():
        array = np.asarray(values)
        if array.shape != (n_states,) or array.dtype.kind not in _KINDS:
            raise ModelError(
                f"variable {name!r} has shape {array.shape} and dtype {array.dtype}; a number or a truth value for "
                f"each of {n_states} states is expected"
            )
        checked[name] = array.astype(_KINDS[array.dtype.kind])
        checked[name].setflags(write=False)
    return checked


def name_of_state(variables: Variables, state: int) -> str:
    """The values of all variables in a state, on one line; truth values by name, or with a ! before it."""
    parts = []
    for name, values in variables.items():
        value = values[state]
        word = visible(name)
        text = ("" if value else "!") + word if values.dtype == np.bool_ else f"{word}={value.item()}"
        parts.append(text)
    return ", ".join(parts)
