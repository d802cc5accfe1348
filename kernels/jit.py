"""The one decorator of every kernel: nopython, without the GIL, cached on disk and never stale."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def _hash_of_sources() -> str:
    """Hash of every file of this folder, in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


_SOURCES = _hash_of_sources()


def _label_files(cache_file: Any) -> None:
    """Write into each file of machine code what it is for, and believe no file that says something else.

    Numba numbers these files by an index. Of two processes that read the index before either has written it,
    both take the same number; what the index then says of that file may be wrong, and calling code compiled for
    other types corrupts memory.
    """
    save, load = cache_file.save, cache_file.load

    def save_labelled(key: Any, data: Any) -> None:
        save(key, (cache_file._source_stamp, key, data))

    def load_labelled(key: Any) -> Any:
        found = load(key)
        if found is None or found[:2] != (cache_file._source_stamp, key):
            return None  # compiled anew, and saved in its place
        return found[2]

    cache_file.save, cache_file.load = save_labelled, load_labelled


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder to write to
        return njit(**options)(function)
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, _SOURCES)
        _label_files(cache_file)
    elif hasattr(compiled, "py_func"):  # another numba, whose stamp we cannot widen: rather slow than stale
        return njit(**options)(function)
    return compiled


def kernel(function: Callable[..., Any]) -> Any:
    """Compile ``function`` with numba; cache the machine code under a stamp of all kernel sources.

    Numba stamps a cached function with its own file only, so a caller would keep the old code of a callee that
    changed in another file. The stamp is widened here to every file of ``kernels/``. Where no folder can be
    written (read-only install without a home) the kernel is compiled anew in each process.
    """
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as ``kernel`` does, and always inline: for the few lines that run once a transition."""
    return _compile(function, forceinline=True)


def reassociated(function: Callable[..., Any]) -> Any:
    """Compile as ``kernel`` does, with sums in any order: for dot products, which vectorise only so."""
    return _compile(function, fastmath={"reassoc", "nsz", "contract"})
