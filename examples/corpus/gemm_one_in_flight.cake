# C = A @ B.T in bf16 with f32 accumulation, for Hopper: one product is always in flight, and its predecessor's slab is free.
#
# The product of slab k is issued before that of slab k - 1 has ended. `wait(keep=1)` then ends k - 1, whose slab can be given
# back while k still reads its own: so a consumer holds two slabs for a moment and the ring needs three. The loop is skewed by
# one: it runs once more than there are slabs, first without a predecessor and last without a successor, and `split` turns
# that into a straight prologue, a steady state and a tail, each without a condition around a wgmma. The two warpgroups hold
# neighbouring column halves of a tile, so that here A is the operand that both read.
kernel gemm_one_in_flight(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N]) for sm_90a:
    const BH: {64, 128} = 64                        # columns of a warpgroup
    const STAGES: {3, 4} = 3

    where K % 8 == 0, N % 8 == 0

    kt = cdiv(K, 64)

    tiles persistent:
        m in cdiv(M, 64) grouped(4)
        n in cdiv(N, 2 * BH)

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> math:
        a: bf16[64, 64] swizzle(128)
        b: bf16[2 * BH, 64] swizzle(128)
    pipeline cs[1] math -> store:
        c: bf16[64, BH] swizzle(128)

    do load:
        for t in tiles:
            for k in range(kt):
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * 64 : t.m * 64 + 64, k * 64 : k * 64 + 64])
                    tma.load(s.b, b[t.n * 2 * BH : t.n * 2 * BH + 2 * BH, k * 64 : k * 64 + 64])

    do math as w:
        acc: f32[64, BH] frag
        for t in tiles:
            for k in range(kt + 1) split(1, kt):
                if k < kt:
                    s = ab.wait()
                    wgmma(acc, s.a, s.b[BH * w : BH * w + BH].T, use_acc=k > 0)
                if k == kt:
                    wgmma.wait(acc)
                    ab.release()
                elif k > 0:
                    wgmma.wait(keep=1)
                    ab.release(keep=1)
            col = (2 * t.n + w) * BH
            with cs.fill() as o:
                stmatrix(o.c, bf16(acc))
            tma.store(c[t.m * 64 : t.m * 64 + 64, col : col + BH], o.c)
