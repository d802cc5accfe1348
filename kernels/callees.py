"""What a kernel is compiled to where another kernel calls it: code to be linked, and nothing that runs by itself.

Numba compiles each function that is called as if Python called it too: it optimises it, optimises it again within its
caller, and that within the caller's caller; each time it emits machine code, and code that unpacks Python objects.
Here a callee is typed, lowered and simplified function by function; what calls it is optimised as a whole, once. (But
for the walks of ``sampling``, where a run spends its time: those loops are optimised by themselves first.)

Numba counts references to every array that a variable stands for, by two atomic operations each, and takes pairs out
again where no branch lies between. A function that was handed the tables of a model and branches so paid for all their
arrays in each call. But arrays that arguments hold outlive the call: here they are borrowed and nothing is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import cgutils, ir, types
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.target_extension import cpu_target, jit_registry
from numba.core.typed_passes import NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes


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
            if hasattr(library, "_reload_init"):  # numba 0.60 has none
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


class _BorrowingLower(Lower):
    """Numba's translation to LLVM, without counts for variables that stand for what arguments hold all the while."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._borrowed = self._find_borrowed()

    def _find_borrowed(self) -> set[str]:
        values: dict[str, list[Any]] = {}
        returned = set()
        for block in self.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                values.setdefault(assignment.target.name, []).append(assignment.value)
            returned |= {one.value.name for one in block.find_insts(ir.Return)}  # the caller will own these
        once = {name: some[0] for name, some in values.items() if len(some) == 1 and name not in returned}
        borrowed: set[str] = set()
        while more := {name for name in once.keys() - borrowed if self._borrows(name, once[name], borrowed)}:
            borrowed |= more
        return borrowed

    def _borrows(self, name: str, value: Any, borrowed: set[str]) -> bool:
        """Whether this value is an argument, or a field, an entry or a view of what is borrowed."""
        if isinstance(value, ir.Arg):
            return True
        if isinstance(value, ir.Var):
            return value.name in borrowed and self.typeof(value.name) == self.typeof(name)
        if not isinstance(value, ir.Expr) or value.op not in ("getattr", "static_getitem", "getitem"):
            return False
        if value.value.name not in borrowed:
            return False
        whole = self.typeof(value.value.name)
        if isinstance(whole, types.BaseTuple):
            return value.op != "getitem"
        if not isinstance(whole, types.Array) or value.op == "getattr":
            return False
        index = self.typeof((value.index if value.op == "getitem" else value.index_var).name)
        parts: Any = index if isinstance(index, types.BaseTuple) else (index,)
        return all(isinstance(part, (types.Integer, types.SliceType)) for part in parts)  # others make copies

    def lower_inst(self, inst: Any) -> None:
        """As numba does it, but for counts of what is borrowed."""
        name = inst.target.name if isinstance(inst, ir.Assign) else getattr(inst, "value", None)
        if not isinstance(inst, (ir.Assign, ir.Del)) or name not in self._borrowed:
            super().lower_inst(inst)
        elif isinstance(inst, ir.Assign):
            counts, _ = self.context.enable_nrt, self.context.nrt  # the latter is made once, with counts on
            self.context.enable_nrt = False
            try:
                super().lower_inst(inst)
            finally:
                self.context.enable_nrt = counts

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Room for a variable, without notes for debuggers: for their sake LLVM would be asked the size of each."""
        return cgutils.alloca_once(self.builder, lltype, name=name)


@register_pass(mutates_CFG=True, analysis_only=False)
class _BorrowingLowering(NativeLowering):
    _name = "borrowing_lowering"

    @property
    def lowering_class(self) -> Any:
        return _BorrowingLower


@contextmanager
def _numba_makes_callees() -> Iterator[None]:
    """Meanwhile numba compiles its own functions that are called, such as np.empty, into callees too.

    Numba's lock must be held: what is exchanged is how the whole process compiles such functions.
    """
    usual = jit_registry.pop(cpu_target)
    as_callee = CALLEE | {"pipeline_class": _NumbasOwnCompiler}
    jit_registry[cpu_target] = lambda **options: usual(**as_callee | options)
    try:
        yield
    finally:
        jit_registry.pop(cpu_target)
        jit_registry[cpu_target] = usual


class BorrowingCompiler(Compiler):
    """Numba's compiler, without counts of references to what arguments hold."""

    # No kernel has functions within, and none is the quicker for sums of whole arrays that become one loop.
    left_out: tuple[Any, ...] = (InlineClosureLikes, NopythonRewrites)

    def _compile_core(self) -> Any:
        with global_compiler_lock, _numba_makes_callees():
            return super()._compile_core()

    def define_pipelines(self) -> Any:
        """Numba's passes, one replaced, some left out."""
        (passes,) = super().define_pipelines()
        passes.passes = [
            (_BorrowingLowering if one is NativeLowering else one, text)
            for one, text in passes.passes
            if one not in self.left_out
        ]
        passes.finalize()
        return [passes]


class CalleeCompiler(BorrowingCompiler):
    """The same, into a ``Callee``."""

    library = Callee

    def __init__(self, typing: Any, target: Any, library: Any, *more: Any) -> None:
        super().__init__(typing, target, library or self.library(target.codegen(), "callee"), *more)


class _NumbasOwnCompiler(CalleeCompiler):
    left_out = ()


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
CALLEE: dict[str, Any] = {"no_cpython_wrapper": True} | NEVER_FROM_C
_OPTIMISED = "fastcmdp.kernels.sampling."  # else whole runs take 1.03 to 1.05 times as long


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """How numba is to compile this function as a callee."""
    compiler = OptimisingCompiler if function.__module__.startswith(_OPTIMISED) else CalleeCompiler
    return CALLEE | {"pipeline_class": compiler}
