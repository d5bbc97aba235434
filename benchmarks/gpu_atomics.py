"""The first half sweep of LCA's pass with atomic additions, with which `gpu.py` measures the cost of reproducible sums."""

import triton
import triton.language as tl


@triton.jit
def atomic_sums(
    U, UL, A, G, TOTAL, unit, n_blocks, chunk, D: tl.constexpr, B: tl.constexpr, BJ: tl.constexpr
):  # fmt: skip
    part, b = tl.program_id(0), tl.program_id(1)
    start, stop = tl.maximum(part * chunk, b * (B // BJ)), tl.minimum((part + 1) * chunk, n_blocks)
    if start < stop:
        i, k = b * B + tl.arange(0, B), tl.arange(0, D)
        ui, ui_low = tl.load(U + i[:, None] * D + k[None, :]), tl.load(UL + i[:, None] * D + k[None, :])
        gi = tl.load(G + i)
        total = tl.zeros([B], tl.float32)
        for block in range(start, stop):
            j = block * BJ + tl.arange(0, BJ)
            uj, uj_low = tl.load(U + j[:, None] * D + k[None, :]), tl.load(UL + j[:, None] * D + k[None, :])
            scores = tl.dot(ui_low, tl.trans(uj))
            scores = tl.dot(ui, tl.trans(uj_low), scores)
            scores = tl.dot(ui, tl.trans(uj), scores)
            K = tl.exp2(scores * unit + gi[:, None] + tl.load(A + j)[None, :])
            if block < (b + 1) * (B // BJ):
                K = tl.where(i[:, None] < j[None, :], K, 0.0)
            total += tl.sum(K, 1)
            tl.atomic_add(TOTAL + j, tl.sum(K, 0), sem="relaxed")
        tl.atomic_add(TOTAL + i, total, sem="relaxed")
