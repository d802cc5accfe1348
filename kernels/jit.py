"""The one decorator of every kernel: nopython, without the GIL, cached on disk and never stale."""

from __future__ import annotations

import gc
import os
import pickle
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba import cfunc, njit
from numba.core import config, types
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from fastcmdp.kernels import callees, sources

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError(
        "fastcmdp's kernels run compiled only, and NUMBA_DISABLE_JIT (or disable_jit in .numba_config.yaml) turns "
        "compilation off: unset it"
    )


_INLINE: Any = {"forceinline": True}
IMPLEMENTATION: Any = {"pipeline_class": callees.CalleeCompiler}  # for ``dispatch.generic`` and ``overload``
INLINE: Any = IMPLEMENTATION | _INLINE


def _fields(kind: Any) -> Any:
    """The names of the fields of each NamedTuple in a type: numba tells tuples apart by their class alone."""
    if not isinstance(kind, (types.BaseTuple, tuple)):
        return None
    return getattr(kind, "fields", ()), tuple(_fields(one) for one in kind)  # type: ignore[union-attr]


class _Files:
    """A file for each signature of a function, which says what it is for; one that says something else is not believed.

    (Numba keeps one index for all signatures: of two processes that read it before either has written it, one loses
    what it compiled, or calls code compiled for other types.)
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def _label(self, key: Any) -> Any:
        signature = key[0]
        return numba.__version__, key, _fields(getattr(signature, "args", signature))

    def _path(self, key: Any) -> Path:
        return self.folder / f"{self.name}.{sha256(repr(self._label(key)).encode()).hexdigest()[:16]}.nbc"

    def load(self, key: Any) -> Any:
        """What was saved under this key, or None."""
        try:
            label, data = pickle.loads(self._path(key).read_bytes())
        except (
            Exception
        ):  # damaged files raise whatever unpickling raises; compiled anew, and saved in their place
            return None
        return data if label == self._label(key) else None

    def save(self, key: Any, data: Any) -> None:
        """Write the file as a whole, for another process may read it meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        draft = path.with_suffix(f".{uuid.uuid4().hex}")
        draft.write_bytes(dumps((self._label(key), data)))
        os.replace(draft, path)


class _OnDisk(FunctionCache):
    """Numba's cache, in a folder for exactly the sources that the function depends on; opened when first asked."""

    _suffix = ""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_func = function
        sources.read()  # now: what is asked later may have changed by then, and is not what was imported

    def _open(self) -> None:
        """Find the folder: for hundreds of functions, of which a run calls a few, that is most of an import."""
        if "_enabled" in self.__dict__:
            return
        function = self._py_func
        try:
            super().__init__(function)
            folder = Path(self._cache_path) / f"fastcmdp-{sources.digest(function.__module__)}"
            folder.mkdir(parents=True, exist_ok=True)
        except (RuntimeError, OSError):  # no folder can be written to: compiled in each process
            self._enabled, self._cache_path = False, ""
            return
        self._cache_path = str(folder)
        self._cache_file: Any = _Files(folder, self._impl.filename_base + self._suffix)

    @property
    def cache_path(self) -> str:
        """The folder, or "" without one."""
        self._open()
        return str(self._cache_path)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled function, or None."""
        self._open()
        return super().load_overload(signature, target)

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep it where that can be done; else it is compiled again next time."""
        self._open()
        with suppress(OSError):
            super().save_overload(signature, data)


class _CalleesOnDisk(_OnDisk):
    _impl_class: Any = callees.CalleeCache
    _suffix = ".callee"


def _uncollected(compile_: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the collector, which keeps walking through the compiler's trees: a seventh of the time."""

    @wraps(compile_)
    def compiling(*arguments: Any) -> Any:
        if not gc.isenabled():
            return compile_(*arguments)
        gc.disable()
        try:
            return compile_(*arguments)
        finally:
            gc.enable()

    return compiling


def _compile(function: Callable[..., Any], *, keep: bool = True, **options: Any) -> Any:
    """For Python, and once more as a callee, for other kernels; callees are kept on disk only where it pays."""
    options |= {"nogil": True, "error_model": "numpy"}
    compiler: Any = njit  # which takes more options than its types say
    compiled = compiler(**options, pipeline_class=callees.BorrowingCompiler, **callees.NEVER_FROM_C)(function)
    compiled.compile, compiled._cache = _uncollected(compiled.compile), _OnDisk(function)

    @cache
    def callee() -> Any:
        linked = compiler(**options, **callees.options_of(function))(function)
        if keep:
            linked._cache = _CalleesOnDisk(function)
        return linked

    compiled.callee = callee
    compiled.get_call_template = lambda *arguments: callee().get_call_template(*arguments)
    compiled.get_overload = lambda *arguments: callee().get_overload(*arguments)
    return compiled


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` with numba, cached on disk in a folder named by a hash of all that it depends on.

    Numba stamps a cached function with its own file only, so a caller would keep the old code of a callee that
    changed in another file. Another folder for other sources (see ``sources``) rules that out, also across upgrades.
    Where no folder can be written (read-only install without a home) kernels are compiled in each process.
    """
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as ``kernel`` does, and always inline: for the few lines that run once a transition."""
    return _compile(function, keep=False, **_INLINE)


def reassociated(function: Callable[..., Any]) -> Any:
    """Compile as ``inlined`` does, with sums in any order: for dot products, which vectorise only so."""
    return _compile(function, keep=False, fastmath={"reassoc", "nsz", "contract"}, **_INLINE)


def callback(function: Callable[..., Any], signature: Any, *, keep: bool = True) -> Any:
    """Compile for callers in C, as ``numba.cfunc`` does, at once; kept on disk as kernels are, or not."""
    options: dict[str, Any] = {"error_model": "numpy"}
    try:
        from numba.core.ccallback import CFunc  # numba.cfunc compiles before its cache could be moved

        kinds = signature.args, signature.return_type
        compiled: Any = CFunc(function, kinds, {}, options, pipeline_class=callees.BorrowingCompiler)
        if keep:
            compiled._cache = _OnDisk(function)
        compiled.compile()
    except (ImportError, RuntimeError, OSError, AttributeError, TypeError):
        return cfunc(signature, **options)(function)
    return compiled
