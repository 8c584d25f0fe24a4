# y = softmax(x) along rows of any length, bf16 in and out, f32 inside, for Hopper: rows stream through shared memory twice.
#
# A row longer than the registers of its warp cannot be kept. Four rows stream side by side in chunks of 256 columns through
# one ring; a warp owns a row. The first pass keeps the running maximum and the sum relative to it, rescaled when the maximum
# grows; the second reads the row again, which L2 mostly still has, normalises it and leaves through a ring of bulk stores, one
# for each warp. The producer does not know of passes: it walks the chunks twice. Chunks past the end of a row are masked to
# -inf before the maximum and never stored; the running maximum starts finite, so that -inf is never subtracted from itself
# while it is followed.
kernel softmax_streamed(x: bf16[M, N], out y: bf16[M, N]) for sm_90a:
    const STAGES: {2, 3, 6} = 3
    const OUT: {1, 2} = 2
    const LOG2E = 1.4426950408889634

    where N % 8 == 0

    chunks = cdiv(N, 256)

    tiles persistent:
        g in cdiv(M, 4)

    role load: warps 1
    role row[4]: warps 1

    pipeline xs[STAGES] load -> row:
        x: bf16[4, 256]
    pipeline ys[OUT] row -> store:
        y: bf16[1, 256]

    do load:
        for t in tiles:
            for j in range(2 * chunks):
                c = j % chunks * 256
                with xs.fill() as s:
                    tma.load(s.x, x[t.g * 4 : t.g * 4 + 4, c : c + 256])

    do row as w:
        v: f32[1, 256] spread(8)
        for t in tiles:
            top: f32[1, 1] spread(1) = -1e30
            den: f32[1, 32] spread(1) = 0.0         # one partial sum a lane
            for j in range(chunks):
                s = xs.wait()
                v = f32(load(s.x[w + rows(v), cols(v)]))
                xs.release()
                v = where(j * 256 + cols(v) < N, v * LOG2E, -inf)
                new = max(top, max(v, axis=1))
                den = den * exp2(top - new) + sum(exp2(v - new), axis=1, to=32)
                top = new
            shift = top + log2(sum(den, axis=1))
            r = t.g * 4 + w
            for j in range(chunks):
                s = xs.wait()
                v = f32(load(s.x[w + rows(v), cols(v)]))
                xs.release()
                with ys.fill() as o:
                    store(o.y[rows(v), cols(v)], bf16(exp2(v * LOG2E - shift)))
                tma.store(y[r : r + 1, j * 256 : j * 256 + 256], o.y)
