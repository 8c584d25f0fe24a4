# Exact nearest neighbours: for every query the K rows of a database that are nearest by Euclidean distance, nearest first, the
# lower row where two are equally near.
#
#     smallest |q - x|^2  =  greatest q . x - |x|^2 / 2
#
# so one product of queries and database is enough, and no score is written to memory but those of the best. `half_norms`
# prepares -|x|^2 / 2. `knn_part` loads it straight into the accumulators, multiplies on top of it and keeps the best K of each
# query in registers; SPLIT CTAs share the database for the same queries. `knn_merge` takes the best K of the SPLIT lists, and
# computes the distances of these rows once more, from the differences. Where the database has fewer than K rows, the rest is
# row -1 at an infinite distance.
const D: {64, 128, 256} = 128
const K: {1, 5, 8, 10, 16, 32} = 8
const SPLIT: {1, 2, 3, 4, 8, 16, 22, 33, 66, 132} = 4

# One producer thread and WGS warpgroups of 64 queries each. The queries stay in shared memory while the database streams past
# in tiles of BN rows. The warpgroups take turns at the tensor cores, so that one looks for candidates under the products of the
# others.
kernel knn_part(q: bf16[Q, D], x: bf16[N, D], half: f32[N], out score: f32[Q, SPLIT * K], out id: i32[Q, SPLIT * K]) for sm_90a:
    const WGS: {1, 2, 3, 4} = 4
    const BM = 64 * WGS
    const BN: {64, 128} = 128
    const STAGES: {2, 3, 4, 6} = 4
    const GROUP: {2, 4, 8} = 4
    const LAUNCH = min(248, 65536 // (128 * WGS + 128) // 8 * 8)
    const MATH = min(240, (LAUNCH * (WGS + 1) - 24) // WGS // 8 * 8)        # registers that the producer leaves

    per = cdiv(cdiv(N, BN), SPLIT)                  # tiles of the database in a part

    tiles persistent:
        z in SPLIT                                  # slowest: CTAs that run together share a part in L2
        m in cdiv(Q, BM)
        j0 = z * per
        nj = max(0, min(per, cdiv(N, BN) - j0))

    role load: warps 4, registers 24
    role math[WGS]: warps 4, registers MATH

    pipeline qs[1] load -> math:
        q: bf16[BM, D] swizzle(128)
    pipeline xs[STAGES] load -> math:
        x: bf16[BN, D] swizzle(128)
        h: f32[BN]

    turn product: math

    do load:
        for t in tiles:
            with qs.fill() as s:
                tma.load(s.q, q[t.m * BM : t.m * BM + BM, :])
            for j in range(t.nj):
                n0 = (t.j0 + j) * BN
                with xs.fill() as s:
                    tma.load(s.x, x[n0 : n0 + BN, :])
                    tma.load(s.h, half[n0 : n0 + BN])

    do math as w:
        acc: f32[64, BN] frag
        best: topk[64, K] frag group(GROUP)
        for t in tiles:
            p = qs.wait()
            best.clear()
            for j in range(t.nj):
                n0 = (t.j0 + j) * BN
                s = xs.wait()
                acc = load(s.h[cols(acc)])
                if t.j0 + j >= N // BN:             # the last tile may reach past N, where zeros would win
                    acc = where(n0 + cols(acc) < N, acc, -inf)
                with product:
                    wgmma(acc, p.q[64 * w : 64 * w + 64], s.x.T)
                wgmma.wait(acc)
                xs.release()
                best.add(acc, n0)
            qs.release()
            value, row = best.take()
            r = t.m * BM + 64 * w + rows(row)
            store(score[r, t.z * K + cols(value)], value, where=r < Q)
            store(id[r, t.z * K + cols(row)], row, where=r < Q)

# A warp for each query: K times the best of what is left, the lower part where two are equal.
kernel knn_merge(score: f32[Q, SPLIT * K], id: i32[Q, SPLIT * K], q: bf16[Q, D], x: bf16[N, D], out distance: f32[Q, K],
                 out row: i32[Q, K]) for sm_90a:
    tiles once:
        g in cdiv(Q, 8)

    role query[8]: warps 1

    do query as w:
        v: f32[1, SPLIT * K] spread(1)
        a: bf16[1, D] spread(D // 32)
        b: bf16[1, D] spread(D // 32)
        for t in tiles:
            r = t.g * 8 + w
            if r < Q:
                a = load(q[r, cols(a)])
                v = load(score[r, cols(v)])
                for i in range(K):
                    top, at = argmax(v, axis=1)
                    n = load(id[r, at], where=top > -inf and at >= 0 and at < SPLIT * K, other=-1)
                    b = load(x[n, cols(b)], where=n >= 0 and n < N)
                    d = f32(a) - f32(b)
                    square = sum(d * d, axis=1)
                    store(distance[r, i], where(n >= 0, square, inf))
                    store(row[r, i], n)
                    v = where(cols(v) == at, -inf, v)

# half[n] = -|x[n]|^2 / 2, a warp for each row.
kernel half_norms(x: bf16[N, D], out half: f32[N]) for sm_90a:
    tiles once:
        g in cdiv(N, 8)

    role one[8]: warps 1

    do one as w:
        v: bf16[1, D] spread(D // 32)
        for t in tiles:
            n = t.g * 8 + w
            if n < N:
                v = load(x[n, cols(v)])
                store(half[n], -0.5 * sum(f32(v) * f32(v), axis=1))

sequence knn(q: bf16[Q, D], x: bf16[N, D], out distance: f32[Q, K], out row: i32[Q, K]):
    temp half: f32[N]
    temp score: f32[Q, SPLIT * K]
    temp id: i32[Q, SPLIT * K]
    half_norms(x, half)
    knn_part(q, x, half, score, id)
    knn_merge(score, id, q, x, distance, row)
