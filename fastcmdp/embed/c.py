"""The functions and models of fastcmdp.embed for C and C++."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastcmdp.embed.header import CTYPES, Prototype, header
from fastcmdp.errors import SettingError
from fastcmdp.kernels import jit
from fastcmdp.kernels.embed import exports, memory
from fastcmdp.kernels.sampling.tables import Tables


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
    prototypes = [Prototype.of(exported) for exported in exports.EXPORTS]
    compiled = [
        jit.callback(exported.function, prototype.signature())
        for exported, prototype in zip(exports.EXPORTS, prototypes, strict=True)
    ]
    addresses = {p.name: int(one.address) for p, one in zip(prototypes, compiled, strict=True)}
    struct = (ctypes.c_int64 * (2 + len(compiled)))(
        memory.VERSION, 8 * (2 + len(compiled)), *addresses.values()
    )
    _alive.extend([compiled, struct])
    callables = {p.name: p.callable_type()(addresses[p.name]) for p in prototypes}
    return CApi(ctypes.addressof(struct), addresses, header(prototypes), callables)


def c_model(model: Tables) -> Any:
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
    if not isinstance(model, Tables):
        raise SettingError(f"a Model of from_cmdp or build is expected, got {type(model).__name__}")
    if model.branch_entry.dtype != np.uint32:
        raise SettingError('the model has exact draws; C functions take from_cmdp(cmdp, draws="fast")')
    values: dict[str, Any] = {
        "n_states": model.state_row.size,
        "n_choices": model.choice_state.size,
        "n_branches": len(model.branch_entry) // 3,
        "n_signals": model.n_signals,
        "n_starts": len(model.start_entry) // 3,
        "n_entries": model.row_state.size,
        "record": model.words,
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
    fields = [(name, CTYPES.get(kind, ctypes.c_void_p)) for kind, name, _ in memory.MODEL]
    return type("fcmdp_model", (ctypes.Structure,), {"_fields_": fields})
