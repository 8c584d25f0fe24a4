# C = A @ B.T in bf16 with f32 accumulation, for Hopper: pairs of CTAs that share the slabs of A.
#
# The two CTAs of a cluster compute neighbouring tiles in a row of C, so both need the same rows of A and each its own rows of
# B. Each loads half of a slab of A and sends it to both by multicast: a slab of A is read from L2 once a pair. So a stage is
# full in a CTA when its own B, its own half of A and the neighbour's half have landed, and may be refilled by a CTA only when
# the math warps of both have released it. The CTAs drift apart by no more than the ring is deep. Where C has an odd number of
# tile columns, the last CTA has a tile outside: it loads zeros, multiplies them and stores nothing, but keeps its neighbour
# company to the end.
kernel gemm_multicast_pair(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const BN: {64, 128} = 64
    const STAGES: {2, 4} = 2

    where K % 8 == 0, N % 2 == 0

    kt = cdiv(K, 64)

    tiles persistent:
        m in cdiv(M, 64)
        n in cdiv(N, BN) cluster(2)

    role load: warps 1
    role math: warps 4

    pipeline ab[STAGES] load -> math:
        a: bf16[64, 64] swizzle(128)
        b: bf16[BN, 64] swizzle(128)

    do load:
        for t in tiles:
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, k * 64 : k * 64 + 64], multicast=n)
                    tma.load(s.b, b[t.n * BN : t.n * BN + BN, k * 64 : k * 64 + 64])

    do math:
        acc: f32[64, BN] frag
        for t in tiles:
            for k in range(kt):
                s = ab.wait()
                wgmma(acc, s.a, s.b.T, use_acc=k > 0)
                wgmma.wait(keep=1)
                ab.release(keep=1)
            wgmma.wait(acc)
            ab.release()
            row = t.m * 64 + rows(acc)
            col = t.n * BN + cols(acc)
            store(c[row, col], bf16(acc), where=row < M and col < N)
