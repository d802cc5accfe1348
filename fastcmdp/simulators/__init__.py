"""Problems that are simulated: the user's own, ready ones, and Gymnasium environments stepped in Python."""

from __future__ import annotations

from fastcmdp.simulators.fleet import delivery_fleet
from fastcmdp.simulators.gym import GymSimulator
from fastcmdp.simulators.inventories import inventory, inventory_table
from fastcmdp.simulators.linear import linear_quadratic
from fastcmdp.simulators.markets import marketing
from fastcmdp.simulators.queues import tandem_queue, tandem_queue_table
from fastcmdp.simulators.simulator import SimulatedValue, Simulator

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
