"""One function, several implementations: the class of an argument picks, at compile time.

    @generic("policy")
    def logit(policy, theta, q):
        '''Logit of choice q.'''

    @logit.on(Tabular)
    def tabular_logit(policy, theta, q):
        return theta[q]

A kernel that calls ``logit`` compiles once a kind of policy. NamedTuples are told apart by their class, arrays by
the type of their entries (``on(types.uint32)``). ``otherwise`` registers what serves every kind without one of
its own; ``kinds`` maps each kind to the plain function that was registered. A kind that is handed on to another
generic picks twice: so one function may depend on two arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import MappingProxyType
from typing import Any

from numba.extending import overload

from fastcmdp.kernels.jit import IMPLEMENTATION, INLINE

Implementation = Callable[..., Any]


def kind_of(argument: Any) -> Any:
    """What the kinds of an argument (a numba type) are told apart by."""
    return getattr(argument, "instance_class", None) or getattr(argument, "dtype", None)


def generic(by: str, *, inline: bool = False) -> Callable[[Implementation], Any]:
    """Make a function of a stub: signature and docstring; argument ``by`` picks among what ``on`` registers."""

    def decorate(stub: Implementation) -> Any:
        signature = inspect.signature(stub)
        position = list(signature.parameters).index(by)
        implementations: dict[Any, Implementation] = {}
        fallback: list[Implementation] = []

        @wraps(stub)
        def function(*arguments: Any) -> Any:
            raise NotImplementedError(f"{stub.__name__} is called by compiled code only")

        def pick(*arguments: Any) -> Implementation | None:
            implementation = implementations.get(kind_of(arguments[position]))
            return implementation or (fallback[0] if fallback else None)

        pick.__signature__ = signature  # type: ignore[attr-defined]
        overload(function, jit_options=INLINE if inline else IMPLEMENTATION)(pick)

        def on(*kinds: Any) -> Callable[[Implementation], Implementation]:
            def register(implementation: Implementation) -> Implementation:
                implementations.update(dict.fromkeys(kinds, implementation))
                return implementation

            return register

        def otherwise(implementation: Implementation) -> Implementation:
            fallback.append(implementation)
            return implementation

        function.on, function.otherwise = on, otherwise  # type: ignore[attr-defined]
        function.kinds = MappingProxyType(implementations)  # type: ignore[attr-defined]
        return function

    return decorate
