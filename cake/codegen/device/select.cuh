// ---- argmax by groups of four: the best maximum so far, its group, and the members by which to find it there ----

struct Best4 {
    float top, a, b, c, group;
};

// -0.0 that the compiler cannot fold (the grid has one row). Adding it copies a value on the FMA pipe, which argmax leaves idle,
// while a move or a select would go to the ALU, which it saturates.
__device__ __forceinline__ float negative_zero()
{
    return __uint_as_float(0x80000000u | blockIdx.y);
}

__device__ __forceinline__ Best4 best4(float a, float b, float c, float d)
{
    return {fmaxf(fmaxf(fmaxf(a, b), fmaxf(c, d)), -infinity), a, b, c, 0.0f};
}

// Keep group `group` if its maximum is greater: ties go to the group seen first.
__device__ __forceinline__ void keep(Best4 &best, int group, float a, float b, float c, float d)
{
    const float top = fmaxf(fmaxf(a, b), fmaxf(c, d));
    asm("{\n"
        ".reg .pred p;\n"
        "setp.gt.f32 p, %5, %0;\n"
        "@p add.f32 %0, %5, %10;\n"
        "@p add.f32 %1, %6, %10;\n"
        "@p add.f32 %2, %7, %10;\n"
        "@p add.f32 %3, %8, %10;\n"
        "@p add.f32 %4, %9, %10;\n"
        "}\n"
        : "+f"(best.top), "+f"(best.a), "+f"(best.b), "+f"(best.c), "+f"(best.group)
        : "f"(top), "f"(a), "f"(b), "f"(c), "f"(float(group)), "f"(negative_zero()));
}

// The first of a group's four columns whose value is the maximum.
__device__ __forceinline__ int which(const Best4 &best, int a, int b, int c, int d)
{
    return best.a == best.top ? a : best.b == best.top ? b : best.c == best.top ? c : d;
}

// ---- argmax element by element ----

template <typename T>
__device__ __forceinline__ void keep(T &best, int &column, T value, int at)
{
    if (value > best) {
        best = value;
        column = at;
    }
}

// Of two candidates the better, of equals the lower column.
template <typename T>
__device__ __forceinline__ void keep_lowest(T &best, int &column, T other, int at)
{
    if (other > best || (other == best && at < column)) {
        best = other;
        column = at;
    }
}

// The same for the minimum of integers, whose least has no negative.
template <typename T>
__device__ __forceinline__ void keep_least(T &best, int &column, T value, int at)
{
    if (value < best) {
        best = value;
        column = at;
    }
}

template <typename T>
__device__ __forceinline__ void keep_lowest_least(T &best, int &column, T other, int at)
{
    if (other < best || (other == best && at < column)) {
        best = other;
        column = at;
    }
}

// ---- lists: the best K of each row, in descending order over the four lanes that share it, a quarter in each ----

// The last entry of the row's list.
template <int K>
__device__ __forceinline__ float last_of(const float *top)
{
    constexpr int part = (K + 3) / 4;
    return K == 1 ? top[0] : __shfl_sync(~0u, top[(K - 1) % part], (K - 1) / part, 4);
}

// The greatest float that is less than `x`: what is greater than it is at least `x`. -inf for -inf and NaN, which nothing is below.
__device__ __forceinline__ float next_below(float x)
{
    const int bits = __float_as_int(x);
    const float less = __int_as_float(x > 0.0f ? bits - 1 : bits < 0 ? bits + 1 : 0x80000001);
    return x > -infinity ? less : -infinity;
}

// In each of the warp's eight rows `value` enters the list, behind its equals, and the last entry is dropped; a value that is not
// greater than the last entry changes nothing.
template <int K>
__device__ __forceinline__ void enter_list(float *top, int *column, float value, int number, int lane)
{
    constexpr int part = (K + 3) / 4;
    float before = infinity;
    int before_column = 0;
    if (K > 1) {
        before = __shfl_up_sync(~0u, top[part - 1], 1, 4);
        before_column = __shfl_up_sync(~0u, column[part - 1], 1, 4);
        if ((lane & 3) == 0)
            before = infinity;
    }
    UNROLLED for (int i = part - 1; i >= 0; --i) {
        const float above = i > 0 ? top[i - 1] : before;
        const int above_column = i > 0 ? column[i - 1] : before_column;
        const bool moves = value > above, enters = value > top[i];
        top[i] = moves ? above : enters ? value : top[i];
        column[i] = moves ? above_column : enters ? number : column[i];
    }
}
