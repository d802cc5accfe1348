"""Policy classes by name, as the command line and the specifications of sweeps give them.

    tabular                     one parameter a choice; the default for models with a table
    log-linear:FEATURES.npy     logits linear in the features, a row a choice; for a simulator log-linear alone
    neural:32                   a network over the states, one hidden layer of 32 units; two layers: neural:32,16
    neural:32:FEATURES.npy      a network over features, a row a state, or a row a choice
    relu:64                     a two-layer ReLU network with fixed output signs; or relu:64:FEATURES.npy

FEATURES is an array of `numpy.save`, or a sparse one of `scipy.sparse.save_npz`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from fastcmdp.check import require
from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.files import about, opened
from fastcmdp.policies import LogLinear, NeuralSoftmax, Policy, ReluSoftmax, TabularSoftmax
from fastcmdp.simulators.simulator import Simulator
from fastcmdp.text import unknown
from fastcmdp.worlds import has_table

MOST_STATES = 4096  # with one-hot inputs of a network, whose table has the square of that many numbers

Build = Callable[[CMDP | Simulator, "tuple[int, ...]", Any], Policy]


@dataclass(frozen=True)
class PolicyName:
    """A policy class by name; `policy_named` makes one from a text.

    Attributes
    ----------
    kind : str
        A name in `KINDS`.
    widths : tuple of int
        Of hidden layers; empty for classes without.
    features : str or None
        Path of a file.
    """

    kind: str
    widths: tuple[int, ...] = ()
    features: str | None = None

    def __str__(self) -> str:
        parts = (self.kind, ",".join(map(str, self.widths)), self.features)
        return ":".join(part for part in parts if part)

    def path(self, folder: Path = Path()) -> Path | None:
        """The file of features, sought from a folder."""
        return None if self.features is None else folder / self.features

    def build(self, model: CMDP | Simulator, folder: Path = Path()) -> Policy:
        """The policy object for a model.

        Parameters
        ----------
        model : CMDP or Simulator
        folder : Path
            Where the file of features is sought.

        Raises
        ------
        OSError
            The file of features cannot be read.
        ModelError
            It holds no table of numbers, or the class does not go with the model; a number of rows that does not fit
            is told when the policy is bound.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> policy_named("neural:8").build(fc.envs.river_swim())
        NeuralSoftmax(state features of shape (8, 8), hidden=(8,), activation='tanh', seed=0)
        """
        path = self.path(folder)
        return KINDS[self.kind](model, self.widths, None if path is None else read_features(path))


def policy_named(text: str) -> PolicyName:
    """The policy class of a text such as `neural:32`; the module's docstring lists the forms.

    Raises
    ------
    SettingError
        An unknown kind, widths that are no integers from 1 to 65,536, a class without its features or widths.

    Examples
    --------
    >>> policy_named("neural:32,16:states.npy")
    PolicyName(kind='neural', widths=(32, 16), features='states.npy')
    >>> policy_named("neural")
    Traceback (most recent call last):
    fastcmdp.errors.SettingError: policy = 'neural': neural:WIDTH or neural:WIDTH,WIDTH is expected
    """
    require(isinstance(text, str) and text, "policy", text, "a name such as tabular or neural:32")
    kind, colon, rest = text.partition(":")
    if kind not in KINDS:
        raise SettingError(unknown("policy", kind, KINDS))
    if kind == "tabular":
        require(not colon, "policy", text, "tabular, with nothing after it,")
        return PolicyName(kind)
    if kind == "log-linear":
        require(rest or not colon, "policy", text, "log-linear:FEATURES.npy")
        return PolicyName(kind, features=rest or None)
    numbers, colon, features = rest.partition(":")
    most = 2 if kind == "neural" else 1
    widths = tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in numbers.split(","))
    accepted = " or ".join(f"{kind}:" + ",".join(["WIDTH"] * n) for n in range(1, most + 1))
    good = len(widths) <= most and (features or not colon)
    require(numbers and good, "policy", text, accepted)
    require(all(1 <= width <= 65_536 for width in widths), "policy", text, f"{accepted}, widths up to 65536,")
    require(kind != "relu" or widths[0] % 2 == 0, "policy", text, "relu:WIDTH with an even width")
    return PolicyName(kind, widths, features or None)


def read_features(path: Path) -> Any:
    """A table of features from a file of `numpy.save` or of `scipy.sparse.save_npz`.

    Raises
    ------
    OSError
        The file cannot be read.
    ModelError
        It holds no such table.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/phi.npy", np.eye(3))
    ...     read_features(Path(folder) / "phi.npy").shape
    (3, 3)
    """
    with about(path):
        try:
            with opened(path) as file:
                if path.suffix != ".npz":
                    return np.load(file, allow_pickle=False)
                rows = scipy.sparse.csr_array(scipy.sparse.load_npz(file))
                rows.check_format(full_check=True)
                return rows
        except (ValueError, EOFError, KeyError, NotImplementedError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"no table of features: numpy.save writes one, {error}") from error


def _log_linear(model: CMDP | Simulator, widths: tuple[int, ...], features: Any) -> Policy:
    if features is None and has_table(model):
        raise ModelError(
            "log-linear has no features: give log-linear:FEATURES.npy, a row a choice of the model"
        )
    return LogLinear(features)


def _neural(model: CMDP | Simulator, widths: tuple[int, ...], features: Any) -> Policy:
    if not has_table(model):
        return NeuralSoftmax(features, hidden=widths)
    if features is None:
        if model.n_states > MOST_STATES:
            raise ModelError(
                f"a network over {model.n_states:,} states without features: give neural:WIDTH:FEATURES.npy, a row a "
                f"state; a one-hot input serves up to {MOST_STATES:,} states"
            )
        return NeuralSoftmax(np.eye(model.n_states), hidden=widths)
    n_rows = features.shape[0] if features.ndim else 0
    by_choice = n_rows == model.n_choices and n_rows != model.n_states
    return (
        NeuralSoftmax(choice_features=features, hidden=widths)
        if by_choice
        else NeuralSoftmax(features, hidden=widths)
    )


def _relu(model: CMDP | Simulator, widths: tuple[int, ...], features: Any) -> Policy:
    if features is None and has_table(model):
        features = scipy.sparse.eye_array(model.n_choices, format="csr")
    if features is None:
        raise ModelError(
            "relu goes with models that have a table; for a simulator give log-linear or neural:WIDTH"
        )
    return ReluSoftmax(features, widths[0])


KINDS: dict[str, Build] = {
    "tabular": lambda model, widths, features: TabularSoftmax(),
    "log-linear": _log_linear,
    "neural": _neural,
    "relu": _relu,
}
"""What builds the policy of a model, by name."""

__all__ = ["KINDS", "PolicyName", "policy_named", "read_features"]
