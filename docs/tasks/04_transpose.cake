kernel transpose(x: bf16[M, N], out y: bf16[N, M]) for sm_90a:
    where M % 8 == 0, N % 8 == 0

    tiles persistent:
        m in cdiv(M, 64)
        n in cdiv(N, 64)

    role load: warps 1
    role turn: warps 4

    pipeline xs[2] load -> turn:
        x: bf16[64, 64] swizzle(128)

    pipeline ys[2] turn -> store:
        y: bf16[64, 64] swizzle(128)

    do load:
        for t in tiles:
            with xs.fill() as s:
                tma.load(s.x, x[t.m * 64 : t.m * 64 + 64, t.n * 64 : t.n * 64 + 64])

    do turn:
        for t in tiles:
            s = xs.wait()
            v = ldmatrix(s.x)
            xs.release()
            with ys.fill() as o:
                stmatrix(o.y.T, v)
            tma.store(y[t.n * 64 : t.n * 64 + 64, t.m * 64 : t.m * 64 + 64], o.y)
