"""Problems to solve: generators with an active constraint by default, Gymnasium environments as models and back.

Gymnasium itself is imported when `from_gymnasium` is given an id or `to_gymnasium` makes an environment, never before.
"""

from __future__ import annotations

from fastcmdp.envs.applications import dam, maintenance, taxi, treatment, two_echelon, wireless
from fastcmdp.envs.chains import inventory, queue, river_swim
from fastcmdp.envs.garnets import garnet
from fastcmdp.envs.grids import grid_world, resource_gathering
from fastcmdp.envs.gym import from_gymnasium
from fastcmdp.envs.hard import hard_instance, hard_optimum
from fastcmdp.envs.limits import halfway_limit
from fastcmdp.envs.spec import GENERATORS, from_spec
from fastcmdp.envs.steps import from_steps
from fastcmdp.envs.to_gym import to_gymnasium, to_gymnasium_vector

__all__ = [
    "GENERATORS",
    "dam",
    "from_gymnasium",
    "from_spec",
    "from_steps",
    "garnet",
    "grid_world",
    "halfway_limit",
    "hard_instance",
    "hard_optimum",
    "inventory",
    "maintenance",
    "queue",
    "resource_gathering",
    "river_swim",
    "taxi",
    "to_gymnasium",
    "to_gymnasium_vector",
    "treatment",
    "two_echelon",
    "wireless",
]
