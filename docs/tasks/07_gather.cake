kernel gather(table: bf16[V, D], index: i32[N], out y: bf16[N, D]) for sm_80, sm_90a:
    where D % 8 == 0, D <= 1024
    assume within(index, -1, V)

    tiles once:
        g in cdiv(N, 8)

    role row[8]: warps 1

    do row as w:
        v: bf16[1, 1024] spread(8)
        for t in tiles:
            i = t.g * 8 + w
            if i < N:
                at = load(index[i])
                v = 0.0
                if at >= 0:
                    v = load(table[at, cols(v)], where=cols(v) < D)
                store(y[i, cols(v)], v, where=cols(v) < D)
