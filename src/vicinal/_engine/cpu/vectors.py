"""Compiled: the products of the pairwise computations, written as vector instructions.

LLVM's own vectoriser keeps sums over coordinates in memory, and spends seconds on it in every kernel that uses them.  Here they
stay in registers: four rows by one vector of points.  Unless a function says otherwise, rows are as long as a whole number of
vectors of WIDE bytes; the last axis of every array is contiguous.  Neither is checked.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from vicinal._engine.work.compiling import Intrinsic

WIDE = 64  # bytes of points that are processed at a time: two registers of AVX2, one of AVX-512
_NARROW = 32  # bytes of a sum that is kept per row and column, such that eight of them fit into registers beside their operands
_FUSED = ("contract",)  # a product and a sum may be one instruction

_Emit = Callable[[Any, Any, Any, Any], Any]


class _Rows:
    """An array of one or two axes in generated code: where its numbers are."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        array = context.make_array(kind)(context, builder, value)
        self.real = context.get_data_type(kind.dtype)
        self.bytes = kind.dtype.bitwidth // 8
        self._data = array.data
        self.shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        self._strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)

    def _pointer(self, row: Any, column: Any, kind: Any) -> Any:
        builder = self._builder
        offset = builder.mul(column, ir.Constant(column.type, self.bytes))
        if row is not None:
            offset = builder.add(offset, builder.mul(row, self._strides[0]))
        return cgutils.pointer_add(builder, self._data, offset, return_type=kind.as_pointer())

    def number(self, row: Any, column: Any) -> Any:
        return self._builder.load(self._pointer(row, column, self.real))

    def set_number(self, row: Any, column: Any, value: Any) -> None:
        self._builder.store(value, self._pointer(row, column, self.real))

    def vector(self, row: Any, column: Any, kind: Any) -> Any:
        return self._builder.load(self._pointer(row, column, kind), align=self.bytes)

    def set_vector(self, row: Any, column: Any, value: Any) -> None:
        self._builder.store(value, self._pointer(row, column, value.type), align=self.bytes)


def _splat(builder: Any, number: Any, kind: Any) -> Any:
    """Return a vector of equal numbers."""
    lane = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, lane)
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count))


def _loop(builder: Any, stop: Any, step: int = 1, start: Any = None) -> Any:
    start = ir.Constant(stop.type, 0) if start is None else start
    return cgutils.for_range_slice(builder, start, stop, ir.Constant(stop.type, step), inc=True)


def _rows_by_points(
    term: Callable[[Any, Any, Any, Any], Any], n_rows: int = 4, judged: bool = False, any_length: bool = False
) -> _Emit:
    """Code for ``out[r, j] = start_j + sum_k term(q_rk, z_kj)``; `term` adds to a sum.

    If `judged`, bit j of reached[r] states whether ``out[r, j] - lift[r] >= min(own[r], others[j])``; there are
    at most 64 of them.  With `any_length`, points beyond the last whole vector are processed one by one, and start_j is 0.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = [0, n_rows + 1, *range(n_rows + 2, n_rows + (3 if any_length else 4))]
        queries, tile, *start, out = (_Rows(context, builder, signature.args[at], args[at]) for at in places)
        rows = [builder.sext(row, ir.IntType(64)) if row.type.width < 64 else row for row in args[1 : n_rows + 1]]

        def take(kind: Any, j: Any, sums: list[Any]) -> list[Any]:
            first = start[0].vector(None, j, kind) if start else ir.Constant(kind, [0.0] * kind.count)
            for total in sums:
                builder.store(first, total)
            with _loop(builder, tile.shape[0]) as (k, _):
                points = tile.vector(k, j, kind)
                for row, total in zip(rows, sums, strict=True):
                    query = _splat(builder, queries.number(row, k), kind)
                    builder.store(term(builder, query, points, builder.load(total)), total)
            scores = [builder.load(total) for total in sums]
            for r, score in enumerate(scores):
                out.set_vector(ir.Constant(j.type, r), j, score)
            return scores

        kind, n = ir.VectorType(tile.real, WIDE // tile.bytes), tile.shape[1]
        sums = [cgutils.alloca_once(builder, kind) for _ in rows]
        judge = _Judge(context, builder, signature, args, kind) if judged else None
        whole = builder.and_(n, ir.Constant(n.type, -kind.count)) if any_length else n
        with _loop(builder, whole, kind.count) as (j, _):
            scores = take(kind, j, sums)
            if judge is not None:
                judge.take(j, scores)
        if any_length:
            one = ir.VectorType(tile.real, 1)
            few = [cgutils.alloca_once(builder, one) for _ in rows]
            with _loop(builder, n, start=whole) as (j, _):
                take(one, j, few)
        if judge is not None:
            judge.finish()
        return context.get_dummy_value()

    return codegen


class _Judge:
    """Generated code that determines which scores reach their levels: arguments 8 to 11 are own, lift, others and reached."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> None:
        self._builder, bits = builder, ir.IntType(64)
        # One register at a time, because wider comparisons would be split into single numbers.
        self._kind = kind = ir.VectorType(kind.element, kind.count * _NARROW // WIDE)
        own, lift, self._others, self._reached = (
            _Rows(context, builder, signature.args[at], args[at]) for at in (8, 9, 10, 11)
        )
        self._rows = [ir.Constant(bits, r) for r in range(4)]
        self._own, self._lift = (
            [_splat(builder, array.number(None, row), kind) for row in self._rows] for array in (own, lift)
        )
        self._masks = [cgutils.alloca_once(builder, bits) for _ in self._rows]
        for mask in self._masks:
            builder.store(ir.Constant(bits, 0), mask)

    def take(self, j: Any, scores: list[Any]) -> None:
        builder, width = self._builder, self._kind.count
        for first in range(0, scores[0].type.count, width):
            place = builder.add(j, ir.Constant(j.type, first))
            theirs = self._others.vector(None, place, self._kind)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(first, first + width)))
            for own, lift, wide, mask in zip(self._own, self._lift, scores, self._masks, strict=True):
                score = builder.shuffle_vector(wide, wide, lanes)
                level = builder.select(builder.fcmp_ordered("<", own, theirs), own, theirs)
                reached = builder.fcmp_ordered(">=", builder.fsub(score, lift), level)
                bits = builder.zext(builder.bitcast(reached, ir.IntType(width)), ir.IntType(64))
                builder.store(builder.or_(builder.load(mask), builder.shl(bits, place)), mask)

    def finish(self) -> None:
        for row, mask in zip(self._rows, self._masks, strict=True):
            self._reached.set_number(None, row, self._builder.load(mask))


