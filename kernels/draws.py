"""Draws from one stream: uniform, normal, exponential, geometric and categorical numbers.

A stream ``rng`` is a uint64[4]: words a, b, c and the counter of SFC64, as ``numpy.random.SFC64`` holds them. Every
draw advances it by exactly one word, so a plain program replays any mixture of them, and changing a parameter of
one draw leaves all later draws where they were (common random numbers).
"""

from __future__ import annotations

import math

import numpy as np

from fastcmdp.kernels.jit import inlined, kernel
from fastcmdp.kernels.streams import sfc64, to_unit
from fastcmdp.kernels.typed import require_stream
from fastcmdp.kernels.words import U64

_SMALLER = 2.0**-64


@inlined
def word(rng):
    """The next 64 random bits (uint64): streams.next_word on a stream of its own; ValueError if it is no uint64."""
    require_stream(rng)
    drawn, rng[0], rng[1], rng[2], rng[3] = sfc64(rng[0], rng[1], rng[2], rng[3])
    return drawn


@inlined
def uniform(rng):
    """A double in [0, 1), a multiple of 2^-53: numpy's ``Generator(SFC64).random()`` bit for bit."""
    return to_unit(word(rng))


@inlined
def exponential(rng):
    """An exponential number of mean 1, at most 36.8: -log(1 - U)."""
    return -math.log(1.0 - uniform(rng))


@inlined
def geometric(rng, gamma):
    """T in {0, 1, 2, ...} with Pr(T = t) = (1-gamma) gamma^t, 0 < gamma < 1 (int64): numpy's draw minus one."""
    return np.int64(math.log(1.0 - uniform(rng)) * (1.0 / math.log(gamma)))


@inlined
def _eighth(c0, c1, c2, c3, c4, c5, c6, c7, x):
    """The polynomial with these eight coefficients, constant first, by Horner's rule."""
    return ((((((c7 * x + c6) * x + c5) * x + c4) * x + c3) * x + c2) * x + c1) * x + c0


@kernel
def normal_quantile(p):
    """z with Phi(z) = p for 0 < p < 1, to 16 digits: Wichura's PPND16 (Algorithm AS 241, 1988)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        above = _eighth(
            3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
            4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3, r,
        )  # fmt: skip
        below = _eighth(
            1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
            2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3, r,
        )  # fmt: skip
        return q * above / below
    r = math.sqrt(-math.log(p if q <= 0.0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        above = _eighth(
            1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
            1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2,
            7.74545014278341407640e-4, r,
        )  # fmt: skip
        below = _eighth(
            1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
            1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
            1.05075007164441684324e-9, r,
        )  # fmt: skip
    else:
        r -= 5.0
        above = _eighth(
            6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
            2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
            2.01033439929228813265e-7, r,
        )  # fmt: skip
        below = _eighth(
            1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
            7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
            2.04426310338993978564e-15, r,
        )  # fmt: skip
    return -above / below if q < 0.0 else above / below


@inlined
def normal(rng):
    """A standard normal number, at most 8.2 in size: the quantile of 52 bits, each in the middle of its cell."""
    middle = ((word(rng) >> U64(12)) + 0.5) * 2.0**-52  # p as likely as 1 - p, and never 0 or 1
    return normal_quantile(middle)


@kernel
def categorical(rng, weight):
    """i with probability weight[i] / sum(weight), never one of weight 0 (int64).

    weight : float64[n], finite, none negative, not all 0 (then -1); a scan, for rows of up to some dozens
    """
    total, unit = 0.0, 1.0
    for i in range(weight.shape[0]):
        total += weight[i]
    if total == math.inf:  # the sum has overflowed: once more, in smaller units
        total, unit = 0.0, _SMALLER
        for i in range(weight.shape[0]):
            total += unit * weight[i]
    left = uniform(rng) * total
    last = -1
    for i in range(weight.shape[0]):
        if weight[i] > 0.0:
            last = i
            left -= unit * weight[i]
            if left < 0.0:
                break
    return last
