# Exact nearest neighbours: for every query the K rows of a database that are nearest by Euclidean distance, nearest first, the
# lower row where two are equally near.
#
#     smallest |q - x|^2  =  greatest q . x - |x|^2 / 2
#
# so one product of queries and database is enough, and no score is written to memory but those of the best. `knn_scan` keeps the
# best K of each query in registers; SPLIT CTAs share the database for the same queries, and `knn_merge` takes the best K of their
# lists and computes the distances of these rows once more, from the differences. Where the database has fewer than K rows, the
# rest is row -1 at an infinite distance.
#
# Filling SPLIT lists costs SPLIT times as many insertions as filling one. So a sample of the database is looked at first, without
# lists (PROBE): it is cut into classes, of which only the greatest score is kept. K classes or more have a greatest score of at
# least the least of these, so as many rows have, and what is below this floor is not inserted.
#
# -|x|^2 / 2 is prepared by `half_norms` and loaded straight into the accumulators. Where there are few queries, reading the
# database twice costs more than anything else: there `knn_few` takes it from the tile in shared memory (FUSED).
const D: {64, 128, 256} = 128
const K: {1, 5, 8, 10, 16, 32} = 8
const SPLIT: {1, 3, 4, 22, 33, 132, 264} = 4        # CTAs that share the database
const PARTS: {8, 16, 32, 128} = 32                  # places that the sample is taken from
const CLASSES: {1, 4} = 4                           # of the sample of a place; 4: one a thread of those that share a row
const PEAKS = PARTS * CLASSES

