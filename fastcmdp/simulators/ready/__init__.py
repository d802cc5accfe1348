"""Ready simulators: a file each."""

from __future__ import annotations

from fastcmdp.simulators.ready.fleet import delivery_fleet
from fastcmdp.simulators.ready.inventories import inventory, inventory_table
from fastcmdp.simulators.ready.linear import linear_quadratic
from fastcmdp.simulators.ready.markets import marketing
from fastcmdp.simulators.ready.queues import tandem_queue, tandem_queue_table

__all__ = [
    "delivery_fleet",
    "inventory",
    "inventory_table",
    "linear_quadratic",
    "marketing",
    "tandem_queue",
    "tandem_queue_table",
]
