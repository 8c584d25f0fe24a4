// A warp on the host: 32 lanes as coroutines that meet at every collective, for the device functions of lists. A collective that not
// all lanes reach, or that they reach in different places, ends the program.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __device__
#define __forceinline__ inline
#define UNROLLED
#define ROLLED

constexpr float infinity = INFINITY;

namespace warp {

struct Lane {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(1 << 16);
    const void *at = nullptr;  // the collective that it waits in; null once it has ended
    uint32_t sent[2];
    int turn = 0;
};

Lane lanes[32];
ucontext_t main_context;
int now;
void (*program)(int);

void enter() { program(now), lanes[now].at = nullptr; }

void run(void (*f)(int))
{
    program = f;
    for (int i = 0; i < 32; ++i) {
        Lane &l = lanes[i];
        getcontext(&l.context);
        l.context.uc_stack.ss_sp = l.stack.data(), l.context.uc_stack.ss_size = l.stack.size();
        l.context.uc_link = &main_context;
        l.turn = 0;
        makecontext(&l.context, enter, 0);
    }
    do {
        for (now = 0; now < 32; ++now)
            swapcontext(&main_context, &lanes[now].context);
        for (const Lane &l : lanes)
            if (l.at != lanes[0].at)
                std::puts("the lanes have come apart"), std::exit(1);
    } while (lanes[0].at);
}

// What every lane sends, once all have come to the collective at `at`.
int meet(const void *at, uint32_t value)
{
    Lane &l = lanes[now];
    const int turn = l.turn++ & 1;
    l.sent[turn] = value, l.at = at;
    swapcontext(&l.context, &main_context);
    return turn;
}

template <typename T>
T from(int lane, int turn)
{
    T value;
    std::memcpy(&value, &lanes[lane].sent[turn], 4);
    return value;
}

template <typename T>
uint32_t bits(T value)
{
    uint32_t out;
    std::memcpy(&out, &value, 4);
    return out;
}

}  // namespace warp

// Each function is a place of its own: `__builtin_return_address` would tell apart what the compiler has unrolled.
template <typename T>
T __shfl_sync(uint32_t, T value, int source, int width)
{
    static char place;
    const int turn = warp::meet(&place, warp::bits(value)), lane = warp::now;
    return warp::from<T>(lane / width * width + (source & (width - 1)), turn);
}

template <typename T>
T __shfl_up_sync(uint32_t, T value, int delta, int width)
{
    static char place;
    const int turn = warp::meet(&place, warp::bits(value)), lane = warp::now;
    return warp::from<T>(lane % width >= delta ? lane - delta : lane, turn);
}

inline uint32_t __reduce_or_sync(uint32_t, uint32_t value)
{
    static char place;
    const int turn = warp::meet(&place, value);
    uint32_t all = 0;
    for (int lane = 0; lane < 32; ++lane)
        all |= warp::from<uint32_t>(lane, turn);
    return all;
}

inline int __ffs(uint32_t x) { return __builtin_ffs(int(x)); }
inline int __float_as_int(float x) { return int(warp::bits(x)); }

inline float __int_as_float(int x)
{
    float out;
    std::memcpy(&out, &x, 4);
    return out;
}
