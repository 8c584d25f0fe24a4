# y = softmax(x) along the rows, bf16 in and out, f32 inside.
#
# `softmax`: rows of up to COLS elements stay in registers. WARPS warps take a row, move it with 16-byte accesses, and read and
# write each element exactly once, which is all the memory traffic there can be. ROWS rows share a CTA.
# `softmax_long`: rows of any length take two passes over chunks of COLS. The first keeps the running maximum and one partial
# sum a thread, rescaled when the maximum grows; the second normalises.
const COLS: {1024, 2048, 4096, 8192} = 4096         # row length in registers, rounded up
const LOG2E = 1.4426950408889634

kernel softmax(x: bf16[M, N], out y: bf16[M, N]) for sm_90a, sm_80:
    const ROWS: {1, 2, 4} = 2                       # rows a CTA
    const WARPS: {4, 8} = 4                         # warps a row
    const REGS: {40, 64, 96} = 64                   # registers a thread; fewer let more rows share an SM

    where WARPS * ROWS <= 16
    where REGS * 32 * WARPS >= 2 * COLS             # a row in bf16 and in f32
    where N <= COLS, N % 8 == 0

    tiles once:
        g in cdiv(M, ROWS)

    role row[ROWS]: warps WARPS, registers REGS

    do row as w:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            r = t.g * ROWS + w
            if r < M:
                v = load(x[r, cols(v)], where=cols(v) < N, other=-inf)
                top = max(f32(v), axis=1) * LOG2E
                total = sum(exp2(f32(v) * LOG2E - top), axis=1)
                shift = top + log2(total)
                store(y[r, cols(v)], bf16(exp2(f32(v) * LOG2E - shift)), where=cols(v) < N)

kernel softmax_long(x: bf16[M, N], out y: bf16[M, N]) for sm_90a, sm_80:
    where N % 8 == 0

    tiles once:
        r in M

    role row: warps 8

    do row:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            top: f32[1, 1] spread(1) = -1e30        # finite, so that a row of -inf does not meet -inf - -inf
            den: f32[1, 256] spread(1) = 0.0        # one partial sum a thread
            for i in range(cdiv(N, COLS)):
                col = i * COLS + cols(v)
                v = load(x[t.r, col], where=col < N, other=-inf)
                new = max(top, max(f32(v), axis=1) * LOG2E)
                den = den * exp2(top - new) + sum(exp2(f32(v) * LOG2E - new), axis=1, to=256)
                top = new
            shift = top + log2(sum(den, axis=1))
            for i in range(cdiv(N, COLS)):
                col = i * COLS + cols(v)
                v = load(x[t.r, col], where=col < N, other=-inf)
                store(y[t.r, col], bf16(exp2(f32(v) * LOG2E - shift)), where=col < N)
