"""An algorithm with settings of its own in one line of text, `NAME?key=value&key=value`, as models are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fastcmdp.algorithms import algorithm
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.spec import parse_settings
from fastcmdp.errors import SettingError
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import unknown


def name_of(item: object) -> str | None:
    """The name of a method that is given by name or by its class of settings; None: it is neither."""
    if isinstance(item, type) and issubclass(item, Algorithm):
        return getattr(item, "name", None)
    return item if isinstance(item, str) else None


@dataclass(frozen=True)
class Variant:
    """An algorithm whose schedule is still to be made, with settings that stay as they are.

    Attributes
    ----------
    label : str
        As it was written: the name, and the settings after a question mark.
    algorithm : class of settings
    settings : mapping
        Fields of the class but ``outer``, and parameters of its ``for_epsilon``.
    """

    label: str
    algorithm: type[Algorithm]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def for_samples(
        self, cmdp: CMDP | Simulator, samples: float, constants: Mapping[str, Any] | None = None
    ) -> Algorithm:
        """Settings whose run is expected to draw ``samples`` transitions; own settings win over ``constants``."""
        return self.algorithm.for_samples(cmdp, samples, **(dict(constants or {}) | dict(self.settings)))

    def shortest(self) -> Algorithm:
        """Settings of a run that is over at once and calls the same kernels."""
        names = self.algorithm.setting_names()
        own = {key: value for key, value in self.settings.items() if key in names}
        return replace(self.algorithm.shortest(), **own)

    @property
    def searched(self) -> dict[str, tuple[float, float]]:
        """Ranges of the constants that a search may vary: those that the settings do not fix."""
        return {key: span for key, span in self.algorithm.constants.items() if key not in self.settings}


def variant(text: str) -> Variant:
    """Read `NAME` or `NAME?key=value&...`.

    Raises
    ------
    SettingError
        An unknown name or key, a key twice, a value out of range; the message names the nearest valid one.

    Examples
    --------
    >>> found = variant("pd-anpg?method=sgd&average=uniform")
    >>> found.algorithm.name, found.settings
    ('pd-anpg', {'method': 'sgd', 'average': 'uniform'})
    """
    text = text.strip()
    name, question, query = text.partition("?")
    method = algorithm(name)
    names = {*method.setting_names(), *method.schedule_names()} - {"outer"}
    settings: dict[str, Any] = parse_settings(query.split("&") if question else (), repr(text))
    for key in settings:
        if key == "outer":
            raise SettingError(f"{text!r}: outer follows from the budget of samples; leave it out")
        if key not in names | set(method.constants):
            raise SettingError(
                f"{text!r}: " + unknown(f"setting of {name}", key, names | set(method.constants))
            )
    try:
        method(**{key: value for key, value in settings.items() if key in method.setting_names()})
    except (TypeError, ValueError) as error:
        raise SettingError(f"{text!r}: {error}") from error
    return Variant(text, method, settings)
