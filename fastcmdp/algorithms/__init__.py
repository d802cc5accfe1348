"""The algorithms: one file each, and the one list of them."""

from __future__ import annotations

from fastcmdp.algorithms.al_pqa import ALPQA
from fastcmdp.algorithms.arnpg_epd import ARNPG
from fastcmdp.algorithms.base import Algorithm
from fastcmdp.algorithms.c_npg_pda import CNPGPDA
from fastcmdp.algorithms.c_pg import CPG
from fastcmdp.algorithms.crpo import CRPO
from fastcmdp.algorithms.crpo_softmax import CRPOSoftmax
from fastcmdp.algorithms.lb_sgd import LBSGD
from fastcmdp.algorithms.npg_pd import NPGPD
from fastcmdp.algorithms.npg_pd_softmax import NPGPDSoftmax
from fastcmdp.algorithms.opg_pd import OPGPD
from fastcmdp.algorithms.pd_anpg import PDANPG
from fastcmdp.algorithms.pd_anpg_cv import PDANPGCV
from fastcmdp.algorithms.pd_nac import PDNAC
from fastcmdp.algorithms.pd_nac_average import PDNACAverage
from fastcmdp.algorithms.pdr_anpg import PDRANPG
from fastcmdp.algorithms.pi_pd import PIPD
from fastcmdp.algorithms.pmd_pd import PMDPD
from fastcmdp.algorithms.reload import ReLOAD
from fastcmdp.algorithms.rpg_pd import RPGPD
from fastcmdp.errors import SettingError
from fastcmdp.text import unknown

ALGORITHMS: dict[str, type[Algorithm]] = {
    method.name: method
    for method in (
        PDANPG,
        PDANPGCV,
        NPGPD,
        NPGPDSoftmax,
        CNPGPDA,
        CRPO,
        CRPOSoftmax,
        PMDPD,
        PDNAC,
        PDNACAverage,
        PDRANPG,
        RPGPD,
        OPGPD,
        ReLOAD,
        PIPD,
        ALPQA,
        ARNPG,
        CPG,
        LBSGD,
    )
}

__all__ = [
    "ALGORITHMS",
    "ALPQA",
    "ARNPG",
    "CNPGPDA",
    "CPG",
    "CRPO",
    "LBSGD",
    "NPGPD",
    "OPGPD",
    "PDANPG",
    "PDANPGCV",
    "PDNAC",
    "PDRANPG",
    "PIPD",
    "PMDPD",
    "RPGPD",
    "Algorithm",
    "CRPOSoftmax",
    "NPGPDSoftmax",
    "PDNACAverage",
    "ReLOAD",
    "algorithm",
    "check_simulation",
]


def algorithm(name: str) -> type[Algorithm]:
    """Class of settings of the algorithm with this command-line name.

    Raises
    ------
    SettingError
        No such algorithm; the message lists them and names the nearest.

    Examples
    --------
    >>> algorithm("pd-anpg")(outer=10).outer
    10
    """
    if name not in ALGORITHMS:
        raise SettingError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[name]


def check_simulation(method: type[Algorithm]) -> None:
    """Raise a SettingError, with the methods to take instead, unless the method runs on simulators."""
    if not method.simulation:
        others = [f"{name} ({kind.__name__})" for name, kind in ALGORITHMS.items() if kind.simulation]
        raise SettingError(
            f"{method.name} needs a model with a table; on simulators run {', '.join(others[:-1])} or {others[-1]}"
        )
