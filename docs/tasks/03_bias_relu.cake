kernel bias_relu(x: bf16[M, N], bias: bf16[N], out y: bf16[M, N]) for sm_80, sm_90a:
    where N % 8 == 0

    tiles persistent:
        n in cdiv(N, 256)
        m in cdiv(M, 32)

    role block[4]: warps 1

    do block as w:
        v: bf16[1, 256] spread(8)
        for t in tiles:
            c = t.n * 256 + cols(v)
            b = f32(load(bias[c], where=c < N))
            for i in range(8):
                r = t.m * 32 + w * 8 + i
                if r < M:
                    v = load(x[r, c], where=c < N)
                    store(y[r, c], bf16(max(f32(v) + b, 0.0)), where=c < N)
