# y = (x - mean(x)) / sqrt(var(x) + eps) * g + b along the rows, bf16 in and out, f32 inside; var is the biased one.
#
# As in rmsnorm.cake, WARPS warps keep a whole row in registers as bf16, so that x is read once and y written once, in
# 16-byte accesses. The variance is taken from the differences to the mean, a second pass over registers: sum(x^2) - mean^2
# would cancel for rows far from zero. Elements past N are masked there, since their difference to the mean is not zero.
# Gains and shifts come from L2 once the row's scale is known, a vector a thread at a time. Both keep registers low, and REGS
# bounds them, since what hides the two reductions of a row is the number of other rows on the SM.
kernel layernorm(x: bf16[M, N], g: bf16[N], b: bf16[N], eps: f32, out y: bf16[M, N]) for sm_90a, sm_80:
    const COLS: {1024, 2048, 4096, 8192} = 4096     # row length, rounded up
    const ROWS: {1, 2} = 1                          # rows a CTA
    const WARPS: {4, 8} = 4                         # warps a row
    const REGS: {40, 64, 80} = 80                   # registers a thread; fewer let more rows share an SM
    const PART = min(COLS, 256 * WARPS)             # columns in one vector of every thread

    where WARPS * ROWS <= 16
    where REGS * 32 * WARPS >= 2 * COLS             # two rows' worth, one in f32
    where N <= COLS, N % 8 == 0

    tiles once:
        i in cdiv(M, ROWS)

    role row[ROWS]: warps WARPS, registers REGS

    do row as w:
        v: bf16[1, COLS] spread(8)
        part: bf16[1, PART] spread(8)
        for t in tiles:
            r = t.i * ROWS + w
            if r < M:
                ok = cols(v) < N
                v = load(x[r, cols(v)], where=ok, other=0.0)
                mean = sum(f32(v), axis=1) / f32(N)
                d = where(ok, f32(v) - mean, 0.0)
                scale = rsqrt(sum(d * d, axis=1) / f32(N) + eps)
                for i in unroll(COLS // PART):
                    c = PART * i + cols(part)
                    gain = load(g[c], where=c < N, other=0.0)
                    shift = load(b[c], where=c < N, other=0.0)
                    z = d[:, PART * i : PART * i + PART]
                    store(y[r, c], bf16(z * scale * f32(gain) + f32(shift)), where=c < N)
