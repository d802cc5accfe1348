"""The one decorator of every kernel: nopython, without the GIL, cached on disk and never stale."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import cfunc, njit
from numba.core import config

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    raise ImportError(
        "fastcmdp's kernels run compiled only, and NUMBA_DISABLE_JIT (or disable_jit in .numba_config.yaml) turns "
        "compilation off: unset it"
    )


def _hash_of_sources() -> str:
    """Hash of every file of this folder and those below, in the order of their names."""
    digest = hashlib.sha256()
    home = Path(__file__).parent
    for path in sorted(home.rglob("*.py")):
        digest.update(str(path.relative_to(home)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _hash_of_sources()


INLINE: Any = {"forceinline": True}  # also for ``dispatch.generic``


def _own_files(compiled: Any) -> None:
    """Keep the machine code of a function in a folder for exactly these sources, and label each file.

    Numba numbers its files by an index. Of two processes that read the index before either has written it, both
    take the same number; what the index then says of that file may be wrong, and calling code compiled for other
    types corrupts memory. So each file says what it is for, and one that says something else is not believed.
    """
    cache_file = compiled._cache._cache_file
    folder = Path(cache_file._cache_path) / f"fastcmdp-{_SOURCES[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    cache_file._cache_path = str(folder)
    cache_file._index_path = str(folder / cache_file._index_name)
    save, load = cache_file.save, cache_file.load
    save_overload = compiled._cache.save_overload

    def save_if_possible(signature: Any, data: Any) -> None:
        with suppress(OSError):  # a folder that has gone, a full disk: compiled again next time
            folder.mkdir(parents=True, exist_ok=True)
            save_overload(signature, data)

    def save_labelled(key: Any, data: Any) -> None:
        save(key, (key, data))

    def load_labelled(key: Any) -> Any:
        try:
            found = load(key)
        except Exception:  # damaged files raise whatever unpickling raises: forget them
            with suppress(OSError):
                Path(cache_file._index_path).unlink()
            return None
        if found is None or found[0] != key:
            return None  # compiled anew, and saved in its place
        return found[1]

    cache_file.save, cache_file.load = save_labelled, load_labelled
    compiled._cache.save_overload = save_if_possible


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
        _own_files(compiled)
    except (RuntimeError, OSError, AttributeError):
        # No folder can be written to, or a numba that keeps its cache otherwise: rather slow than stale.
        return njit(**options)(function)
    return compiled


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` with numba, cached on disk in a folder named by a hash of all kernel sources.

    Numba stamps a cached function with its own file only, so a caller would keep the old code of a callee that
    changed in another file; and it unpickles a cache's index before it looks at the stamp, so a NamedTuple that
    was renamed would stop the program. Another folder for other sources rules out both, also across upgrades.
    Where no folder can be written (read-only install without a home) kernels are compiled in each process.
    """
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as ``kernel`` does, and always inline: for the few lines that run once a transition."""
    return _compile(function, **INLINE)


def reassociated(function: Callable[..., Any]) -> Any:
    """Compile as ``inlined`` does, with sums in any order: for dot products, which vectorise only so."""
    return _compile(function, fastmath={"reassoc", "nsz", "contract"}, **INLINE)


def callback(function: Callable[..., Any], signature: Any) -> Any:
    """Compile for callers in C, as ``numba.cfunc`` does, at once; cached on disk as kernels are."""
    options: dict[str, Any] = {"error_model": "numpy"}
    try:
        from numba.core.ccallback import CFunc  # numba.cfunc compiles before its cache could be moved

        compiled = CFunc(function, (signature.args, signature.return_type), {}, options)
        compiled.enable_caching()
        _own_files(compiled)
        compiled.compile()
    except (ImportError, RuntimeError, OSError, AttributeError, TypeError):
        return cfunc(signature, **options)(function)
    return compiled
