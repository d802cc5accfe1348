"""The functions of a simulator as addresses: compiled by numba, from a C library, or called back in Python."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]

from fastcmdp.errors import ModelError
from fastcmdp.kernels.simulator import simulate

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
_C_TYPES = {
    "step": "double(double *, int64_t, uint64_t *, double *)",
    "reset": "void(double *, uint64_t *)",
    "state_features": "void(const double *, double *)",
    "choice_features": "void(const double *, int64_t, double *)",
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


def is_address(value: Any) -> bool:
    """Whether a function is given as machine code of this process: a number, through ctypes or through cffi."""
    kinds = (_C_FUNCTION, int, np.integer)
    return isinstance(value, kinds) or type(value).__module__ == "_cffi_backend"


def _address(kind: str, function: Any) -> int | None:
    """Address of a C function given as a number, through ctypes or through cffi; None if it is none of these."""
    if isinstance(function, int | np.integer) and not isinstance(function, bool):
        address = int(function)
        if address == 0:
            raise ModelError(f"{kind} is a null pointer; give the address of a C function")
        if not 4096 <= address < 2**64:
            raise ModelError(f"{kind} = {function!r} is no address of a function; give the function itself")
        return address
    if isinstance(function, _C_FUNCTION):
        declared = getattr(function, "argtypes", None)
        if declared is not None and len(declared) != len(PROTOTYPES[kind]._argtypes_):
            raise ModelError(
                f"{kind} has {len(declared)} argtypes; {_C_TYPES[kind]} is expected, as in fastcmdp_simulator.h"
            )
        return _address(kind, ctypes.cast(function, ctypes.c_void_p).value or 0)
    if type(function).__module__ == "_cffi_backend":
        return _address(kind, _cffi_address(kind, function))
    if type(getattr(function, "__self__", None)).__module__ == "_cffi_backend":
        name = function.__name__
        raise ModelError(
            f"{kind} = lib.{name} of a module built by cffi can be called from Python only; give "
            f'ffi.addressof(lib, "{name}")'
        )
    return None


def _cffi_address(kind: str, function: Any) -> int:
    """Address of a function of cffi, whose declaration says what it takes and gives."""
    import cffi  # type: ignore[import-untyped]

    ffi = cffi.FFI()
    try:
        declared = ffi.typeof(function)
    except TypeError:  # a library, or cffi's own objects
        declared = None
    if declared is None or declared.kind != "function":
        raise ModelError(
            f"{kind} = {function!r} is no C function; give lib.name of ffi.dlopen, with name declared by "
            f"{_C_TYPES[kind]}"
        )

    def sort(c_type: Any) -> str:
        return c_type.kind if c_type.kind != "primitive" or c_type.cname in ("float", "double") else "integer"

    expected = ffi.typeof(_C_TYPES[kind].replace("(", "(*)(", 1))
    wanted, own = [[t.result.cname, *map(sort, t.args)] for t in (expected, declared)]
    if wanted != own:
        raise ModelError(f"{kind} is declared as {declared.cname}; {_C_TYPES[kind]} is expected")
    return int(ffi.cast("intptr_t", function)) % 2**64


def _check_compiled(kind: str, function: Any) -> None:
    """Check what a function of numba says of itself: that it is compiled without Python, and its arguments."""
    if function.targetoptions.get("forceobj") or not function.targetoptions.get("nopython", True):
        raise ModelError(
            f"{kind} = {function.__name__} may run as Python objects; kernels need compiled code: decorate it with "
            "@numba.njit"
        )
    signature = inspect.signature(function.py_func)
    try:
        signature.bind(*PROTOTYPES[kind]._argtypes_)
    except TypeError:
        raise ModelError(
            f"{kind} = {function.__name__}{signature} takes other arguments than {ARGUMENTS[kind]}"
        ) from None


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


@cache
def copy_state(n: int) -> Any:
    """Features that are the state itself."""

    @njit
    def state_features(state, out):  # type: ignore[no-untyped-def]
        for i in range(n):
            out[i] = state[i]

    return state_features


def called_back(kind: str, by_address: Callable[..., Any], call: Callable[..., Any]) -> Function:
    """A function in Python that kernels call with addresses; ``call`` is the same of arrays, for callers in Python."""
    pointer = PROTOTYPES[kind](by_address)
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    assert address is not None
    return Function(kind, _by_address(kind, address), call, None, pointer)


def _from_python(kind: str, address: int) -> Callable[..., Any]:
    """A C function for callers in Python: arrays are passed as their addresses."""
    function = PROTOTYPES[kind](address)

    def call(*arguments: Any) -> Any:
        return function(*(x.ctypes.data if isinstance(x, np.ndarray) else x for x in arguments))

    return call


def function_of(kind: str, function: Any, n_actions: int = 1, n_features: int = 1) -> Function:
    """A user's function as kernels call it; ``choice_features`` becomes one that writes the rows of all actions.

    Raises
    ------
    ModelError
        A plain Python function, one of other arguments, or something else that is none of the accepted kinds.
    """
    if isinstance(function, Function):
        return function
    address, python = _address(kind, function), None
    if address is not None:
        compiled = _by_address(kind, address)
        call = _from_python(kind, address)
    elif hasattr(function, "py_func") and hasattr(function, "targetoptions"):
        _check_compiled(kind, function)
        compiled, call, python = function, function, function.py_func
    elif callable(function):
        name = getattr(function, "__name__", repr(function))
        what = "a plain Python function" if inspect.isfunction(function) else f"a {type(function).__name__}"
        raise ModelError(
            f"{kind} = {name} is {what}; kernels need compiled code: put @numba.njit above the def of a function "
            f"with arguments {ARGUMENTS[kind]}"
        )
    else:
        raise ModelError(
            f"{kind} = {function!r} is no function: give one decorated with @numba.njit, with arguments "
            f"{ARGUMENTS[kind]}, or a C function through ctypes or cffi"
        )
    if kind == "choice_features":
        compiled = call = _all_rows(compiled, n_actions, n_features)
    return Function(kind, compiled, call, python, function)


@lru_cache(maxsize=32)
def features_callback(features: Any, n_state: int, n_out: int) -> Any:
    """Features (state, out) for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, out):  # type: ignore[no-untyped-def]
        for i in range(n_out):
            out[i] = 0.0
        try:
            features(carray(state, (n_state,)), carray(out, (n_out,)))
        except Exception:
            out[0] = np.nan

    return cfunc(types.void(_DOUBLES, _DOUBLES))(callback)


@lru_cache(maxsize=32)
def step_callback(step: Any, n_state: int, m: int) -> Any:
    """Step for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, action, rng, costs):  # type: ignore[no-untyped-def]
        try:
            return step(carray(state, (n_state,)), action, carray(rng, (4,)), carray(costs, (max(m, 1),)))
        except Exception:
            return np.nan

    return cfunc(types.float64(_DOUBLES, types.int64, _WORDS, _DOUBLES))(callback)


@lru_cache(maxsize=32)
def reset_callback(reset: Any, n_state: int) -> Any:
    """Reset for callers by address; what is raised becomes NaN, for C has no exceptions."""

    def callback(state, rng):  # type: ignore[no-untyped-def]
        try:
            reset(carray(state, (n_state,)), carray(rng, (4,)))
        except Exception:
            state[0] = np.nan

    return cfunc(types.void(_DOUBLES, _WORDS))(callback)
