# One warpgroup a row, the row in registers, 16 bytes an access.
const COLS: {1024, 2048, 4096, 8192} = 4096         # padded length of a row
const LOG2E = 1.4426950408889634

kernel softmax(x: bf16[M, N], out y: bf16[M, N]) for sm_80, sm_90a:
    const ROWS: {1, 2, 4} = 2
    where N <= COLS, N % 8 == 0

    tiles once:
        g in cdiv(M, ROWS)

    role row[ROWS]: warps 4

    do row as w:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            r = t.g * ROWS + w
            if r < M:
                v = load(x[r, cols(v)], where=cols(v) < N, other=-inf)
                top = max(f32(v), axis=1) * LOG2E
                z = top + log2(sum(exp2(f32(v) * LOG2E - top), axis=1))
                store(y[r, cols(v)], bf16(exp2(f32(v) * LOG2E - z)), where=cols(v) < N)

# Longer rows in two passes: a running maximum for all, a partial sum for each thread.
kernel softmax_long(x: bf16[M, N], out y: bf16[M, N]) for sm_80, sm_90a:
    where N % 8 == 0

    tiles once:
        r in M

    role row: warps 8

    do row:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            top: f32[1, 1] spread(1) = -1e30
            den: f32[1, 256] spread(1) = 0.0
            for i in range(cdiv(N, COLS)):
                col = i * COLS + cols(v)
                v = load(x[t.r, col], where=col < N, other=-inf)
                new = max(top, max(f32(v), axis=1) * LOG2E)
                den = den * exp2(top - new) + sum(exp2(f32(v) * LOG2E - new), axis=1, to=256)
                top = new
            z = top + log2(sum(den, axis=1))
            for i in range(cdiv(N, COLS)):
                col = i * COLS + cols(v)
                v = load(x[t.r, col], where=col < N, other=-inf)
                store(y[t.r, col], bf16(exp2(f32(v) * LOG2E - z)), where=col < N)

kernel layernorm(x: bf16[M, N], g: bf16[N], b: bf16[N], eps: f32, out y: bf16[M, N]) for sm_80, sm_90a:
    const ROWS: {1, 2, 4} = 2
    where N <= COLS, N % 8 == 0

    tiles once:
        i in cdiv(M, ROWS)

    role row[ROWS]: warps 4

    do row as w:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            r = t.i * ROWS + w
            if r < M:
                ok = cols(v) < N
                v = load(x[r, cols(v)], where=ok, other=0.0)
                mean = sum(f32(v), axis=1) / f32(N)
                d = where(ok, f32(v) - mean, 0.0)
                scale = rsqrt(sum(d * d, axis=1) / f32(N) + eps)
                gain = f32(load(g[cols(v)], where=ok, other=0.0))
                bias = f32(load(b[cols(v)], where=ok, other=0.0))
                store(y[r, cols(v)], bf16(d * scale * gain + bias), where=ok)
