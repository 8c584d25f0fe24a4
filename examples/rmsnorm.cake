# y = x / sqrt(mean(x^2) + eps) * g along the rows, bf16 in and out, f32 inside.
#
# WARPS warps keep a whole row in registers as bf16, so that x is read once and y written once, in 16-byte accesses. Elements
# past N load as zero, which is neutral for the sum of squares. The gains come from L2 once the row's scale is known, so that
# they do not occupy registers while the row is on its way. REGS bounds the registers, so that enough rows share an SM.
kernel rmsnorm(x: bf16[M, N], g: bf16[N], eps: f32, out y: bf16[M, N]) for sm_90a, sm_80:
    const COLS: {1024, 2048, 4096, 8192, 16384} = 4096  # row length, rounded up
    const ROWS: {1, 2, 4} = 2                       # rows a CTA
    const WARPS: {4, 8} = 4                         # warps a row
    const REGS: {64, 96, 128} = 64                  # registers a thread; fewer let more rows share an SM
    const PARTS: {1, 4} = 1                         # parts of a row whose gains are loaded at once

    where WARPS * ROWS <= 16
    where REGS * 32 * WARPS >= COLS, PARTS == 1 or COLS >= PARTS * 256 * WARPS
    where N <= COLS, N % 8 == 0

    tiles once:
        i in cdiv(M, ROWS)

    role row[ROWS]: warps WARPS, registers REGS

    do row as w:
        v: bf16[1, COLS] spread(8)
        part: bf16[1, COLS // PARTS] spread(8)
        for t in tiles:
            r = t.i * ROWS + w
            if r < M:
                ok = cols(v) < N
                v = load(x[r, cols(v)], where=ok, other=0.0)
                scale = rsqrt(sum(f32(v) * f32(v), axis=1) / f32(N) + eps)
                for i in unroll(PARTS):
                    first = COLS // PARTS * i
                    c = first + cols(part)
                    gain = load(g[c], where=c < N, other=0.0)
                    store(y[r, c], bf16(f32(v[:, first : first + COLS // PARTS]) * scale * f32(gain)), where=c < N)
