"""Eight numbers side by side in one register: a row of an array (n, 8), and arithmetic on all of them at once.

The compiler does not find this by itself: it takes a loop over eight columns apart before it looks for vectors.
Products and sums are rounded one by one, so a lane has the bits that plain loops give it, on any processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

LANES = 8
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_ZEROS = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)


class Lanes(types.Type):
    """The type of such a register in kernels."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(Lanes)
class _Register(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_lanes = Lanes()


def _place(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    first = builder.gep(data, [builder.mul(row, ir.Constant(row.type, LANES))])
    return builder.bitcast(first, _VECTOR.as_pointer())


def _repeated(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, _ZEROS)


@intrinsic
def load(typing, array, row):
    """A row of an array (n, 8)."""

    def generate(context, builder, signature, args):
        lanes = builder.load(_place(context, builder, signature.args[0], *args))
        lanes.align = 8
        return lanes

    return _lanes(array, types.uint64), generate


@intrinsic
def store(typing, array, row, lanes):
    """Put it there."""

    def generate(context, builder, signature, args):
        builder.store(args[2], _place(context, builder, signature.args[0], *args[:2])).align = 8
        return context.get_dummy_value()

    return types.void(array, types.uint64, _lanes), generate


@intrinsic
def all_of(typing, number):
    """The same number in all lanes."""
    return _lanes(types.float64), lambda context, builder, signature, args: _repeated(builder, args[0])


@intrinsic
def add_scaled(typing, lanes, factor, others):
    """lanes + factor * others."""

    def generate(context, builder, signature, args):
        return builder.fadd(args[0], builder.fmul(_repeated(builder, args[1]), args[2]))

    return _lanes(_lanes, types.float64, _lanes), generate


def _chosen(comparison: str) -> Any:
    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(comparison, args[0], args[1]), args[2], args[3])

    return _lanes(_lanes, _lanes, _lanes, _lanes), generate


@intrinsic
def where_greater(typing, left, right, then, otherwise):
    """``then`` in lanes where left > right."""
    return _chosen(">")


@intrinsic
def where_equal(typing, left, right, then, otherwise):
    """``then`` in lanes where left == right."""
    return _chosen("==")