# One producer thread and WGS warpgroups of 64 queries each. The queries stay in shared memory while the database streams past
# in tiles of BN rows. The warpgroups take turns at the tensor cores, so that one looks for candidates under the products of the
# others.
kernel knn_scan(q: bf16[Q, D], x: bf16[N, D], half: f32[N] if not FUSED, peak: f32[Q, PEAKS] if not PROBE,
                out found: f32[Q, PEAKS] if PROBE, out score: f32[Q, SPLIT * K] if not PROBE,
                out id: i32[Q, SPLIT * K] if not PROBE) for sm_90a:
    const FUSED: {False, True} = False              # the norms are taken from the tile in shared memory
    const PROBE: {False, True} = False              # look at the sample
    const SAMPLE: {1, 4, 16} = 4                    # tiles of the sample in each place
    const WGS: {1, 2, 3, 4} = 4
    const BM = 64 * WGS
    const BN = 128
    const STAGES: {2, 4, 6} = 4
    const CTAS: {1, 2} = 1                          # that share an SM
    const LAUNCH = min(248, 65536 // CTAS // (128 * WGS + 128) // 8 * 8)
    const LOAD = where(CTAS == 1, 24, LAUNCH)
    const MATH = min(240, (LAUNCH * (WGS + 1) - LOAD) // WGS // 8 * 8)  # registers that the producer leaves
    const LISTS = where(PROBE, PARTS, SPLIT)
    const FLOORS = cdiv(K, 8) * 8                   # classes are joined to so many: no fewer than K, whole columns of a tile

    where PEAKS % FLOORS == 0

    tn = cdiv(N, BN)
    per = cdiv(tn, LISTS)                           # tiles of the database in a part

    tiles persistent:
        z in LISTS                                  # slowest: CTAs that run together share a part in L2
        m in cdiv(Q, BM)
        j0 = z * per
        nj = max(0, min(where(PROBE, min(per, SAMPLE), per), tn - j0))

    role load: warps 4, registers LOAD
    role math[WGS]: warps 4, registers MATH

    pipeline qs[1] load -> math:
        q: bf16[BM, D] swizzle(128)
    pipeline xs[STAGES] load -> math:
        x: bf16[BN, D] swizzle(128)
        h: f32[BN] if not FUSED

    smem norm: f32[WGS, 2, BN] if FUSED

    turn product: math

    do load:
        for t in tiles:
            with qs.fill() as s:
                tma.load(s.q, q[t.m * BM : t.m * BM + BM, :])
            for j in range(t.nj):
                n0 = (t.j0 + j) * BN
                with xs.fill() as s:
                    tma.load(s.x, x[n0 : n0 + BN, :])
                    if not FUSED:
                        tma.load(s.h, half[n0 : n0 + BN])

    do math as w:
        acc: f32[64, BN] frag
        best: topk[64, K] frag group(4)
        low: f32[64, FLOORS] frag
        top: f32[64, 4] frag
        for t in tiles:
            if PROBE:
                top = -inf
            else:
                best.clear()
                r = t.m * BM + 64 * w + rows(low)
                low = -inf
                for i in unroll(PEAKS // FLOORS):
                    low = max(low, load(peak[r, i * FLOORS + cols(low)], where=r < Q, other=-inf))
                floor = min(low, axis=1)
            p = qs.wait()
            for j in range(t.nj):
                n0 = (t.j0 + j) * BN
                s = xs.wait()
                if FUSED:
                    with product:
                        wgmma(acc, p.q[64 * w : 64 * w + 64], s.x.T, use_acc=False)
                    for i in unroll(BN // 64):      # under the product
                        squares: f32[64, 4] frag = 0.0
                        for k in unroll(D // 64):
                            v = f32(ldmatrix(s.x[64 * i : 64 * i + 64, 64 * k : 64 * k + 64]))
                            squares = squares + sum(v * v, axis=1, to=4)
                        square = sum(squares, axis=1)
                        store(norm[w, j % 2, 64 * i + rows(square)], -0.5 * square)
                    sync()
                    wgmma.wait(acc)
                    xs.release()
                    acc = acc + load(norm[w, j % 2, cols(acc)])
                    if t.j0 + j >= N // BN:         # the last tile may reach past N, where zeros would win
                        acc = where(n0 + cols(acc) < N, acc, -inf)
                else:
                    acc = load(s.h[cols(acc)])
                    if t.j0 + j >= N // BN:
                        acc = where(n0 + cols(acc) < N, acc, -inf)
                    with product:
                        wgmma(acc, p.q[64 * w : 64 * w + 64], s.x.T)
                    wgmma.wait(acc)
                    xs.release()
                if PROBE:
                    top = max(top, max(acc, axis=1, to=4))
                else:
                    best.add(acc, n0, floor=floor)
            qs.release()
            if PROBE:                               # a class that holds NaN says nothing
                peaks = where(top == top, top, -inf)
                r = t.m * BM + 64 * w + rows(peaks)
                if CLASSES == 1:
                    store(found[r, t.z], max(peaks, axis=1), where=r < Q)
                else:
                    store(found[r, t.z * 4 + cols(peaks)], peaks, where=r < Q)
            else:
                value, row = best.take()
                r = t.m * BM + 64 * w + rows(row)
                store(score[r, t.z * K + cols(value)], value, where=r < Q)
                store(id[r, t.z * K + cols(row)], row, where=r < Q)

# TEAM warps for each query: K times the best of what is left of a share of the lists, the lower part where two are equal; one of
# them takes the best of theirs. All warps compute the distances, 16 rows at once.
kernel knn_merge(score: f32[Q, SPLIT * K], id: i32[Q, SPLIT * K], q: bf16[Q, D], x: bf16[N, D], out distance: f32[Q, K],
                 out row: i32[Q, K]) for sm_90a:
    const TEAM: {1, 2, 4, 8} = 8
    const QUERIES = 8 // TEAM
    const SHARE = cdiv(SPLIT * K, TEAM)

    tiles once:
        g in cdiv(Q, QUERIES)

    role pick[8]: warps 1, registers 64

    smem top: f32[8 * K]
    smem place: i32[8 * K]
    smem chosen: i32[QUERIES * K]

    do pick as w:
        v: f32[1, SHARE] spread(1)
        u: f32[1, TEAM * K] spread(1)
        a: bf16[16, 64] frag
        n: i32[16, 1] frag
        for t in tiles:
            mine = t.g * QUERIES + w // TEAM
            c0 = w % TEAM * SHARE
            v = load(score[mine, c0 + cols(v)], where=mine < Q and c0 + cols(v) < SPLIT * K, other=-inf)
            for i in range(K):
                best, at = argmax(v, axis=1)
                store(top[w * K + i], best)
                store(place[w * K + i], c0 + at)
                v = where(cols(v) == at, -inf, v)
            sync(pick)
            if w % TEAM == 0:
                u = load(top[w * K + cols(u)])
                for i in range(K):
                    best, at = argmax(u, axis=1)
                    column = load(place[w * K + at], where=best > -inf and at >= 0 and at < TEAM * K, other=-1)
                    store(chosen[w // TEAM * K + i], column)
                    u = where(cols(u) == at, -inf, u)
            sync(pick)
            for i in range(w, cdiv(QUERIES * K, 16), 8):
                p = 16 * i + rows(n)
                r = t.g * QUERIES + p // K
                ok = r < Q and p < QUERIES * K
                c = load(chosen[p], where=p < QUERIES * K, other=-1)
                n = load(id[r, c], where=ok and c >= 0 and c < SPLIT * K, other=-1)
                squares: f32[16, 4] frag = 0.0
                for k in unroll(D // 64):
                    a = load(q[r, 64 * k + cols(a)], where=ok)
                    d = f32(a) - f32(load(x[n, 64 * k + cols(a)], where=n >= 0 and n < N))
                    squares = squares + sum(d * d, axis=1, to=4)
                square = sum(squares, axis=1)
                store(distance[r, p % K], where(n >= 0, square, inf), where=ok)
                store(row[r, p % K], n, where=ok)

# half[n] = -|x[n]|^2 / 2, a warp for ROWS rows, of which it reads two at once.
kernel half_norms(x: bf16[N, D], out half: f32[N]) for sm_90a:
    const ROWS: {2, 4, 8} = 8

    tiles once:
        g in cdiv(N, 8 * ROWS)

    role some[8]: warps 1

    do some as w:
        a: bf16[1, D] spread(D // 32)
        b: bf16[1, D] spread(D // 32)
        for t in tiles:
            for i in range(0, ROWS, 2):
                n = (t.g * 8 + w) * ROWS + i
                a = load(x[n, cols(a)], where=n < N)
                b = load(x[n + 1, cols(b)], where=n + 1 < N)
                if n < N:
                    store(half[n], -0.5 * sum(f32(a) * f32(a), axis=1))
                if n + 1 < N:
                    store(half[n + 1], -0.5 * sum(f32(b) * f32(b), axis=1))

sequence knn(q: bf16[Q, D], x: bf16[N, D], out distance: f32[Q, K], out row: i32[Q, K]):
    temp half: f32[N]
    temp peak: f32[Q, PEAKS]
    temp score: f32[Q, SPLIT * K]
    temp id: i32[Q, SPLIT * K]
    half_norms(x, half)
    knn_scan(q, x, half, peak, FUSED=False, PROBE=True)
    knn_scan(q, x, half, peak, score, id, FUSED=False, PROBE=False)
    knn_merge(score, id, q, x, distance, row)

# The same for few queries.
sequence knn_few(q: bf16[Q, D], x: bf16[N, D], out distance: f32[Q, K], out row: i32[Q, K]):
    temp peak: f32[Q, PEAKS]
    temp score: f32[Q, SPLIT * K]
    temp id: i32[Q, SPLIT * K]
    knn_scan(q, x, peak, FUSED=True, PROBE=True)
    knn_scan(q, x, peak, score, id, FUSED=True, PROBE=False)
    knn_merge(score, id, q, x, distance, row)
