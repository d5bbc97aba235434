"""The engine's tuned constants, in one place.

``python benchmarks/tune.py`` measures those marked "measured" again and prints them beside the values here.  None of
them changes a result beyond rounding: they determine which of several equivalent methods is used, and how work is divided.  The
tolerances of the arithmetic, which do change results, are in `accuracy.py`.

Modules read a constant as ``tuning.NAME`` when they need it, so that `forced` has an effect everywhere.  Only the sizes in `COMPILED` are
imported by name: kernels are compiled with them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vicinal._engine import accuracy
from vicinal._engine.accuracy import FLOAT32, FLOAT64

# -- the choice of the backend (`choice.py`) ---------------------------------------------------------------------

# Up to this much work, passes x queries x points x (coordinates + PAIR_COST), NumPy takes about 0.5 s on one core:
# about as long as importing Numba and loading a kernel, and far less than compiling one.  PAIR_COST is the cost of a pair
# in addition to its coordinates, in their units: mostly an exponential, without AVX-512.  Measured.
SMALL_WORK = 1e9
PAIR_COST = 40

# -- memory and blocks --------------------------------------------------------------------------------------------

DEFAULT_MEMORY = 128 * 2**20  # bytes of working memory
ARRAY_BLOCK_PAIRS = (
    2**15
)  # pairs in a block of the NumPy backend. Larger arrays are given back to the system after each use. Measured.
COMPILED_BLOCK_PAIRS = 2**23  # at 2 to 20 ns per pair, Ctrl-C takes effect within 0.2 s
LEAST_BLOCKS = 16  # so that few threads share the work evenly,
LEAST_BLOCK_PAIRS = 2**19  # unless they would be this small: passing one to a thread takes as long as some 10^4 pairs
ONE_THREAD_PRODUCT = 2**24  # multiplications of a product that takes one thread a few milliseconds
PRODUCT_BLOCK = 1024  # rows whose products with each other are computed at a time, so that they stay in the cache
ALGEBRA_ROWS = 8192  # rows that are cast to float64 at a time: whole tiles
GATHERED_BYTES = (
    2**20
)  # bytes of differences of rows that are gathered for listed pairs, so that they stay in the cache.  Measured.
LISTED_BYTES = 2**25  # bytes of differences of listed pairs that are held at a time
MAPPED_FROM_QUERIES = 64  # from this many queries on, all rows are mapped to compute the scores of listed pairs

# -- work on other machines (`dask/backend.py`) --------------------------------------------------------------------------

# Work of a sweep, pairs that it is expected to visit x (coordinates + PAIR_COST), that this process must save for it to be worth
# sending: some 55 ms.  Sending vectors, starting tasks and fetching the last answer take about 40 ms, and time of the processors.
SHARED_WORK = 1.5e9
TASKS_PER_THREAD = 8  # so that fast workers help slow ones, and a lost one loses little
LEAST_TASK_PAIRS = 2**23  # the least work of a task, some 15 ms, because Dask takes about 5 ms per task

# -- compiled kernels against matrix products (`cpu/rows.py`) ---------------------------------------------------------

# From this many coordinates on (of the distance and of the values together) matrix products are faster than fused kernels;
# for sums without values the limit is lower, because fused kernels keep nothing there.  Measured.
PRODUCTS_FROM = {FLOAT64: 192, FLOAT32: 1024}
PRODUCTS_FROM_WITHOUT_VALUES = {FLOAT64: 64, FLOAT32: 512}
# The same if each pair is visited once.  Measured.
HALF_PRODUCTS_FROM = {FLOAT64: 112, FLOAT32: 96}

KEPT_BYTES = 2**22  # bytes of the exponentials that rows keep until points receive their shares
PRODUCT_ROWS = 128  # queries in a block of matrix products, at most

# -- each pair once (`cpu/once.py`) ----------------------------------------------------------------------------------

# From this many rows on, one half sweep is faster than a whole one; pulls always are.  The two half sweeps of a scatter compute twice as
# many exponentials, but fewer products, and keep nothing: they are faster from so much rows x (coordinates + 12) on.  Measured.
ONCE_FROM_ROWS = 0
HALF_SUMS_FROM_ROWS = 1024
HALF_SCATTER_WORK = 16_000
COLUMN_TILES = 64  # tiles of points in a thread's piece of work
STRIP_TILES = 4  # tiles of rows that visit a tile of points together.  Measured.
CACHED_BYTES = 2**24  # exponentials up to this size are kept for the second sweep whatever they cost
COSTLY_COORDINATES = 96  # and larger ones if there are this many coordinates.  Measured.
SAMPLED_ROWS = 16  # rows whose nearest neighbour determines how far all scores may be raised
SAMPLED_FROM_ROWS = (
    128  # of so many queries, a few determine whether all are shifted by their own maxima from the start
)

# -- exact neighbours (`neighbors.py`) -----------------------------------------------------------------------------

SEARCH_QUERIES = 1024  # queries whose products with rows are computed at a time, at most.  Measured.
SEARCH_ROWS = 1024  # and the rows of a table, so that the products are still in the cache when the best of them are chosen.  Measured.
SEARCH_INSERTED = 64  # up to this many neighbours, rows are inserted into a list one by one
# From this many queries, and TREE_FROM_POINTS * TREE_GROWTH**coordinates points on, a k-d tree is faster than products.  Measured.
TREE_FROM_QUERIES = 64
TREE_FROM_POINTS = 1000
TREE_GROWTH = 2.2
SEARCH_BLOCKS = 64  # blocks of queries that are searched in a tree
SPARE_NEIGHBORS = 8  # neighbours beyond k: room for ties at the k-th place

# -- a low-rank frame per point (`frames/placed.py`) --------------------------------------------------------------------

FRAME_TILE = 512  # points in a tile
FRAME_ROWS = 256  # queries in a block, at most
FRAME_CACHE = 2**18  # bytes of a tile and its frames that a compiled kernel visits repeatedly
# Up to this many features compiled kernels are faster than matrix products, which write every projection to memory: for one
# depth and noise, where nothing else is written either, and for several.  Measured.
FRAME_FEATURES_IN_CACHE = 96
FRAME_FEATURES_FEW = 16

# Points with one kernel each, whose tiles may be skipped (`frames/boxes.py`): points in a tile, queries that share a list of tiles,
# tiles that they visit before checking again which ones matter, the growth factor of that number, blocks that are sampled for the
# share of tiles that is visited, and the share up to which skipping is worthwhile.
KERNEL_TILE = 64
KERNEL_BLOCK = 64
FIRST_KERNEL_TILES = 8
MORE_KERNEL_TILES = 4
SAMPLED_KERNEL_BLOCKS = 8
KERNELS_VISITED = 0.5

# -- sizes that kernels are compiled with ---------------------------------------------------------------------

PRUNED_TILE = 64  # points in a tile of pruned work: a fact, because a mask of a tile is an integer of 64 bits
TILE_SPAN = 16  # tiles whose boxes are compared at once
QUERY_GROUP = 8  # queries that share a radius; PRUNED_TILE is a multiple of it
COMPILED = ("PRUNED_TILE", "TILE_SPAN", "QUERY_GROUP", "TIED", "SAME_DIRECTION")

# -- listed pairs (`plan/plan.py`, `cpu/listed.py`, `cpu/gate.py`) -----------------------------------------------------------------------------------

# Pieces of work for threads and workers, and from this many blocks of queries on: powers of the tree's fan.
PIECES, MANY_PIECES, MANY_BLOCKS = 64, 256, 2**14
RECEIVED_BYTES = 2**23  # bytes of what the points of tiles receive in a piece of work, before it is added up
LEAST_TILES = 16  # tiles of rows whose bounds a thread computes at a time, at least
NEXT_TILES = 8  # tiles that a tile visits first, which give lower bounds on the sums of its rows
SERIAL_ORDER_ROWS = 2**15  # nodes of the tree that one thread orders
# From this many points and queries on, pruned work is considered.
# With fewer, a dense pass takes a tenth of a second, whereas the kernels for listed pairs take seconds to compile at their first use.
PRUNED_FROM_POINTS = 6144
PRUNED_FROM_QUERIES = 512
SAMPLED_TILES = 4  # tiles on which the share of pairs that a pass would visit is counted
SAMPLED_GROUPS = 32  # rows from which the share of pairs that matter is estimated
# With fewer points than this, that count is skipped if the pairs that matter to some rows are already too many, or more than
# this share of their number when the count last rejected pruning.
COUNTED_FROM_POINTS = 32_768
REFUSED_AGAIN = 0.5
NEAR_POINTS = 4096  # points on which that is counted
# The cost of a pair, in tenths of a nanosecond, as a constant and per coordinate: in dense passes over all rows, for
# sums alone, for means and pulls, and for scatters; and pruned, for its distance, and for its exponential and all that
# follows.  Pruned scatters see each pair once.
# The values for scatters are estimates from runs on a busy machine.
DENSE_COST = {"sums": (8.0, 0.5), "values": (13.0, 1.55), "scatter": (21.0, 1.15)}
VISITED_COST = {"sums": (12.0, 1.35), "values": (12.0, 1.35), "scatter": (10.0, 0.75)}
TAKEN_COST = {"sums": (15.0, 0.1), "values": (40.0, 2.2), "scatter": (20.0, 1.0)}
PRUNED_SAVING = 0.8  # pruned work is used if its expected cost is at most this share of the dense cost
ORDER_WEARS = 1.5  # an order is computed again when a pass visits this many times the earlier share

# -- fused kernels on a GPU (`cuda/placed.py`) --------------------------------------------------------------------------

LEAST_WIDTH = 16  # columns of the narrowest matrix product
FUSED_COORDINATES = 128  # images of more coordinates, and scatters of more columns, are left to torch's operations
# Rows in a tile, columns in a block of one, warps and pipeline stages of half sweeps, by precision and the padded number
# of coordinates.  Measured by `benchmarks/gpu.py --tune` on an H200.
GPU_TILES = {
    FLOAT32: {16: (128, 128, 4, 2), 32: (128, 64, 4, 3), 64: (128, 64, 4, 2), 128: (128, 64, 8, 2)},
    FLOAT64: {16: (64, 32, 4, 2), 32: (64, 32, 4, 3), 64: (64, 32, 4, 2), 128: (32, 32, 4, 2)},
}
GPU_SOFTMAX_ROWS = 64  # queries of a program in which each has its own maximum
GPU_SOFTMAX_POINTS = 64  # and points in a block of it
GPU_SOFTMAX_STAGES = 2
GPU_CHUNK = 64  # tiles that a program visits, few enough that programs are many and short
GPU_PROGRAMS = 1024  # programs that fill the device
GPU_SPARE_BLOCKS = 3  # blocks of points beyond k in which the k nearest are looked for
GPU_VALUES = 64  # columns of values that a program gathers
GPU_FRAME_ROWS, GPU_FRAME_POINTS, GPU_FRAME_COLUMNS = 64, 64, 32  # a block of queries and points with frames
# Pruned sweeps: tiles in a block of the search for pairs, parts in which it is done, thresholds that it tries, programs that
# fill the device, rows and queries from which they are tried, and the share of pairs up to which they are faster.
GPU_BOX_TILES = 64
GPU_BOX_PARTS = 16
GPU_THRESHOLDS = 16
GPU_PRUNED_PROGRAMS = 4096
GPU_PRUNED_FROM = 16_384
GPU_PRUNED_QUERIES = 1024
GPU_PRUNED_SHARE = 0.3
GPU_SAMPLED_TILES = 32  # tiles whose boxes determine whether pruning may be worthwhile at all
GPU_FEW_ROWS = 64  # recomputing this many rows, and this share of all rows, in float64 takes little time
GPU_FEW_PAIRS = 2**28  # if their pairs with all rows are no more than this
ORDER_SAMPLE = 256  # rows whose variance determines where to cut
MOST_MORE_TILES = 64  # tiles beyond those that are full, for rows that are far from all others


@contextmanager
def forced(**values: Any) -> Iterator[None]:
    """Use other values of constants, also those of `accuracy.py`, inside a `with` block, so that a certain method is used.

    One number for a table is used in both precisions.
    """
    refused = set(values) & set(COMPILED)
    if refused:
        raise ValueError(f"kernels are compiled with {', '.join(sorted(refused))}, which cannot be changed.")
    homes = {name: vars(accuracy) if hasattr(accuracy, name) else globals() for name in values}
    before = {name: homes[name][name] for name in values}
    for name, value in values.items():
        table = isinstance(before[name], dict) and not isinstance(value, dict)
        homes[name][name] = dict.fromkeys(before[name], value) if table else value
    try:
        yield
    finally:
        for name, value in before.items():
            homes[name][name] = value
