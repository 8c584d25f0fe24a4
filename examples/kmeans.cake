# Flash-KMeans, the assignment step: for every point the centroid nearest to it, the lower number where two are equally near.
#
#     argmin_k |x - c_k|^2  =  argmax_k (x . c_k - |c_k|^2 / 2)
#
# so one product of points and centroids is enough, and no distance is ever written to memory. `half_norms` prepares
# -|c|^2 / 2; `assign` loads it straight into the accumulators, multiplies on top of it and follows the running best.
const D: {64, 128, 256} = 128

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
        best: argmax[64] frag group(4)
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
            n = t.n0 + 64 * w + rows(id)
            store(ids[t.b, n], id, where=n < N)

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
