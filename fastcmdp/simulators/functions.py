"""The functions of a simulator as addresses: compiled by numba, from a C library, or called back in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]

from fastcmdp.errors import ModelError
from fastcmdp.kernels import simulate

_DOUBLES: Any = types.CPointer(types.float64)  # type: ignore[no-untyped-call]
_WORDS: Any = types.CPointer(types.uint64)  # type: ignore[no-untyped-call]

_C_FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of ctypes, which exports no name for it

# What each function is to take and to give, in C.
_P, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
PROTOTYPES: dict[str, Any] = {
    "step": ctypes.CFUNCTYPE(_D, _P, _I, _P, _P),
    "reset": ctypes.CFUNCTYPE(None, _P, _P),
    "fork": ctypes.CFUNCTYPE(None, _P, _I, _P),
    "state_features": ctypes.CFUNCTYPE(None, _P, _P),
    "choice_features": ctypes.CFUNCTYPE(None, _P, _I, _P),
}
ARGUMENTS = {
    "step": "(state, action, rng, costs), returning the reward",
    "reset": "(state, rng)",
    "state_features": "(state, out)",
    "choice_features": "(state, action, out)",
}


@dataclass(frozen=True)
class Function:
    """A function of a simulator, of arrays.

    Attributes
    ----------
    kind : str
    compiled : callable or None
        For callers compiled by numba; None: there is no such function.
    call : callable
        For callers in Python.
    python : callable or None
        What the user wrote, where it can run in Python, with its checks of indices.
    alive : object
        What must live as long as the function is called.
    """

    kind: str
    compiled: Any = None
    call: Callable[..., Any] | None = None
    python: Callable[..., Any] | None = None
    alive: Any = None


def _address(given: Any) -> int | None:
    """Address of a C function given as a number, through ctypes or through cffi; None if it is none of these."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, _C_FUNCTION):
        return int(ctypes.cast(given, ctypes.c_void_p).value or 0)
    if type(given).__module__ == "_cffi_backend":
        import cffi  # type: ignore[import-untyped]

        return int(cffi.FFI().cast("intptr_t", given))
    return None


def _by_address(kind: str, address: int) -> Any:
    """A C function for callers compiled by numba."""
    call_step: Any = simulate.call_step
    call_reset: Any = simulate.call_reset
    call_fork: Any = simulate.call_fork
    call_features: Any = (
        simulate.call_choice_features if kind == "choice_features" else simulate.call_state_features
    )
    return njit(
        {
            "step": lambda state, action, rng, costs: call_step(address, state, action, rng, costs),
            "reset": lambda state, rng: call_reset(address, state, rng),
            "fork": lambda state, keep, rng: call_fork(address, state, keep, rng),
            "state_features": lambda state, out: call_features(address, state, out),
            "choice_features": lambda state, action, out: call_features(address, state, action, out),
        }[kind]
    )


def _all_rows(function: Any, n_actions: int, n: int) -> Any:
    """Features of all actions of a state from those of one."""

    @njit
    def choice_features(state, out):  # type: ignore[no-untyped-def]
        for action in range(n_actions):
            function(state, action, out[action * n : (action + 1) * n])

    return choice_features


def copy_state(n: int) -> Any:
    """Features that are the state itself."""

    @njit
    def state_features(state, out):  # type: ignore[no-untyped-def]
        for i in range(n):
            out[i] = state[i]

    return state_features


def _from_python(kind: str, address: int) -> Callable[..., Any]:
    """A C function for callers in Python: arrays are passed as their addresses."""
    function = PROTOTYPES[kind](address)

    def call(*arguments: Any) -> Any:
        return function(*(x.ctypes.data if isinstance(x, np.ndarray) else x for x in arguments))

    return call


def function_of(kind: str, given: Any, n_actions: int = 1, n_features: int = 1) -> Function:
    """A user's function as kernels call it; ``choice_features`` becomes one that writes the rows of all actions.

    Raises
    ------
    ModelError
        A plain Python function, or something else that is none of the accepted kinds.
    """
    address, python = _address(given), None
    if address is not None:
        if address == 0:
            raise ModelError(f"{kind} is a null pointer; give the address of a C function")
        compiled = _by_address(kind, address)
        call = _from_python(kind, address)
    elif hasattr(given, "py_func"):
        compiled, call, python = given, given, given.py_func
    elif callable(given):
        name = getattr(given, "__name__", kind)
        raise ModelError(
            f"{kind} = {name} is a plain Python function; kernels need compiled code: put @numba.njit above "
            f"its def, with arguments {ARGUMENTS[kind]}"
        )
    else:
        raise ModelError(
            f"{kind} = {given!r} is no function: give one decorated with @numba.njit, with arguments "
            f"{ARGUMENTS[kind]}, or a C function through ctypes or cffi"
        )
    if kind == "choice_features":
        compiled = call = _all_rows(compiled, n_actions, n_features)
    return Function(kind, compiled, call, python, given)


def features_callback(features: Any, n_state: int, n_out: int) -> Any:
    """Features (state, out) for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, out):  # type: ignore[no-untyped-def]
        try:
            features(carray(state, (n_state,)), carray(out, (n_out,)))
        except Exception:
            out[0] = np.nan

    return cfunc(types.void(_DOUBLES, _DOUBLES))(callback)


def step_callback(step: Any, n_state: int, m: int) -> Any:
    """Step for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, action, rng, costs):  # type: ignore[no-untyped-def]
        try:
            return step(carray(state, (n_state,)), action, carray(rng, (4,)), carray(costs, (max(m, 1),)))
        except Exception:
            return np.nan

    return cfunc(types.float64(_DOUBLES, types.int64, _WORDS, _DOUBLES))(callback)


def reset_callback(reset: Any, n_state: int) -> Any:
    """Reset for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, rng):  # type: ignore[no-untyped-def]
        try:
            reset(carray(state, (n_state,)), carray(rng, (4,)))
        except Exception:
            state[0] = np.nan

    return cfunc(types.void(_DOUBLES, _WORDS))(callback)
