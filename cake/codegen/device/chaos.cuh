// A delay of a chaos build. Who waits how long is a hash (steps of Murmur3) of the seed, the warp and its SM, the `place` in the
// program and the `step` of the loops around; half of the delays, and all of one warp in four, are none. Straight-line code, so
// that it may stand while wgmma are in flight. The slot of the warp and the SM, as the hardware numbers them, are read anew each
// time and are known to be the same for all lanes: with %tid instead ptxas keeps registers from one delay to the next.
__device__ __forceinline__ void chaos_delay(uint32_t seed, uint32_t place, uint32_t step)
{
    asm volatile(
        "{\n"
        ".reg .b32 h, t;\n"
        ".reg .pred waits, p;\n"
        "mov.u32 h, %%warpid;\n"
        "mov.u32 t, %%smid;\n"
        "mad.lo.u32 h, t, 64, h;\n"
        "mul.lo.u32 t, %0, 0x9e3779b1;\n"
        "xor.b32 h, h, t;\n"
        "mul.lo.u32 h, h, 0x85ebca6b;\n"
        "shr.u32 t, h, 15;\n"
        "xor.b32 h, h, t;\n"
        "setp.lt.u32 waits, h, 0xc0000000;\n"  // what this warp is like in this run
        "mad.lo.u32 h, h, 0xcc9e2d51, %1;\n"
        "shr.u32 t, h, 13;\n"
        "xor.b32 h, h, t;\n"
        "setp.ge.s32 p, h, 0;\n"
        "mul.lo.u32 h, h, 0xc2b2ae35;\n"
        "@p mad.lo.u32 h, %2, 0x38b34ae5, h;\n"  // here it waits each time alike, or not
        "shr.u32 t, h, 16;\n"
        "xor.b32 h, h, t;\n"
        "mul.lo.u32 h, h, 0x85ebca6b;\n"
        "shr.u32 t, h, 18;\n"
        "shl.b32 h, h, 14;\n"
        "setp.lt.and.s32 waits, h, 0, waits;\n"  // half of the others: up to 256 ns (of 4 two), 2 us (one), 16 us (one)
        "shl.b32 h, h, 1;\n"
        "setp.lt.s32 p, h, 0;\n"
        "@!p shr.u32 t, t, 6;\n"
        "shl.b32 h, h, 1;\n"
        "setp.lt.and.s32 p, h, 0, p;\n"
        "@p shr.u32 t, t, 3;\n"
        "@waits nanosleep.u32 t;\n"
        "}\n"
        :: "r"(seed), "r"(place), "r"(step));
}

// Fill the CTA's shared memory with NaN of every float type; all its threads do so together.
__device__ __forceinline__ void poison_shared(uint32_t smem, uint32_t bytes)
{
    ROLLED for (uint32_t i = threadIdx.x * 4; i < bytes; i += blockDim.x * 4)
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(smem + i), "r"(0xffffffff) : "memory");
}
