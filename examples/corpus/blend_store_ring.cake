# y = p * x + q * z, elementwise in f32 and rounded to bf16, for Hopper: loads, arithmetic and stores of three tiles overlap.
#
# A thread loads blocks of x and z into a ring. Two groups of four warps take whole blocks alternately (a stage belongs to one
# of them), compute, and put the result into a slot of their own ring of stores. The bulk-store engine takes it from there:
# while it reads a slot, the group fills the next one, and it waits only when all slots of its ring are still being read. A
# slot is written by ordinary stores and read by the copy engine, so the fence between the two and the meeting of the four
# warps before and after it are part of leaving a fill and of beginning one. The groups wait for their stages in turn: a wait sees
# only whether a barrier's phase is odd or even, so a group may not look at a stage before the fill of its own turn is the next.
kernel blend_store_ring(x: f32[M, N], z: f32[M, N], p: f32, q: f32, out y: bf16[M, N]) for sm_90a:
    const STAGES: {2, 4} = 4
    const OUT: {1, 2, 3} = 3                        # slots of each group's ring of stores

    where N % 8 == 0

    tiles persistent:
        m in cdiv(M, 32)
        n in cdiv(N, 64)

    role load: warps 1
    role work[2]: warps 4

    pipeline blocks[STAGES] load -> one work:
        x: f32[32, 64]
        z: f32[32, 64]
    pipeline ys[OUT] work -> store:
        y: bf16[32, 64]

    turn next: work

    do load:
        for t in tiles:
            with blocks.fill() as s:
                tma.load(s.x, x[t.m * 32 : t.m * 32 + 32, t.n * 64 : t.n * 64 + 64])
                tma.load(s.z, z[t.m * 32 : t.m * 32 + 32, t.n * 64 : t.n * 64 + 64])

    do work as w:
        v: f32[32, 64] spread(4)
        blocks.skip(w)
        for t in tiles[w::2]:
            with next:
                s = blocks.wait()
            v = p * load(s.x[rows(v), cols(v)]) + q * load(s.z[rows(v), cols(v)])
            blocks.release()
            blocks.skip(1)
            with ys.fill() as o:
                store(o.y[rows(v), cols(v)], bf16(v))
            tma.store(y[t.m * 32 : t.m * 32 + 32, t.n * 64 : t.n * 64 + 64], o.y)
