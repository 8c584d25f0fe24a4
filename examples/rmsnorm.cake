# y = x / sqrt(mean(x^2) + eps) * g along the rows, bf16 in and out, f32 inside.
#
# WARPS warps keep a whole row in registers as bf16, so that x is read once and y written once, in 16-byte accesses. Elements
# past N load as zero, which is neutral for the sum of squares. The gains come from L2 once the row's scale is known, so that
# they do not occupy registers while the row is on its way.
kernel rmsnorm(x: bf16[M, N], g: bf16[N], eps: f32, out y: bf16[M, N]) for sm_90a, sm_80:
    const COLS: {1024, 2048, 4096, 8192, 16384} = 4096  # row length, rounded up
    const ROWS: {1, 2, 4} = 2                       # rows a CTA
    const WARPS: {4, 8} = 4                         # warps a row

    where WARPS * ROWS <= 16
    where N <= COLS, N % 8 == 0

    tiles once:
        i in cdiv(M, ROWS)

    role row[ROWS]: warps WARPS

    do row as w:
        v: bf16[1, COLS] spread(8)
        for t in tiles:
            r = t.i * ROWS + w
            if r < M:
                ok = cols(v) < N
                v = load(x[r, cols(v)], where=ok, other=0.0)
                scale = rsqrt(sum(f32(v) * f32(v), axis=1) / f32(N) + eps)
                gain = load(g[cols(v)], where=ok, other=0.0)
                store(y[r, cols(v)], bf16(f32(v) * scale * f32(gain)), where=ok)
