"""A kernel whose CTAs wait for each other: the parts of a row hand their sum on, in order."""

CHAIN = """\
kernel chain(x: f32[R, S, 128], out y: f32[R, 128], inout part: f32[R, 128], inout flags: i32[R]) for sm_90a:
    assume zero(flags)

    tiles persistent:
        r in R
        z in S

    role row: warps 4

    do row:
        v: f32[1, 128] spread(1)
        for t in tiles:
            v = load(x[t.r, t.z, cols(v)])
            if t.z > 0:
                wait_until(flags[t.r], t.z)
                sync()
                v = v + load(part[t.r, cols(v)])
            if t.z < S - 1:
                store(part[t.r, cols(v)], v)
            sync()
            signal(flags[t.r], (t.z + 1) % S)
            if t.z == S - 1:
                store(y[t.r, cols(v)], v)
"""
