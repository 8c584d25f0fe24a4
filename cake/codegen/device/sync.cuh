__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// True in exactly one lane of the warp.
__device__ __forceinline__ bool elect_one()
{
#if __CUDA_ARCH__ >= 900
    uint32_t chosen;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(chosen));
    return chosen != 0;
#else
    return threadIdx.x % 32 == 0;
#endif
}

// ---- mbarriers (PTX ISA 9.7.13.15) ----

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

// Wait until the phase of this parity has completed.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
        "@complete bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n"
        :: "r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void barrier_wait_cluster(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [%0], %1;\n"
        "@complete bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n"
        :: "r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void barrier_wait_relaxed(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 complete, [%0], %1;\n"
        "@complete bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n"
        :: "r"(barrier), "r"(parity) : "memory");
}

// The same where try_wait does not exist (before sm_90).
__device__ __forceinline__ void barrier_test_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.test_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
        "@complete bra done;\n"
        "bra again;\n"
        "done:\n"
        "}\n"
        :: "r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" :: "r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_arrive_n(uint32_t barrier, uint32_t count)
{
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0], %1;\n}\n" :: "r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_arrive_cluster(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Counts, and publishes nothing.
__device__ __forceinline__ void barrier_arrive_relaxed(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Announce bytes that copies will deliver.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// Announce bytes and arrive.
__device__ __forceinline__ void barrier_arrive_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive_expect_relaxed(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.relaxed.cta.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// The rank of this CTA in its cluster: what multicast masks and `mapa` count.
__device__ __forceinline__ int cluster_rank()
{
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Arrive on the same barrier of a CTA of the cluster. At CTA scope it counts there and costs no memory barrier.
__device__ __forceinline__ void barrier_arrive_peer(uint32_t barrier, uint32_t rank, uint32_t count)
{
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote], %2;\n"
        "}\n"
        :: "r"(barrier), "r"(rank), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_arrive_peer_relaxed(uint32_t barrier, uint32_t rank, uint32_t count)
{
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.relaxed.cta.shared::cluster.b64 _, [remote], %2;\n"
        "}\n"
        :: "r"(barrier), "r"(rank), "r"(count) : "memory");
}

__device__ __forceinline__ void fence_cluster()
{
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
}

// A release only after fence_cluster (8.8).
__device__ __forceinline__ void barrier_arrive_peer_relaxed_cluster(uint32_t barrier, uint32_t rank, uint32_t count)
{
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote], %2;\n"
        "}\n"
        :: "r"(barrier), "r"(rank), "r"(count) : "memory");
}

// ---- named barriers (9.7.13.1) and cluster barriers (9.7.13.4) ----

__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.cta.sync.aligned %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads)
{
    asm volatile("barrier.cta.arrive.aligned %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- fences (9.7.13.5) ----

__device__ __forceinline__ void fence_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void fence_async_global()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

__device__ __forceinline__ void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void fence_wgmma()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// ---- groups ----

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int Keep>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(Keep) : "memory");
}

__device__ __forceinline__ void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int Keep>
__device__ __forceinline__ void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" :: "n"(Keep) : "memory");
}

// Until the sources have been read.
template <int Keep>
__device__ __forceinline__ void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(Keep) : "memory");
}

__device__ __forceinline__ void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Keep>
__device__ __forceinline__ void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(Keep) : "memory");
}

// ---- registers between roles (9.7.20.5) ----

template <int Count>
__device__ __forceinline__ void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(Count));
}

template <int Count>
__device__ __forceinline__ void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(Count));
}

// Values must exist here: ptxas may not move their computation past this point.
__device__ __forceinline__ void pin_register(float &x)
{
    asm volatile("" : "+f"(x)::"memory");
}

__device__ __forceinline__ void pin_register(uint32_t &x)
{
    asm volatile("" : "+r"(x)::"memory");
}

__device__ __forceinline__ void pin_register(int &x)
{
    asm volatile("" : "+r"(x)::"memory");
}

__device__ __forceinline__ void pin_register(uint16_t &x)
{
    asm volatile("" : "+h"(x)::"memory");
}

__device__ __forceinline__ void pin_register(int64_t &x)
{
    asm volatile("" : "+l"(x)::"memory");
}

template <typename Word, int Count>
__device__ __forceinline__ void pin(Word (&x)[Count])
{
    UNROLLED for (int i = 0; i < Count; ++i)
        pin_register(x[i]);
}