def _product(builder: Any, query: Any, points: Any, total: Any) -> Any:
    return builder.fadd(total, builder.fmul(query, points, flags=_FUSED), flags=_FUSED)


def _minus_half_square(builder: Any, query: Any, points: Any, total: Any) -> Any:
    difference = builder.fsub(query, points, flags=_FUSED)
    half = builder.fmul(difference, _splat(builder, ir.Constant(points.type.element, -0.5), points.type), flags=_FUSED)
    return builder.fadd(total, builder.fmul(half, difference, flags=_FUSED), flags=_FUSED)


@intrinsic
def products(
    typing_context: Any, queries: Any, i0: Any, i1: Any, i2: Any, i3: Any, tile: Any, start: Any, out: Any
) -> Intrinsic:
    """out[r, j] = start[j] + queries[i_r]'tile[:, j] for four rows."""
    return types.void(queries, i0, i1, i2, i3, tile, start, out), _rows_by_points(_product)


@intrinsic
def products_alone(
    typing_context: Any, queries: Any, i0: Any, i1: Any, i2: Any, i3: Any, tile: Any, out: Any
) -> Intrinsic:
    """out[r, j] = queries[i_r]'tile[:, j] for four rows and any number of points."""
    return types.void(queries, i0, i1, i2, i3, tile, out), _rows_by_points(_product, any_length=True)


@intrinsic
def differences_alone(
    typing_context: Any, queries: Any, i0: Any, i1: Any, i2: Any, i3: Any, tile: Any, out: Any
) -> Intrinsic:
    """out[r, j] = -|queries[i_r] - tile[:, j]|^2 / 2 for four rows and any number of points."""
    return types.void(queries, i0, i1, i2, i3, tile, out), _rows_by_points(_minus_half_square, any_length=True)


@intrinsic
def products_of_one(typing_context: Any, queries: Any, i: Any, tile: Any, start: Any, out: Any) -> Intrinsic:
    """out[0, j] = start[j] + queries[i]'tile[:, j]."""
    return types.void(queries, i, tile, start, out), _rows_by_points(_product, n_rows=1)


@intrinsic
def judged_products(
    typing_context: Any,
    queries: Any,
    i0: Any,
    i1: Any,
    i2: Any,
    i3: Any,
    tile: Any,
    start: Any,
    out: Any,
    own: Any,
    lift: Any,
    others: Any,
    reached: Any,
) -> Intrinsic:
    """`products`, and bit j of reached[r] states whether out[r, j] - lift[r] >= min(own[r], others[j]); 64 columns at most."""
    signature = types.void(queries, i0, i1, i2, i3, tile, start, out, own, lift, others, reached)
    return signature, _rows_by_points(_product, judged=True)


@intrinsic
def judged_differences(
    typing_context: Any,
    queries: Any,
    i0: Any,
    i1: Any,
    i2: Any,
    i3: Any,
    tile: Any,
    start: Any,
    out: Any,
    own: Any,
    lift: Any,
    others: Any,
    reached: Any,
) -> Intrinsic:
    """The same for `differences`."""
    signature = types.void(queries, i0, i1, i2, i3, tile, start, out, own, lift, others, reached)
    return signature, _rows_by_points(_minus_half_square, judged=True)


