kernel matvec(a: bf16[M, K], x: f32[K], out y: f32[M]) for sm_80, sm_90a:
    where K % 8 == 0

    tiles once:
        g in cdiv(M, 4)

    role row[4]: warps 1

    do row as w:
        v: bf16[1, 512] spread(8)
        for t in tiles:
            r = t.g * 4 + w
            if r < M:
                total: f32[1, 32] spread(1) = 0.0
                for i in range(cdiv(K, 512)):
                    c = i * 512 + cols(v)
                    v = load(a[r, c], where=c < K)
                    u = f32(v) * load(x[c], where=c < K)
                    total = total + sum(u, axis=1, to=32)
                store(y[r], sum(total, axis=1))
