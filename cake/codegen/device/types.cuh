// Loops over registers are unrolled, so that their arrays become registers; loops of the schedule never are.
#define UNROLLED _Pragma("unroll")

#define ROLLED _Pragma("unroll 1")

using int8_t = signed char;

using uint8_t = unsigned char;

using uint16_t = unsigned short;

using uint32_t = unsigned int;

using int64_t = long long;

using uint64_t = unsigned long long;

// Elements narrower than 32 bits, as they lie in memory.
struct bf16 {
    uint16_t bits;
};

struct f16 {
    uint16_t bits;
};

struct e4m3 {
    uint8_t bits;
};

struct e5m2 {
    uint8_t bits;
};

// A TMA descriptor, made on the host.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

// A position in a ring: its slot, and the parity of its phase.
struct Cursor {
    uint32_t slot = 0, phase = 0;
};

// Step to the next position; no division.
template <uint32_t Slots>
__device__ __forceinline__ void advance(Cursor &c)
{
    if (++c.slot == Slots) {
        c.slot = 0;
        c.phase ^= 1;
    }
}

template <uint32_t Slots>
__device__ __forceinline__ void advance(Cursor &c, uint32_t by)
{
    c.slot += by % Slots;
    c.phase ^= by / Slots & 1;
    if (c.slot >= Slots) {
        c.slot -= Slots;
        c.phase ^= 1;
    }
}

template <uint32_t Slots>
__device__ __forceinline__ void advance(uint32_t &slot, uint32_t by = 1)
{
    slot += by % Slots;
    if (slot >= Slots)
        slot -= Slots;
}

// The slot `back` positions before (0 < back < slots).
__device__ __forceinline__ uint32_t slot_back(uint32_t slot, uint32_t back, uint32_t slots)
{
    return slot >= back ? slot - back : slot + slots - back;
}
