# C = A @ B.T in bf16 with f32 accumulation, for Hopper: two warpgroups that own whole tiles, alternately.
#
# One thread loads the slabs of every tile of the CTA, in order. The warpgroups take turns at the tensor cores, a whole main
# loop at a time, so that one narrows and stores its tile while the other multiplies: nothing of the epilogue is left in
# the open. Each stage of the ring goes to one of them; `skip` moves a warpgroup past the stages of the other's tile.
#
# With SPLIT > 1, K is divided, for products with few tiles. The splits of a tile hand their partial sums on in `part`, in
# order, so that the result does not depend on timing; `flags` counts those that are done and ends at zero as it began. A
# split waits only for tiles before it in the list, which some CTA has taken already.
kernel gemm_pingpong(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N],
                     inout part: f32[cdiv(M, BM), cdiv(N, BN), BM * BN] if SPLIT > 1,
                     inout flags: i32[cdiv(M, BM), cdiv(N, BN)] if SPLIT > 1) for sm_90a:
    const BM: {64, 128} = 128
    const BN: {128, 144, 160, 176, 192, 256} = 128
    const BK = 64
    const CHUNK: {16, 32} = 32                      # columns that leave together
    const STAGES: {3, 4, 5, 6} = 5
    const GROUP: {1, 4, 8, 16} = 8
    const SPLIT: {1, 2, 4, 8} = 1

    where BN % CHUNK == 0
    where BM * BN <= 128 * 192                      # the accumulators fit one warpgroup
    where K % 8 == 0, N % 8 == 0

    assume zero(flags)

    kt = cdiv(cdiv(K, BK), SPLIT)                   # all splits are of one length; past K there are zeros

    tiles persistent:
        m in cdiv(M, BM) grouped(GROUP)
        n in cdiv(N, BN)
        z in SPLIT
        m0 = m * BM
        n0 = n * BN

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> one math:
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)
    pipeline cs[2] math -> store:
        c: bf16[BM, CHUNK] swizzle(2 * CHUNK)

    turn product: math

    do load:
        for t in tiles:
            for k in range(kt):
                k0 = (t.z * kt + k) * BK
                with ab.fill() as s:
                    tma.load(s.a, a[t.m0 : t.m0 + BM, k0 : k0 + BK])
                    tma.load(s.b, b[t.n0 : t.n0 + BN, k0 : k0 + BK])

    do math as w:
        acc: f32[BM, BN] frag
        ab.skip(w * kt)                             # the second warpgroup begins with the second tile
        for t in tiles[w::2]:
            with product:
                for k in range(kt):
                    s = ab.wait()
                    wgmma(acc, s.a, s.b.T, use_acc=k > 0)
                    wgmma.wait(keep=1)
                    ab.release(keep=1)
            wgmma.wait(acc)
            ab.release()
            ab.skip(kt)                             # the other's tile
            if SPLIT > 1:
                if t.z > 0:
                    wait_until(flags[t.m, t.n], t.z)
                    sync()
                    acc = acc + load(part[t.m, t.n, lin(acc)])
                if t.z < SPLIT - 1:
                    store(part[t.m, t.n, lin(acc)], acc)
                sync()
                signal(flags[t.m, t.n], (t.z + 1) % SPLIT)
            if t.z == SPLIT - 1:
                for i in unroll(BN // CHUNK):
                    c0 = t.n0 + CHUNK * i
                    with cs.fill() as o:
                        stmatrix(o.c, bf16(acc[:, CHUNK * i : CHUNK * i + CHUNK]))
                    tma.store(c[t.m0 : t.m0 + BM, c0 : c0 + CHUNK], o.c)
