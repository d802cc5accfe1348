"""The pieces of the solvers for other people's loops: njit functions, and the same as C functions.

Everything under "njit" may be called from a user's own `@njit` code (and from Python). Arrays are NumPy arrays, a
*choice* q is an action available in a state, signals are the reward and the constraints in kernel units: maximise
the first, keep J of the others >= 0. numba refuses arrays of types that do not do (a TypingError when it compiles);
arrays of wrong sizes raise a ValueError where a call does more than one step. Indices, and the arrays of single steps
and draws, are not checked: what is out of range reads foreign memory.

streams
    `stream(seed, replicate, lane)` uint64[4]; `streams(seed, replicate)` uint64[4, LANES], as `solve` has them; seeds
    are integers from 0 to 2^64 - 1, others are taken modulo 2^64
draws
    `word(rng)`, `uniform(rng)`, `normal(rng)`, `exponential(rng)`, `geometric(rng, gamma)`, `categorical(rng, weight)`
tables
    `build(state_to_choice, choice_to_branch, branch_target, branch_prob, signals, start, gamma)` -> `Model`
policies
    `policy(model, prob)` -> `Policy`; `softmax(model, theta, policy)`; `refresh(model, policy)`
one step
    `first_state(model, rng)`, `next_state(model, rng, q)`, `act(model, policy, rng, s)`; state and action together:
    `first_pair(model, policy, rng)`, `step(model, policy, rng, q)`
rollout
    `rollout(model, policy, rng, q, total)` -> (last choice, transitions)
batch
    `batch(model, n_pairs)` -> `Batch`; `sample_batch(model, policy, lanes, fresh, batch)` -> transitions
updates
    `momentum(g_squared, mu_f)`, `asgd(steps, score, target, omega)`,
    `asgd_tabular(model, policy, steps, pair, target, omega)`, `dual_step(dual, zeta, estimate, dual_max)`

These names, their arguments and the random words they spend stay as they are from version to version; new ones may
come. `fastcmdp.kernels` itself is not stable. From Python, `from_cmdp` makes the `Model` of a `CMDP`, `c_api` gives the
C functions, `c_model` a model for them. docs/embedding.md shows each way in ten lines.

Examples
--------
>>> from numba import njit
>>> import numpy as np, fastcmdp as fc
>>> from fastcmdp import embed
>>> @njit
... def visits(model, policy, rng, n):
...     count = np.zeros(model.state_row.size, np.int64)
...     q = embed.first_pair(model, policy, rng)
...     for _ in range(n):
...         count[model.choice_state[q]] += 1
...         q = embed.step(model, policy, rng, q)
...     return count
>>> model = embed.from_cmdp(fc.envs.river_swim())
>>> policy = embed.policy(model, np.full(model.choice_state.size, 0.5))
>>> int(visits(model, policy, embed.stream(0, 0, 0), 1000).sum())
1000
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.kernels.draws import categorical, exponential, geometric, normal, uniform, word
from fastcmdp.kernels.embedding import (
    Batch,
    Model,
    Policy,
    act,
    asgd,
    asgd_tabular,
    batch,
    build,
    dual_step,
    first_pair,
    first_state,
    momentum,
    next_state,
    policy,
    refresh,
    rollout,
    sample_batch,
    softmax,
    step,
    stream,
    streams,
)
from fastcmdp.kernels.streams import LANES
from fastcmdp.tables import build_tables, row_states

__all__ = [
    "LANES",
    "Batch",
    "CApi",
    "Model",
    "Policy",
    "act",
    "asgd",
    "asgd_tabular",
    "batch",
    "build",
    "c_api",
    "c_model",
    "categorical",
    "dual_step",
    "exponential",
    "first_pair",
    "first_state",
    "from_cmdp",
    "geometric",
    "momentum",
    "next_state",
    "normal",
    "policy",
    "refresh",
    "rollout",
    "sample_batch",
    "softmax",
    "step",
    "stream",
    "streams",
    "uniform",
    "word",
]


def from_cmdp(cmdp: CMDP, draws: str = "fast") -> Model:
    """The `Model` of a CMDP, for the njit functions of this module.

    Parameters
    ----------
    cmdp : CMDP
    draws : "fast" or "exact"
        "fast" draws are within (n + 1) 2^-32 of a row of n in total variation and spend one word on a state and its
        action; "exact" ones within (n + 1) 2^-53, and two words. C functions take "fast" models only.

    Raises
    ------
    SettingError
        Another `draws`, or something else than a CMDP (a simulator has no tables).

    Examples
    --------
    >>> import fastcmdp as fc
    >>> model = fc.embed.from_cmdp(fc.envs.river_swim())
    >>> int(fc.embed.next_state(model, fc.embed.stream(0, 0, 0), 0))
    0
    """
    if not isinstance(cmdp, CMDP):
        raise SettingError(f"a fastcmdp.CMDP is expected, got {type(cmdp).__name__}")
    tables = build_tables(cmdp, draws)
    return Model(
        *tables[:-1],
        row_states(tables),
        tables.start_entry.reshape(-1),
        tables.branch_entry.reshape(-1),
        tables.choice_word.reshape(-1),
    )


# C.

_CTYPES: dict[str, Any] = {
    "void": None,
    "double": ctypes.c_double,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}


@dataclass(frozen=True)
class _Prototype:
    """An exported function as C sees it."""

    name: str
    returns: str
    parameters: tuple[tuple[str, str], ...]  # (type, name)
    comment: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Prototype:
        text, _, comment = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        found = re.fullmatch(r"(\w+) (\w+)\((.*)\)", " ".join(text.split()))
        assert found is not None, text
        returns, name, inside = found.groups()
        parameters = []
        for part in inside.split(", "):
            kind, star, parameter = re.fullmatch(r"(.*?) (\*?)(\w+)", part).groups()  # type: ignore[union-attr]
            parameters.append((kind + (" *" if star else ""), parameter))
        return cls(name, returns, tuple(parameters), comment)

    def signature(self) -> Any:
        """For numba; pointers are addresses."""
        from numba import types

        kinds = {
            "void": types.void,
            "double": types.float64,
            "int64_t": types.int64,
            "uint64_t": types.uint64,
        }
        return kinds[self.returns](*(kinds.get(kind, types.int64) for kind, _ in self.parameters))

    def callable_type(self) -> Any:
        """For ctypes; pointers are void pointers."""
        kinds = (_CTYPES.get(kind, ctypes.c_void_p) for kind, _ in self.parameters)
        return ctypes.CFUNCTYPE(_CTYPES[self.returns], *kinds)


@dataclass(frozen=True)
class CApi:
    """The functions of this module for C and C++, compiled: see `c_api`.

    Attributes
    ----------
    address : int
        Of a `fcmdp_api`, the struct of function pointers that the header declares; it lives as long as the process.
    functions : dict of int
        The address of each function.
    header : str
        The text of fastcmdp.h.
    """

    address: int
    functions: dict[str, int]
    header: str
    _callables: dict[str, Any]

    def write_header(self, path: str | Path) -> Path:
        """Write the header to a file, or as fastcmdp.h into a folder; return where it is."""
        target = Path(path)
        target = target / "fastcmdp.h" if target.is_dir() else target
        target.write_text(self.header)
        return target

    def function(self, name: str) -> Any:
        """One of the functions as a ctypes callable; pointers are addresses or ctypes pointers.

        Raises
        ------
        SettingError
            There is no such function.
        """
        if name not in self._callables:
            raise SettingError(f"no function {name!r} is exported; there are {', '.join(self._callables)}")
        return self._callables[name]


_alive: list[Any] = []  # the machine code and the struct that addresses lead to


@functools.cache
def c_api() -> CApi:
    """Compile the C functions (once a process; cached on disk) and give their addresses and header.

    C functions never raise: what can fail returns a status below 0, FCMDP_NULL_POINTER and so on in the header.
    They hold no lock and no global state; two threads must not share a stream, a policy that changes, or outputs.
    Addresses are valid while this process lives. A host built against the header calls `fcmdp_fits(api)` first: within
    a version, functions are only added, at the end.

    Examples
    --------
    >>> import ctypes, numpy as np, fastcmdp as fc
    >>> api = fc.embed.c_api()
    >>> rng = fc.embed.stream(0, 0, 0)
    >>> twin = np.random.Generator(np.random.SFC64(np.random.SeedSequence(0, spawn_key=(0, 0))))
    >>> api.function("uniform")(rng.ctypes.data) == twin.random()
    True
    """
    from fastcmdp.kernels import exports, jit

    functions: list[Any] = list(exports.EXPORTS)
    prototypes = [_Prototype.of(function) for function in functions]
    compiled = [
        jit.callback(function, prototype.signature())
        for function, prototype in zip(functions, prototypes, strict=True)
    ]
    addresses = {p.name: int(one.address) for p, one in zip(prototypes, compiled, strict=True)}
    struct = (ctypes.c_int64 * (2 + len(compiled)))(
        exports.VERSION, 8 * (2 + len(compiled)), *addresses.values()
    )
    _alive.extend([compiled, struct])
    callables = {p.name: p.callable_type()(addresses[p.name]) for p in prototypes}
    return CApi(ctypes.addressof(struct), addresses, _header(prototypes), callables)


def _struct(name: str, members: tuple[tuple[str, str, str], ...]) -> str:
    lines = [f"  {kind}{'' if kind.endswith('*') else ' '}{member};" for kind, member, _ in members]
    width = max(map(len, lines)) + 2
    notes = [f"/* {note} */" if note else "" for *_, note in members]
    body = "\n".join(f"{line:{width}}{note}".rstrip() for line, note in zip(lines, notes, strict=True))
    return f"typedef struct {name} {{\n{body}\n}} {name};"


def _comment(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 100, initial_indent="  /* ", subsequent_indent="     ") + (
        " */"
    )


def _header(prototypes: list[_Prototype]) -> str:
    from fastcmdp.kernels import exports

    pointers = []
    for p in prototypes:
        inside = ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}{name}" for kind, name in p.parameters)
        line = textwrap.fill(
            f"  {p.returns} (*{p.name})({inside});", 100, subsequent_indent=" " * 6, break_long_words=False
        )
        pointers.append(f"{_comment(p.comment)}\n{line}")
    status = "\n".join(
        f"#define FCMDP_{name} ({value})" + (f" /* {note} */" if note else "")
        for name, value, note in exports.STATUS
    )
    return f"""\
