"""Problems that are simulated: the user's own, ready ones, and Gymnasium environments stepped in Python."""

from __future__ import annotations

from fastcmdp.simulators.estimates import SimulatedValue
from fastcmdp.simulators.gym import GymSimulator
from fastcmdp.simulators.ready import (
    delivery_fleet,
    inventory,
    inventory_table,
    linear_quadratic,
    marketing,
    tandem_queue,
    tandem_queue_table,
)
from fastcmdp.simulators.simulator import Simulator

__all__ = [
    "GymSimulator",
    "SimulatedValue",
    "Simulator",
    "delivery_fleet",
    "inventory",
    "inventory_table",
    "linear_quadratic",
    "marketing",
    "tandem_queue",
    "tandem_queue_table",
]
