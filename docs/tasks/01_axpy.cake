kernel axpy(a: f32[N], b: f32[N], alpha: f32, out y: f32[N]) for sm_80, sm_90a:
    where N % 4 == 0

    tiles persistent:
        i in cdiv(N, 4096)

    role part[4]: warps 1

    do part as w:
        v: f32[1, 1024] spread(4)
        for t in tiles:
            at = t.i * 4096 + w * 1024 + cols(v)
            v = load(a[at], where=at < N)
            store(y[at], alpha * v + load(b[at], where=at < N), where=at < N)