/* fastcmdp for hosts in C and C++: a struct of function pointers, filled in by fastcmdp.embed.c_api().

   Nothing to link with. Python compiles the functions and hands over the address of a fcmdp_api (api.address);
   the pointers are valid while that process lives. A choice q is an action available in a state; the signals of
   a choice are the reward and m constraints (maximise the first, keep J of the others >= 0). Functions that can
   fail return a status below 0; none raises, prints or keeps global state. Two threads must not share a stream
   or an output. Where nothing is said of NULL and ranges, they are not checked. */
#ifndef FASTCMDP_H
#define FASTCMDP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define FCMDP_VERSION {exports.VERSION}
#define FCMDP_LANES {LANES} /* rollouts side by side in sample_batch, a stream each */

{status}

/* A model in compressed rows: choices of state s are state_to_choice[s] .. state_to_choice[s+1]-1, branches of
   choice q are choice_to_branch[q] .. choice_to_branch[q+1]-1. */
{_struct("fcmdp_rows", exports.ROWS)}

/* The tables that draws read. */
{_struct("fcmdp_model", exports.MODEL)}

typedef struct fcmdp_api {{
  int64_t version;
  int64_t size; /* bytes of this struct */
{chr(10).join(pointers)}
}} fcmdp_api;

/* 1 if the functions at hand are those of this header, or these and more; else 0. */
static inline int fcmdp_fits(const fcmdp_api *api) {{
  return api && api->version == FCMDP_VERSION && api->size >= (int64_t)sizeof(fcmdp_api);
}}

