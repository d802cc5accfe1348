"""What a kernel is compiled to where another kernel calls it: code to be linked, and nothing that runs by itself.

Numba compiles each function that is called as if Python called it too: it optimises it, optimises it again within its
caller, and that within the caller's caller; each time it emits machine code, and code that unpacks Python objects.
Here a callee is typed, lowered and simplified function by function; what calls it is optimised as a whole, once. (But
for the walks of ``sampling``, where a run spends its time: those loops are optimised by themselves first.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult


class _Without:
    """An object but for some of its attributes."""

    def __init__(self, whole: Any, **instead: Any) -> None:
        self.__dict__.update(instead, _whole=whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


class Callee(JITCodeLibrary):
    """Code of a function and of what it calls, which is linked into its callers and never runs by itself."""

    optimised = False

    @property
    def codegen(self) -> Any:
        """The code generator; there is no machine code in which an environment could be set."""
        return _Without(self._codegen, set_env=lambda name, environment: None)

    def finalize(self) -> None:
        """Link what is called; leave optimising to whoever calls, or do it here and there."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self.optimised:
            self._optimize_final_module()
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Zero: none that could be called."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """What ``of`` reads."""
        self._ensure_finalized()
        return self.name, "callee", self._get_module_for_linking().as_bitcode()

    @classmethod
    def of(cls, codegen: Any, saved: tuple[str, str, bytes]) -> Callee:
        """The library that was saved."""
        from llvmlite import binding

        library = cls(codegen, saved[0])
        library._final_module = binding.parse_bitcode(saved[2])
        library._finalize_dynamic_globals()
        library._finalized = True
        return library


class OptimisedCallee(Callee):
    """A callee that is optimised by itself too, as hot loops want it."""

    optimised = True


class CalleeCompiler(Compiler):
    """Numba's compiler, into a ``Callee``."""

    library = Callee

    def __init__(self, typing: Any, target: Any, library: Any, *more: Any) -> None:
        super().__init__(typing, target, library or self.library(target.codegen(), "callee"), *more)


class OptimisingCompiler(CalleeCompiler):
    """The same, into an ``OptimisedCallee``."""

    library = OptimisedCallee


class CalleeCache(CompileResultCacheImpl):
    """How numba writes compiled functions to files and reads them, for callees."""

    def rebuild(self, target: Any, payload: tuple[Any, ...]) -> Any:
        """The compiled function that was saved."""
        codegen = target.codegen()
        reader = _Without(codegen, unserialize_library=lambda saved: Callee.of(codegen, saved))
        result = CompileResult._rebuild(_Without(target, codegen=lambda: reader), *payload)
        return result._replace(target_context=target)


NEVER_FROM_C: dict[str, Any] = {"no_cfunc_wrapper": True}
_OPTIMISED = "fastcmdp.kernels.sampling."  # else whole runs take 1.03 to 1.05 times as long


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """How numba is to compile this function as a callee."""
    compiler = OptimisingCompiler if function.__module__.startswith(_OPTIMISED) else CalleeCompiler
    return {"pipeline_class": compiler, "no_cpython_wrapper": True} | NEVER_FROM_C
