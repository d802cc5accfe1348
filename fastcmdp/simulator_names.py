"""Simulators by import path, `simulator:MODULE:NAME?key=value&...`, as the command line and sweeps give them."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

from fastcmdp.envs.spec import parse_settings
from fastcmdp.errors import SettingError
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import unknown
from fastcmdp.worlds import is_simulator

PREFIX = "simulator:"


def names_simulator(spec: str) -> bool:
    """Whether a text names a simulator."""
    return spec.startswith(PREFIX)


def simulator_named(spec: str) -> Simulator:
    """The simulator of `simulator:MODULE:NAME`: a Simulator in that module, or what a function there returns.

    The module is imported, so its code runs: name only modules that you trust. It is sought as by `python -m`: in the
    current folder first. The function is called with the settings after a question mark, read as in `env:NAME?...`.

    Parameters
    ----------
    spec : str

    Raises
    ------
    SettingError
        Not of this form; no such module or name, with the nearest; settings that the function does not take; something
        else than a Simulator comes out.

    Examples
    --------
    >>> simulator_named("simulator:fastcmdp.simulators:tandem_queue?budget=5").n_actions
    4
    """
    path, _, query = spec.removeprefix(PREFIX).partition("?")
    module, _, name = path.partition(":")
    if not names_simulator(spec) or not module or not name:
        raise SettingError(f"a simulator is simulator:MODULE:NAME?key=value&..., got {spec!r}")
    settings = parse_settings(query.split("&") if query else (), repr(spec))
    attribute = getattr(_module(module, spec), name, None)
    if attribute is None:
        names = [
            key for key, value in vars(sys.modules[module]).items() if callable(value) or is_simulator(value)
        ]
        raise SettingError(f"{spec}: {unknown(f'name in {module}', name, [n for n in names if n[0] != '_'])}")
    simulator: Any = attribute
    if not is_simulator(attribute):
        if not callable(attribute):
            raise SettingError(
                f"{spec}: {name} is of type {type(attribute).__name__}; a Simulator is expected, or a function"
            )
        try:
            inspect.signature(attribute).bind(**settings)
        except (TypeError, ValueError) as error:
            raise SettingError(f"{spec}: {name}{inspect.signature(attribute)}: {error}") from error
        simulator = attribute(**settings)
    elif settings:
        raise SettingError(f"{spec}: {name} is a Simulator already and takes no settings")
    if not is_simulator(simulator):
        raise SettingError(f"{spec}: {name} returned a {type(simulator).__name__}; a Simulator is expected")
    return simulator


def _module(name: str, spec: str) -> Any:
    """Import a module, from the current folder too, as Python's own -m does."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError(
            f"{spec}: the module {name!r} cannot be imported ({error}); is it installed, or in {here}?"
        ) from error