/* Signal k of choice q: 0 the reward, 1..m the constraints. */
static inline double fcmdp_signal(const fcmdp_model *model, int64_t q, int64_t k) {{
  return model->choice_signal[q * model->record + 1 + k];
}}

#ifdef __cplusplus
}}
#endif

#endif
"""


def c_model(model: Model) -> Any:
    """A `fcmdp_model` over the arrays of a model: a ctypes structure that keeps them alive.

    Raises
    ------
    SettingError
        A model with exact draws: C functions know fast ones only; or something else than a Model.

    Examples
    --------
    >>> import ctypes, fastcmdp as fc
    >>> model = fc.embed.c_model(fc.embed.from_cmdp(fc.envs.river_swim()))
    >>> rng = fc.embed.stream(0, 0, 0)
    >>> fc.embed.c_api().function("next_state")(ctypes.addressof(model), rng.ctypes.data, 0)
    0
    """
    if not isinstance(model, Model):
        raise SettingError(f"a Model of from_cmdp or build is expected, got {type(model).__name__}")
    if model.branch_entry.dtype != np.uint32:
        raise SettingError('the model has exact draws; C functions take from_cmdp(cmdp, draws="fast")')
    values: dict[str, Any] = {
        "n_states": model.state_row.size,
        "n_choices": model.choice_state.size,
        "n_branches": len(model.branch_entry),
        "n_signals": model.n_signals,
        "n_starts": len(model.start_entry),
        "n_entries": model.row_state.size,
        "record": model.choice_word.shape[1],
    }
    struct = _model_struct()()
    for name, kind in struct._fields_:
        value: Any = values.get(name, getattr(model, name, None))
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        setattr(struct, name, kind(value))
    struct.model = model
    return struct


@functools.cache
def _model_struct() -> Any:
    from fastcmdp.kernels import exports

    fields = [(name, _CTYPES.get(kind, ctypes.c_void_p)) for kind, name, _ in exports.MODEL]
    return type("fcmdp_model", (ctypes.Structure,), {"_fields_": fields})
