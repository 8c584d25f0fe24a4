# C = A @ B.T in bf16 with f32 accumulation, for Hopper: A and B travel through pipelines of their own.
#
# Two producers, a warp each, know nothing of one another. The slabs of A are small (64 x 64), so their ring is deep and its
# producer runs far ahead; those of B are large, and their ring is shallow. The rings have different depths on purpose: their
# cursors and phases part after the first turn, and only the consumer, which waits for a slab of each, brings them together.
# It releases A before B, since nothing says that they are given back at once. The grid is persistent, so the rings go on from
# tile to tile without draining.
kernel gemm_two_pipelines(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const BN: {64, 128, 192} = 128
    const A_STAGES: {3, 5} = 5
    const B_STAGES: {2, 3} = 2

    where K % 8 == 0, N % 2 == 0

    kt = cdiv(K, 64)

    tiles persistent:
        m in cdiv(M, 64)
        n in cdiv(N, BN)

    role load_a: warps 1
    role load_b: warps 1
    role math: warps 4

    pipeline left[A_STAGES] load_a -> math:
        a: bf16[64, 64] swizzle(128)
    pipeline right[B_STAGES] load_b -> math:
        b: bf16[BN, 64] swizzle(128)

    do load_a:
        for t in tiles:
            for k in range(kt):
                with left.fill() as s:
                    tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, k * 64 : k * 64 + 64])

    do load_b:
        for t in tiles:
            for k in range(kt):
                with right.fill() as s:
                    tma.load(s.b, b[t.n * BN : t.n * BN + BN, k * 64 : k * 64 + 64])

    do math:
        acc: f32[64, BN] frag
        for t in tiles:
            for k in range(kt):
                x = left.wait()
                y = right.wait()
                wgmma(acc, x.a, y.b.T, use_acc=k > 0)
                wgmma.wait(acc)
                left.release()
                right.release()
            row = t.m * 64 + rows(acc)
            col = t.n * BN + cols(acc)
            store(c[row, col], bf16(acc), where=row < M and col < N)
