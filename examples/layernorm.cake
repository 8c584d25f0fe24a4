# y = (x - mean(x)) / sqrt(var(x) + eps) * g + b along the rows, bf16 in and out, f32 inside; var is the biased one.
#
# As in rmsnorm.cake, WARPS warps keep a whole row in registers as bf16, so that x is read once and y written once, in
# 16-byte accesses. The variance is taken from the differences to the mean, a second pass over registers: sum(x^2) - mean^2
# would cancel for rows far from zero. Elements past N are masked there, since their difference to the mean is not zero.
# Gains and shifts come from L2 once the row's scale is known, so that they do not occupy registers before.
kernel layernorm(x: bf16[M, N], g: bf16[N], b: bf16[N], eps: f32, out y: bf16[M, N]) for sm_90a, sm_80:
    const COLS: {1024, 2048, 4096, 8192} = 4096     # row length, rounded up
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
                mean = sum(f32(v), axis=1) / f32(N)
                total = sum(where(ok, (f32(v) - mean) * (f32(v) - mean), 0.0), axis=1)
                scale = rsqrt(total / f32(N) + eps)
                gain = load(g[cols(v)], where=ok, other=0.0)
                shift = load(b[cols(v)], where=ok, other=0.0)
                store(y[r, cols(v)], bf16((f32(v) - mean) * scale * f32(gain) + f32(shift)), where=ok)
