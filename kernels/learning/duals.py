"""Dual steps: how a multiplier follows the violation of its limit. A small function each form.

Each takes the memory of one multiplier, float64[width], zeros at the start, and returns the multiplier to use from now
on. memory[0] counts the steps, memory[1] is the multiplier or what has been integrated. ``violation`` is positive
where the limit is missed, ``rate`` multiplies all gains, ``pace`` is the angular frequency (radians a step) at which
multiplier and policy would swing without damping, of use to `Damped` alone. The functions are plain Python as well as
numba's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastcmdp.kernels.dispatch import generic


class Ascent(NamedTuple):
    """Projected ascent: lambda <- clip(lambda + rate e, 0, cap)."""


class Ridge(NamedTuple):
    """Projected ascent that forgets: lambda <- clip((1 - rate tau) lambda + rate e, 0, cap)."""

    tau: float


class PI(NamedTuple):
    """Integral and filtered proportional part: I <- clip(I + rate e, 0, cap), lambda = clip(I + rate lead s, 0, cap).

    s <- s + share (e - s), and s = e at first. With share 1 the augmented Lagrangian's multiplier of penalty rate lead,
    and with lead 1 as well that of optimistic ascent with a projected base.
    """

    lead: float
    share: float


class Damped(NamedTuple):
    """PI with gains for a damping ratio: lead = 2 damping / pace, share = min(1, follow pace)."""

    damping: float
    follow: float


class NuPI(NamedTuple):
    """PI in increments: x <- nu x + (1-nu) e, lambda <- clip(lambda + rate (e + lead (x_new - x_old)), 0, cap)."""

    lead: float
    nu: float


class Optimistic(NamedTuple):
    """Optimistic ascent: lambda <- clip(lambda + rate (2 e - e of the step before), 0, cap); e twice at first."""


class PID(NamedTuple):
    """The PID controller of deep-RL libraries: gains are rate times these.

    I <- max(0, I + rate integral e);  p <- smooth p + (1-smooth) e;  c <- smooth_cost c + (1-smooth_cost) (e + limit);
    d = max(0, c - c of ``delay`` steps before, 0 at first);  lambda = clip(I + rate (proportional p + derivative d)).
    """

    integral: float
    proportional: float
    derivative: float
    smooth: float
    smooth_cost: float
    delay: int
    limit: float


class Modified(NamedTuple):
    """A multiplier that is never below the negative of its next step: lambda <- max(lambda + rate e, -rate e).

    What the policy's step uses is lambda + rate e, which is therefore at least 0; there is no cap.
    """


def width(form: Any) -> int:
    """Numbers of memory that one multiplier of this form needs."""
    return 4 + form.delay if isinstance(form, PID) else 3


@generic("form")
def move(form, memory, violation, rate, pace, cap):
    """One dual step: the memory moves on, the multiplier to use from now on is returned."""


@move.on(Ascent)
def move_plain(form, memory, violation, rate, pace, cap):
    memory[0] += 1.0
    memory[1] = min(max(memory[1] + rate * violation, 0.0), cap)
    return memory[1]


@move.on(Ridge)
def move_ridge(form, memory, violation, rate, pace, cap):
    memory[0] += 1.0
    kept = max(1.0 - rate * form.tau, 0.0)
    memory[1] = min(max(kept * memory[1] + rate * violation, 0.0), cap)
    return memory[1]


@move.on(PI)
def move_pi(form, memory, violation, rate, pace, cap):
    if memory[0] == 0.0:
        memory[2] = violation
    memory[0] += 1.0
    memory[2] += form.share * (violation - memory[2])
    memory[1] = min(max(memory[1] + rate * violation, 0.0), cap)
    return min(max(memory[1] + rate * form.lead * memory[2], 0.0), cap)


@move.on(Damped)
def move_damped(form, memory, violation, rate, pace, cap):
    if memory[0] == 0.0:
        memory[2] = violation
    memory[0] += 1.0
    memory[2] += min(form.follow * pace, 1.0) * (violation - memory[2])
    memory[1] = min(max(memory[1] + rate * violation, 0.0), cap)
    return min(max(memory[1] + rate * (2.0 * form.damping / pace) * memory[2], 0.0), cap)


@move.on(NuPI)
def move_nu_pi(form, memory, violation, rate, pace, cap):
    if memory[0] == 0.0:
        memory[2] = violation
    memory[0] += 1.0
    before = memory[2]
    memory[2] = form.nu * before + (1.0 - form.nu) * violation
    step = rate * (violation + form.lead * (memory[2] - before))
    memory[1] = min(max(memory[1] + step, 0.0), cap)
    return memory[1]


@move.on(Optimistic)
def move_optimistic(form, memory, violation, rate, pace, cap):
    before = violation if memory[0] == 0.0 else memory[2]
    memory[0] += 1.0
    memory[2] = violation
    memory[1] = min(max(memory[1] + rate * (2.0 * violation - before), 0.0), cap)
    return memory[1]


@move.on(PID)
def move_pid(form, memory, violation, rate, pace, cap):
    place = 4 + int(memory[0]) % form.delay  # holds the cost of ``delay`` steps before, 0 at first
    memory[0] += 1.0
    memory[1] = max(memory[1] + rate * form.integral * violation, 0.0)
    memory[2] = form.smooth * memory[2] + (1.0 - form.smooth) * violation
    memory[3] = form.smooth_cost * memory[3] + (1.0 - form.smooth_cost) * (violation + form.limit)
    rise = max(memory[3] - memory[place], 0.0)
    memory[place] = memory[3]
    total = memory[1] + rate * (form.proportional * memory[2] + form.derivative * rise)
    return min(max(total, 0.0), cap)


@move.on(Modified)
def move_modified(form, memory, violation, rate, pace, cap):
    memory[0] += 1.0
    memory[1] = max(memory[1] + rate * violation, -rate * violation)
    return memory[1] + rate * violation
