# Flash-KMeans: one step of Lloyd's algorithm, and its parts.
#
# Assignment gives every point the centroid nearest to it, the lower number where two are equally near:
#
#     argmin_k |x - c_k|^2  =  argmax_k (x . c_k - |c_k|^2 / 2)
#
# so one product of points and centroids is enough, and no distance is ever written to memory. `half_norms` prepares
# -|c|^2 / 2; `assign` loads it straight into the accumulators, multiplies on top of it and follows the running best.
# The new centroids are the means of the points that were given to them. A centroid that no point is nearest to stays.
#
# NaN and infinities: a point gets label -1, and is added nowhere, where no centroid has a score above -inf. That is so for every
# point with a NaN, and for one with an infinity unless some score is +inf, which then wins. A point with an infinity that has a
# label makes the mean infinite or NaN. A centroid with NaN or an infinity gets no points: it stays, and `moved` is NaN.
# A label outside 0 .. K-1 that is given to `kmeans_update` counts nowhere.
#
# The sums of N points of D numbers are N D additions to K D numbers in global memory: 4 N D bytes for the L2, four at a time,
# beside 2 N D bytes of points. `assign_add` makes them while the tensor cores multiply: two warps that have nothing else to do
# read the points of a finished tile, which are in shared memory still. So a step reads the points once, and where K is
# large takes little longer than the assignment. `add_points` makes the same sums from labels that are there already.
const D: {64, 128, 256} = 128
const V = min(4, D // 32)                           # columns that a thread of a warp adds at once

# One producer thread and WGS warpgroups of 64 points each. The points of a tile stay in shared memory while the centroids
# stream past in tiles of BN; a second stage lets the next tile's points arrive meanwhile. The warpgroups take turns at the
# tensor cores, so that one looks for its best under the products of the others.
kernel assign(x: bf16[B, N, D], c: bf16[B, K, D], half: f32[B, K], out ids: i32[B, N]) for sm_90a:
    const WGS: {2, 3, 4} = 4
    const BM = 64 * WGS
    const BN: {64, 128, 256} = 128
    const STAGES: {2, 3, 4} = 3
    const POINTS: {1, 2} = 2

    where K % 4 == 0                                # TMA: the rows of half start on 16 bytes

    tiles persistent:
        b in B                                      # slowest, so that the centroids of a batch stay in L2
        m in cdiv(N, BM)
        n0 = m * BM

    role load: warps 4
    role math[WGS]: warps 4

    pipeline points[POINTS] load -> math:
        x: bf16[BM, D] swizzle(128)
    pipeline cents[STAGES] load -> math:
        c: bf16[BN, D] swizzle(128)
        h: f32[BN]

    turn product: math

    do load:
        for t in tiles:
            with points.fill() as p:
                tma.load(p.x, x[t.b, t.n0 : t.n0 + BM, :])
            for j in range(cdiv(K, BN)):
                k0 = j * BN
                with cents.fill() as s:
                    tma.load(s.c, c[t.b, k0 : k0 + BN, :])
                    tma.load(s.h, half[t.b, k0 : k0 + BN])

    do math as w:
        acc: f32[64, BN] frag
        best: argmax[64] frag group(2)
        for t in tiles:
            p = points.wait()
            best.clear()
            for j in range(cdiv(K, BN)):
                k0 = j * BN
                s = cents.wait()
                acc = load(s.h[cols(acc)])
                if j >= K // BN:                    # the last tile may reach past K, where zeros would win
                    acc = where(k0 + cols(acc) < K, acc, -inf)
                with product:
                    wgmma(acc, p.x[64 * w : 64 * w + 64], s.c.T)
                wgmma.wait(acc)
                cents.release()
                best.add(acc, k0)
            points.release()
            score, id = best.take()
            id = where(score > -inf, id, -1)        # nobody's
            n = t.n0 + 64 * w + rows(id)
            store(ids[t.b, n], id, where=n < N)

# The same, and sums += the points of each centroid, counts += their number. A point stays in its stage until it has been added.
kernel assign_add(x: bf16[B, N, D], c: bf16[B, K, D], half: f32[B, K], out ids: i32[B, N], inout sums: f32[B, K, D],
                  inout counts: i32[B, K]) for sm_90a:
    const WGS: {2, 3, 4} = 4
    const BM = 64 * WGS
    const BN: {64, 128, 256} = 128
    const STAGES: {2, 3, 4} = 3
    const POINTS: {1, 2} = 2
    const ADDERS: {1, 2} = 2                        # warps beside the producer's, in a warpgroup that has them anyway

    where K % 4 == 0                                # TMA: the rows of half start on 16 bytes

    tiles persistent:
        b in B                                      # slowest, so that the centroids of a batch stay in L2
        m in cdiv(N, BM)
        n0 = m * BM

    role load: warps 1
    role add[ADDERS]: warps 1
    role math[WGS]: warps 4

    pipeline points[POINTS] load -> math + add:
        x: bf16[BM, D] swizzle(128)
    pipeline cents[STAGES] load -> math:
        c: bf16[BN, D] swizzle(128)
        h: f32[BN]
    pipeline labels[1] math -> add:
        id: i32[BM]

    turn product: math

    do load:
        for t in tiles:
            with points.fill() as p:
                tma.load(p.x, x[t.b, t.n0 : t.n0 + BM, :])
            for j in range(cdiv(K, BN)):
                k0 = j * BN
                with cents.fill() as s:
                    tma.load(s.c, c[t.b, k0 : k0 + BN, :])
                    tma.load(s.h, half[t.b, k0 : k0 + BN])

    do math as w:
        acc: f32[64, BN] frag
        best: argmax[64] frag group(2)
        for t in tiles:
            p = points.wait()
            best.clear()
            for j in range(cdiv(K, BN)):
                k0 = j * BN
                s = cents.wait()
                acc = load(s.h[cols(acc)])
                if j >= K // BN:                    # the last tile may reach past K, where zeros would win
                    acc = where(k0 + cols(acc) < K, acc, -inf)
                with product:
                    wgmma(acc, p.x[64 * w : 64 * w + 64], s.c.T)
                wgmma.wait(acc)
                cents.release()
                best.add(acc, k0)
            points.release()
            score, id = best.take()
            id = where(score > -inf, id, -1)        # nobody's
            n = t.n0 + 64 * w + rows(id)
            store(ids[t.b, n], id, where=n < N)
            with labels.fill() as s:
                store(s.id[64 * w + rows(id)], where(n < N, id, -1))  # past the end too

    do add as w:
        own: i32[1, BM // ADDERS] spread(1)
        v0: bf16[1, D] spread(V)
        v1: bf16[1, D] spread(V)
        v2: bf16[1, D] spread(V)
        v3: bf16[1, D] spread(V)
        for t in tiles:
            p = points.wait()
            s = labels.wait()
            own = load(s.id[BM // ADDERS * w + cols(own)])
            atomic.add(counts[t.b, own], 1, where=own >= 0 and own < K)
            for i in range(BM // ADDERS // 4):      # four rows at once, to wait for shared memory once
                r = BM // ADDERS * w + 4 * i
                k0 = load(s.id[r])
                k1 = load(s.id[r + 1])
                k2 = load(s.id[r + 2])
                k3 = load(s.id[r + 3])
                v0 = load(p.x[r, cols(v0)])
                v1 = load(p.x[r + 1, cols(v1)])
                v2 = load(p.x[r + 2, cols(v2)])
                v3 = load(p.x[r + 3, cols(v3)])
                atomic.add(sums[t.b, k0, cols(v0)], f32(v0), where=k0 >= 0 and k0 < K)
                atomic.add(sums[t.b, k1, cols(v1)], f32(v1), where=k1 >= 0 and k1 < K)
                atomic.add(sums[t.b, k2, cols(v2)], f32(v2), where=k2 >= 0 and k2 < K)
                atomic.add(sums[t.b, k3, cols(v3)], f32(v3), where=k3 >= 0 and k3 < K)
            labels.release()
            points.release()

# sums and counts of points whose labels are known: eight warps of a CTA with 16 points each.
kernel add_points(x: bf16[B, N, D], ids: i32[B, N], inout sums: f32[B, K, D], inout counts: i32[B, K]) for sm_90a:
    const WARPS: {4, 8} = 8
    const EACH: {8, 16, 32} = 16

    tiles once:
        b in B
        g in cdiv(N, WARPS * EACH)

    role row[WARPS]: warps 1

    do row as w:
        own: i32[1, EACH] spread(1)
        v0: bf16[1, D] spread(V)
        v1: bf16[1, D] spread(V)
        v2: bf16[1, D] spread(V)
        v3: bf16[1, D] spread(V)
        for t in tiles:
            n0 = (t.g * WARPS + w) * EACH
            own = load(ids[t.b, n0 + cols(own)], where=n0 + cols(own) < N, other=-1)
            atomic.add(counts[t.b, own], 1, where=own >= 0 and own < K)
            for i in unroll(EACH // 4):
                n = n0 + 4 * i
                k0 = load(ids[t.b, n], where=n < N, other=-1)
                k1 = load(ids[t.b, n + 1], where=n + 1 < N, other=-1)
                k2 = load(ids[t.b, n + 2], where=n + 2 < N, other=-1)
                k3 = load(ids[t.b, n + 3], where=n + 3 < N, other=-1)
                v0 = load(x[t.b, n, cols(v0)], where=n < N)
                v1 = load(x[t.b, n + 1, cols(v1)], where=n + 1 < N)
                v2 = load(x[t.b, n + 2, cols(v2)], where=n + 2 < N)
                v3 = load(x[t.b, n + 3, cols(v3)], where=n + 3 < N)
                atomic.add(sums[t.b, k0, cols(v0)], f32(v0), where=k0 >= 0 and k0 < K)
                atomic.add(sums[t.b, k1, cols(v1)], f32(v1), where=k1 >= 0 and k1 < K)
                atomic.add(sums[t.b, k2, cols(v2)], f32(v2), where=k2 >= 0 and k2 < K)
                atomic.add(sums[t.b, k3, cols(v3)], f32(v3), where=k3 >= 0 and k3 < K)

# next = sums / counts, or the old centroid where nothing was added, and moved = |next - c|^2, zero for a centroid that stays.
# sums and counts are zero again afterwards.
kernel means(c: bf16[B, K, D], inout sums: f32[B, K, D], inout counts: i32[B, K], out next: bf16[B, K, D],
             out moved: f32[B, K]) for sm_90a:
    tiles once:
        b in B
        g in cdiv(K, 8)

    role row[8]: warps 1

    do row as w:
        old: bf16[1, D] spread(V)
        new: bf16[1, D] spread(V)
        total: f32[1, D] spread(V)
        for t in tiles:
            k = t.g * 8 + w
            if k < K:
                n = load(counts[t.b, k])
                old = load(c[t.b, k, cols(old)])
                total = load(sums[t.b, k, cols(total)])
                new = bf16(where(n > 0, total / f32(max(n, 1)), f32(old)))
                step = f32(new) - f32(old)
                store(next[t.b, k, cols(new)], new)
                store(moved[t.b, k], sum(step * step, axis=1))
                store(sums[t.b, k, cols(total)], 0.0)
                sync()                              # every thread has read the count
                store(counts[t.b, k], 0)

# half[b, k] = -|c[b, k]|^2 / 2, a warp for each centroid.
kernel half_norms(c: bf16[B, K, D], out half: f32[B, K]) for sm_90a:
    tiles once:
        b in B
        g in cdiv(K, 8)

    role row[8]: warps 1

    do row as w:
        v: bf16[1, D] spread(D // 32)
        for t in tiles:
            k = t.g * 8 + w
            if k < K:
                v = load(c[t.b, k, cols(v)])
                store(half[t.b, k], -0.5 * sum(f32(v) * f32(v), axis=1))

sequence kmeans_assign(x: bf16[B, N, D], c: bf16[B, K, D], out ids: i32[B, N]):
    temp half: f32[B, K]
    half_norms(c, half)
    assign(x, c, half, ids)

sequence kmeans_update(x: bf16[B, N, D], ids: i32[B, N], c: bf16[B, K, D], out next: bf16[B, K, D],
                       out moved: f32[B, K]):
    temp sums: f32[B, K, D] zero
    temp counts: i32[B, K] zero
    add_points(x, ids, sums, counts)
    means(c, sums, counts, next, moved)

sequence kmeans_step(x: bf16[B, N, D], c: bf16[B, K, D], out ids: i32[B, N], out next: bf16[B, K, D],
                     out moved: f32[B, K]):
    temp half: f32[B, K]
    temp sums: f32[B, K, D] zero
    temp counts: i32[B, K] zero
    half_norms(c, half)
    assign_add(x, c, half, ids, sums, counts)
    means(c, sums, counts, next, moved)
