kernel segment_count(seg: i32[N], weight: i32[N], inout count: i32[S], inout total: i32[S]) for sm_80, sm_90a:
    where N % 4 == 0
    assume within(seg, 0, S)

    tiles persistent:
        i in cdiv(N, 512)

    role part: warps 4

    do part:
        s: i32[1, 512] spread(4)
        for t in tiles:
            at = t.i * 512 + cols(s)
            s = load(seg[at], where=at < N, other=-1)
            w = load(weight[at], where=at < N)
            for k in range(S):
                n = sum(where(s == k, 1, 0), axis=1)
                atomic.add(count[k], n)
                atomic.add(total[k], sum(where(s == k, w, 0), axis=1))