@intrinsic
def n_bits(typing_context: Any, bits: Any) -> Intrinsic:
    """Return how many bits of an integer are set."""
    return bits(bits), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_bit(typing_context: Any, bits: Any) -> Intrinsic:
    """Return the place of the lowest bit that is set, of an integer that is not 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return bits(bits), codegen


@intrinsic
def differences(
    typing_context: Any, queries: Any, i0: Any, i1: Any, i2: Any, i3: Any, tile: Any, start: Any, out: Any
) -> Intrinsic:
    """out[r, j] = start[j] - |queries[i_r] - tile[:, j]|^2 / 2 for four rows."""
    return types.void(queries, i0, i1, i2, i3, tile, start, out), _rows_by_points(_minus_half_square)


def _sum_of_lanes(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's numbers, by halves."""
    width = vector.type.count
    while width > 1:
        width //= 2
        lanes = ir.VectorType(ir.IntType(32), width)
        low, high = (
            builder.shuffle_vector(vector, vector, ir.Constant(lanes, list(range(first, first + width))))
            for first in (0, width)
        )
        vector = builder.fadd(low, high)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _sums_over_points(columns: int) -> _Emit:
    """Code for ``out[r, l + c] += sum_j weights[r, j] values[k + c, j]`` for four rows and a number of columns c."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights, values, out = (_Rows(context, builder, signature.args[at], args[at]) for at in (0, 1, 3))
        k, l = args[2], args[4]
        kind = ir.VectorType(weights.real, _NARROW // weights.bytes)
        sources, places = ([builder.add(at, ir.Constant(at.type, c)) for c in range(columns)] for at in (k, l))
        rows = [ir.Constant(k.type, r) for r in range(4)]
        sums = [[cgutils.alloca_once(builder, kind) for _ in places] for _ in rows]
        for total in (total for row in sums for total in row):
            builder.store(ir.Constant(kind, [0.0] * kind.count), total)
        with _loop(builder, weights.shape[1], kind.count) as (j, _):
            theirs = [values.vector(source, j, kind) for source in sources]
            for row, totals in zip(rows, sums, strict=True):
                mine = weights.vector(row, j, kind)
                for column, total in zip(theirs, totals, strict=True):
                    builder.store(_product(builder, mine, column, builder.load(total)), total)
        for row, totals in zip(rows, sums, strict=True):
            for place, total in zip(places, totals, strict=True):
                found = _sum_of_lanes(builder, builder.load(total))
                if found.type != out.real:
                    found = builder.fpext(found, out.real)
                out.set_number(row, place, builder.fadd(out.number(row, place), found))
        return context.get_dummy_value()

    return codegen


@intrinsic
def two_dots(typing_context: Any, weights: Any, values: Any, k: Any, out: Any, l: Any) -> Intrinsic:
    """out[r, l + c] += sum_j weights[r, j] values[k + c, j] for four rows and c = 0, 1."""
    return types.void(weights, values, k, out, l), _sums_over_points(2)


@intrinsic
def one_dot(typing_context: Any, weights: Any, values: Any, k: Any, out: Any, l: Any) -> Intrinsic:
    """out[r, l] += sum_j weights[r, j] values[k, j] for four rows."""
    return types.void(weights, values, k, out, l), _sums_over_points(1)


def _outer_products(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    weights, queries, out = (_Rows(context, builder, signature.args[at], args[at]) for at in (0, 1, 6))
    kind = ir.VectorType(weights.real, WIDE // weights.bytes)
    with _loop(builder, weights.shape[1], kind.count) as (j, _):
        theirs = [weights.vector(ir.Constant(j.type, r), j, kind) for r in range(4)]
        with _loop(builder, queries.shape[1]) as (k, _):
            before = out.vector(k, j, ir.VectorType(out.real, kind.count))
            same = before.type == kind
            total = before if same else ir.Constant(kind, [0.0] * kind.count)
            for row, weight in zip(args[2:6], theirs, strict=True):
                total = _product(builder, _splat(builder, queries.number(row, k), kind), weight, total)
            out.set_vector(k, j, total if same else builder.fadd(before, builder.fpext(total, before.type)))
    return context.get_dummy_value()


@intrinsic
def add_outer(
    typing_context: Any, weights: Any, queries: Any, i0: Any, i1: Any, i2: Any, i3: Any, out: Any
) -> Intrinsic:
    """out[k, j] += sum_r queries[i_r, k] weights[r, j] for four rows; `out` may be of a higher precision."""
    return types.void(weights, queries, i0, i1, i2, i3, out), _outer_products
