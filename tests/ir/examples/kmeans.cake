# Nearest centroid of every point: the maximum of x.c - |c|^2 / 2 over k, the lowest k on ties.
# A tile of points stays in shared memory, centroids stream past it through a ring filled by one thread. Accumulators
# start from -|c|^2 / 2, which leaves a plain maximum for the epilogue; the warpgroups enter the tensor cores in turn,
# which puts the maximum of one under the products of the others.
const D: {64, 128, 256} = 128

kernel assign(x: bf16[B, N, D], c: bf16[B, K, D], half: f32[B, K], out ids: i32[B, N]) for sm_90a:
    const WGS: {2, 3, 4} = 4
    const BM = 64 * WGS
    const BN: {64, 128, 256} = 128
    const STAGES: {2, 3, 4} = 3

    where K % 4 == 0                                # a row of half is a whole number of 16-byte units

    tiles persistent:
        b in B                                      # outermost, so that one batch's centroids are reused in L2
        m in cdiv(N, BM)
        n0 = m * BM

    role load: warps 4
    role math[WGS]: warps 4

    pipeline points[2] load -> math:
        x: bf16[BM, D] swizzle(128)

    pipeline cents[STAGES] load -> math:
        c: bf16[BN, D] swizzle(128)
        h: f32[BN]

    turn mma_turn: math

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
                acc = load(s.h[cols(acc)])          # the same row of values for all 64 points
                if j >= K // BN:                    # only the last tile can run past K
                    acc = where(k0 + cols(acc) < K, acc, -inf)
                with mma_turn:
                    wgmma(acc, p.x[64 * w : 64 * w + 64], s.c.T)
                wgmma.wait(acc)
                cents.release()
                best.add(acc, k0)
            points.release()
            score, id = best.take()
            n = t.n0 + 64 * w + rows(id)
            store(ids[t.b, n], id, where=n < N)

# The -|c|^2 / 2 of every centroid; a row a warp.
kernel half_norms(c: bf16[B, K, D], out half: f32[B, K]) for sm_90a:
    tiles once:
        b in B
        g in cdiv(K, 8)

    role row[8]: warps 1

    do row as w:
        x: bf16[1, D] spread(D // 32)
        for t in tiles:
            k = t.g * 8 + w
            if k < K:
                x = load(c[t.b, k, cols(x)])
                store(half[t.b, k], -0.5 * sum(f32(x) * f32(x), axis=1))

sequence kmeans_assign(x: bf16[B, N, D], c: bf16[B, K, D], out ids: i32[B, N]):
    temp half: f32[B, K]
    half_norms(c, half)
    assign(x, c, half, ids)
