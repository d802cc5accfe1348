"""Problems on a grid: a walk past hazards, and the gathering of resources under attack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastcmdp.check import check_memory, real, whole
from fastcmdp.cmdp import CMDP
from fastcmdp.envs.limits import Limit, with_limit
from fastcmdp.errors import SettingError

# Right, down, left, up as (row, column) steps: neighbours in this cycle are at right angles.
_STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))

_CELL_BYTES = 1500  # of memory for a cell, while the model is built


def grid_world(
    size: int = 6,
    slip: float = 0.1,
    gamma: float = 0.95,
    limit: Limit = None,
    layout: str | Sequence[str] | None = None,
    start: str = "uniform",
) -> CMDP:
    """A walk to a goal, the short way through hazards, the safe way around them.

    Actions 0 to 3 step right, down, left, up. With probability `slip` the step goes to one of the two sides
    instead, each as likely; a step into a wall or off the grid stays. The goal pays 1 and leads back to the
    start cell, whatever the action. A stay in a hazard costs 1 a step. States are the cells that are not
    walls, row by row.

    Parameters
    ----------
    size : int
        Side of the default layout, at least 3: start and goal in the corners of the last row, between them a
        block of hazards, a third as high as the grid.
    slip : float
        Probability in [0, 1] that a step goes aside.
    gamma : float
        Discount factor in (0, 1).
    limit : float or None
        Limit on the discounted number of steps in hazards. None: halfway (`fastcmdp.envs.limits`).
    layout : str or sequence of str, optional
        Rows of cells, as strings or as one string with rows separated by "/": `S` start and `G` goal (one
        each), `H` hazard, `#` wall, `.` free. `size` is then not used.
    start : str
        "uniform" over all cells, or "cell": the start cell.

    Raises
    ------
    SettingError
        A setting is out of range, or the layout is not a grid of such cells.

    Examples
    --------
    >>> from fastcmdp.envs import grid_world
    >>> grid_world(layout="S.G/.H.", slip=0.0, limit=1.0).n_states
    6
    """
    slip, gamma = real("slip", slip, 0.0, 1.0), real("gamma", gamma, 0.0, 1.0, inside=True)
    if start not in ("uniform", "cell"):
        raise SettingError(f"start must be 'uniform' or 'cell', got {start!r}")
    if layout is None:
        side = whole("size", size, 3)
        check_memory(_CELL_BYTES * side**2, size=side)
        rows = _default_layout(side)
    else:
        rows = _checked_layout(layout)
    cells = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell != "#"]
    number = {cell: s for s, cell in enumerate(cells)}
    kinds = [rows[i][j] for i, j in cells]
    home = kinds.index("S")

    choice_to_branch = [0]
    targets: list[int] = []
    probabilities: list[float] = []
    for s, (i, j) in enumerate(cells):
        for action in range(4):
            chance: dict[int, float] = {}
            for turn, probability in ((0, 1.0 - slip), (1, slip / 2), (-1, slip / 2)):
                down, right = _STEPS[(action + turn) % 4]
                arrival = home if kinds[s] == "G" else number.get((i + down, j + right), s)
                chance[arrival] = chance.get(arrival, 0.0) + probability
            targets.extend(chance)
            probabilities.extend(chance.values())
            choice_to_branch.append(len(targets))
    kind = np.array(kinds)
    cmdp = CMDP(
        np.arange(len(cells) + 1) * 4,
        choice_to_branch,
        targets,
        probabilities,
        np.repeat(kind == "G", 4).astype(float),
        np.repeat(kind == "H", 4).astype(float),
        gamma=gamma,
        start=home if start == "cell" else None,
        limits=0.0,
        names=("goal", "hazard"),
    )
    return with_limit(cmdp, limit)


def _default_layout(size: int) -> list[str]:
    high = size // 3
    last = ["S" + "H" * (size - 2) + "G"]
    return ["." * size] * (size - high) + ["." + "H" * (size - 2) + "."] * (high - 1) + last


def _checked_layout(layout: str | Sequence[str]) -> list[str]:
    rows = layout.split("/") if isinstance(layout, str) else list(layout)
    if not all(isinstance(row, str) for row in rows) or len({len(row) for row in rows}) != 1:
        raise SettingError(f"layout must be rows of equal length, got {layout!r}")
    cells = "".join(rows)
    strange = sorted(set(cells) - set("SGH#."))
    if strange:
        raise SettingError(f"layout may hold S, G, H, # and ., got {strange[0]!r}")
    for kind in "SG":
        if cells.count(kind) != 1:
            raise SettingError(f"layout must hold exactly one {kind}, got {cells.count(kind)}")
    return rows


_SIDE = 5
_HOME, _GOLD, _GEM = (3, 1), (3, 5), (5, 4)
_ENEMIES = frozenset({(3, 4), (4, 5)})
# Right, left, top, down as (x, y) steps; y grows upwards.
_MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
_Place = tuple[int, int, bool, bool, bool]


def resource_gathering(gamma: float = 0.95, attack_probability: float = 0.1, limit: Limit = 0.252851) -> CMDP:
    """Gold against enemy attacks on a 5x5 grid: bring home as much gold as the limit on attacks allows.

    Cells are (x, y) with x, y in 1..5. Actions 0 to 3 step right, left, top, down; those that would leave the
    grid do not exist. Who enters the gold's cell (3, 5) or the gem's (5, 4) carries it from then on. Who
    enters an enemy's cell, (3, 4) or (4, 5), is attacked with `attack_probability`: all that was carried is
    lost, and the next state is the home (3, 1), marked as attacked. Each such state costs 1 attack. A step
    home with gold pays 1 and unloads everything; gems are carried but not paid. The start is the home, with
    nothing.

    With the defaults this is the model `resource-gathering` of the QComp benchmark set with B = 0 and nothing
    to collect: 94 states, 302 choices, 326 branches, in the order of a breadth-first search.

    Parameters
    ----------
    gamma : float
        Discount factor in (0, 1).
    attack_probability : float
        Probability in [0, 1] of an attack on entering an enemy's cell.
    limit : float or None
        Limit on the discounted number of attacks. None: halfway (`fastcmdp.envs.limits`). The default is that
        number, to six digits, for the default gamma and probability.

    Raises
    ------
    SettingError
        A setting is out of range.

    References
    ----------
    L. Barrett, S. Narayanan, Learning all optimal policies with multiple criteria, ICML 2008.

    A. Hartmanns, M. Klauck, D. Parker, T. Quatmann, E. Ruijters, The quantitative verification benchmark
    set, TACAS 2019.

    Examples
    --------
    >>> from fastcmdp.envs import resource_gathering
    >>> cmdp = resource_gathering()
    >>> cmdp.n_states, cmdp.n_choices, cmdp.n_branches
    (94, 302, 326)
    """
    gamma = real("gamma", gamma, 0.0, 1.0, inside=True)
    attack = real("attack_probability", attack_probability, 0.0, 1.0)

    # A breadth-first search from home numbers the places; `order` is both the queue and the numbering.
    home: _Place = (*_HOME, False, False, False)
    order = [home]
    number = {home: 0}
    state_to_choice, choice_to_branch = [0], [0]
    targets: list[int] = []
    probabilities: list[float] = []
    actions: list[int] = []
    reward: list[float] = []
    attacks: list[float] = []
    for place in order:
        x, y, gold, _, attacked = place
        for action, (right, top) in enumerate(_MOVES):
            cell = (x + right, y + top)
            if not (1 <= cell[0] <= _SIDE and 1 <= cell[1] <= _SIDE):
                continue
            for next_place, probability in _arrivals(place, cell, attack):
                if next_place not in number:
                    number[next_place] = len(order)
                    order.append(next_place)
                targets.append(number[next_place])
                probabilities.append(probability)
            choice_to_branch.append(len(targets))
            actions.append(action)
            reward.append(float(gold and cell == _HOME))
            attacks.append(float(attacked))
        state_to_choice.append(len(actions))
    cmdp = CMDP(
        state_to_choice,
        choice_to_branch,
        targets,
        probabilities,
        reward,
        attacks,
        gamma=gamma,
        start=0,
        limits=0.0,
        action_of_choice=actions,
        names=("rew_gold", "attacks"),
    )
    return with_limit(cmdp, limit)


def _arrivals(place: _Place, cell: tuple[int, int], attack: float) -> list[tuple[_Place, float]]:
    """What a step to `cell` leads to, the attack first, without what cannot happen."""
    _, _, gold, gem, _ = place
    unloaded = cell == _HOME
    safe: _Place = (
        *cell,
        (gold or cell == _GOLD) and not unloaded,
        (gem or cell == _GEM) and not unloaded,
        False,
    )
    if cell not in _ENEMIES:
        return [(safe, 1.0)]
    struck: _Place = (*_HOME, False, False, True)
    return [(to, p) for to, p in ((struck, attack), (safe, 1.0 - attack)) if p > 0.0]
