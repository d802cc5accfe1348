"""The header for hosts in C and C++, made from what kernels/embed registers."""

from __future__ import annotations

import ctypes
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

from fastcmdp.kernels.embed import memory
from fastcmdp.kernels.streams import LANES

CTYPES: dict[str, Any] = {
    "void": None,
    "double": ctypes.c_double,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}


@dataclass(frozen=True)
class Prototype:
    """An exported function as C sees it."""

    name: str
    returns: str
    parameters: tuple[tuple[str, str], ...]  # (type, name)
    comment: str

    @classmethod
    def of(cls, exported: Any) -> Prototype:
        function = exported.function
        comment = inspect.cleandoc(function.__doc__)
        parameters = tuple((kind, name) for name, kind in exported.parameters.items())
        return cls(function.__name__, exported.returns, parameters, comment)

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
        kinds = (CTYPES.get(kind, ctypes.c_void_p) for kind, _ in self.parameters)
        return ctypes.CFUNCTYPE(CTYPES[self.returns], *kinds)


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


def _pointers(prototypes: list[Prototype]) -> str:
    """The members of fcmdp_api, a comment before each."""
    pointers = []
    for p in prototypes:
        inside = ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}{name}" for kind, name in p.parameters)
        line = textwrap.fill(
            f"  {p.returns} (*{p.name})({inside});", 100, subsequent_indent=" " * 6, break_long_words=False
        )
        pointers.append(f"{_comment(p.comment)}\n{line}")
    return "\n".join(pointers)


def header(prototypes: list[Prototype]) -> str:
    status = "\n".join(
        f"#define FCMDP_{name} ({value})" + (f" /* {note} */" if note else "")
        for name, value, note in memory.STATUS
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

#define FCMDP_VERSION {memory.VERSION}
#define FCMDP_LANES {LANES} /* rollouts side by side in sample_batch, a stream each */

{status}

/* A model in compressed rows: choices of state s are state_to_choice[s] .. state_to_choice[s+1]-1, branches of
   choice q are choice_to_branch[q] .. choice_to_branch[q+1]-1. */
{_struct("fcmdp_rows", memory.ROWS)}

/* The tables that draws read. */
{_struct("fcmdp_model", memory.MODEL)}

typedef struct fcmdp_api {{
  int64_t version;
  int64_t size; /* bytes of this struct */
{_pointers(prototypes)}
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
