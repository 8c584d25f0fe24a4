# GEMM where two warpgroups alternate whole tiles: the one stores while the other multiplies. With SPLIT > 1 the K range is
# divided, and partial sums are handed on from split to split under a semaphore.
kernel gemm_pingpong(a: bf16[M, K], b: bf16[N, K], out c: bf16[M, N],
                     inout part: f32[cdiv(M, BM) * cdiv(N, BN), BM * BN] if SPLIT > 1,
                     inout sem: i32[cdiv(M, BM) * cdiv(N, BN)] if SPLIT > 1) for sm_90a:
    const BM: {64, 128} = 128
    const BN: {128, 192} = 128
    const BK = 64
    const STAGES: {4, 5, 6} = 5
    const SPLIT: {1, 2, 4, 8} = 1

    where K % 8 == 0, N % 8 == 0
    where BM * BN <= 128 * 192
    assume zero(sem)                                # and zero again afterwards

    kt = cdiv(cdiv(K, BK), SPLIT)                   # all splits do the same number of steps; zeros past K

    tiles persistent:
        m in cdiv(M, BM) grouped(8)
        n in cdiv(N, BN)
        z in SPLIT
        id = m * cdiv(N, BN) + n

    role load: warps 4, registers 40
    role math[2]: warps 4, registers 232

    pipeline ab[STAGES] load -> one math:           # consumed by whoever's tile it is
        a: bf16[BM, BK] swizzle(128)
        b: bf16[BN, BK] swizzle(128)

    pipeline cs[2] math -> store:
        c: bf16[BM, 32] swizzle(64)

    turn mainloop: math

    do load:
        for t in tiles:
            for k in range(kt):
                k0 = (t.z * kt + k) * BK
                with ab.fill() as s:
                    tma.load(s.a, a[t.m * BM : t.m * BM + BM, k0 : k0 + BK])
                    tma.load(s.b, b[t.n * BN : t.n * BN + BN, k0 : k0 + BK])

    do math as w:
        acc: f32[BM, BN] frag
        ab.skip(w * kt)
        for t in tiles[w::2]:
            with mainloop:
                for k in range(kt):
                    s = ab.wait()
                    wgmma(acc, s.a, s.b.T, use_acc=k > 0)
                    wgmma.wait(keep=1)
                    ab.release(keep=1)
            wgmma.wait(acc)
            ab.release()
            ab.skip(kt)                             # those belong to my sibling
            if SPLIT > 1:
                if t.z > 0:
                    wait_until(sem[t.id], t.z)
                    sync()
                    acc = acc + load(part[t.id, lin(acc)])
                if t.z < SPLIT - 1:
                    store(part[t.id, lin(acc)], acc)
                sync()
                signal(sem[t.id], (t.z + 1) % SPLIT)
            if t.z == SPLIT - 1:
                for i in unroll(BN // 32):
                    c0 = t.n * BN + 32 * i
                    with cs.fill() as o:
                        stmatrix(o.c, bf16(acc[:, 32 * i : 32 * i + 32]))
                    tma.store(c[t.m * BM : t.m * BM + BM, c0 : c0 + 32], o.c)
