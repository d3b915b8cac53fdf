// Building blocks of the tuned kernels: barriers in shared memory, bulk tensor copies, warpgroup matrix products.
// One function an instruction of the PTX ISA (sections "mbarrier", "cp.async.bulk.tensor", "wgmma"); sm_90a only.
#pragma once

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
struct alignas(64) TensorMap { u64 opaque[16]; };  // CUtensorMap, filled by the host

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- barriers: a phase ends when `count` arrivals and all announced bytes are there

__device__ __forceinline__ void barrier_init(u64* bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count));
}
__device__ __forceinline__ void barrier_expect(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* bar, u32 parity) {
    asm volatile(
        "{\n .reg .pred done;\n"
        "again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n @!done bra again;\n}"
        ::"r"(shared_address(bar)), "r"(parity) : "memory");
}
// A ring of STAGES rooms, tile j in room j % STAGES: wait until it is there, and until its room may be written again.
template <int STAGES> __device__ __forceinline__ void full_wait(u64 (&full)[STAGES], int j) {
    barrier_wait(&full[j % STAGES], (j / STAGES) & 1);
}
template <int STAGES> __device__ __forceinline__ void free_wait(u64 (&free)[STAGES], int j) {
    if (j >= STAGES) barrier_wait(&free[j % STAGES], (j / STAGES - 1) & 1);
}
// What ordinary stores wrote to shared memory becomes visible to bulk copies and matrix products.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// A barrier among the 128 threads of one warpgroup.
__device__ __forceinline__ void group_sync(u32 id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }
// Two warpgroups take turns at a piece of code: one waits at `turn`, the other passes the turn on.
__device__ __forceinline__ void turn_wait(u32 turn) { asm volatile("bar.sync %0, 256;" ::"r"(turn) : "memory"); }
__device__ __forceinline__ void turn_pass(u32 turn) { asm volatile("bar.arrive %0, 256;" ::"r"(turn) : "memory"); }

// 2^x in one instruction. Results below 2^-126 become 0; exp2f keeps them and needs three more instructions.
__device__ __forceinline__ float power_of_2(float x) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

// Registers change hands: a warpgroup that only fetches gives up its own.
template <int N> __device__ __forceinline__ void registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- bulk tensor copies: a box of (instances, rows, 64 columns), swizzled by 128 bytes

__device__ __forceinline__ void copy_in(void* to, const TensorMap* map, u64* bar, int column, int row, int instance) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
        "[%1, {%3, %4, %5}], [%2];"
        ::"r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), "r"(column), "r"(row), "r"(instance) : "memory");
}
// copy_in for data that other blocks read too: the L2 evicts it last, while much else streams through the L2.
__device__ __forceinline__ void copy_in_to_stay(void* to, const TensorMap* map, u64* bar, int column, int row,
                                                int instance) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%3, %4, %5}], [%2], %6;"
        ::"r"(shared_address(to)), "l"(map), "r"(shared_address(bar)), "r"(column), "r"(row), "r"(instance), "l"(policy)
        : "memory");
}
// A copy to HBM of data that this kernel does not read again: a box of (instances, rows, panels of 64 columns), one
// group.
__device__ __forceinline__ void copy_out_once(const TensorMap* map, const void* from, int panel, int row, int instance) {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;\n"
        "cp.async.bulk.commit_group;"
        ::"l"(map), "r"(shared_address(from)), "r"(0), "r"(panel), "r"(row), "r"(instance), "l"(policy) : "memory");
}
// Waits until the copies to HBM of this thread have read shared memory, which may then be written again.
__device__ __forceinline__ void copy_out_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Stores four 8 x 8 matrices of halves, spread over a warp as products leave them. Lane l gives the address of row
// l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(void* to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared_address(to)), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
// Loads four such matrices, spread over a warp as the left operand of a product needs them.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], const void* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(from)) : "memory");
}
// A tile of 64-column panels, 128 bytes a row; 16-byte chunks of a row are permuted by the row, as the copies do it.
__device__ __forceinline__ u32 swizzled(u32 row, u32 byte) { return row * 128 + (byte ^ ((row & 7) << 4)); }

// One warpgroup writes its ROWS rows of COLUMNS halves, 16 bytes a store, from swizzled panels to rows of a tensor.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void store_rows(uint4* to, const char* from, int panel_bytes, int first, int length,
                                           int instance) {
    constexpr int PER_ROW = COLUMNS / 8;
#pragma unroll
    for (int c = threadIdx.x % 128; c < ROWS * PER_ROW; c += 128) {
        int row = c / PER_ROW, chunk = c % PER_ROW;
        const char* at = from + (chunk / 8) * panel_bytes + swizzled(row, (chunk % 8) * 16);
        if (first + row < length)
            to[((u64)instance * length + first + row) * PER_ROW + chunk] = *reinterpret_cast<const uint4*>(at);
    }
}

// ---- matrix products of a warpgroup: D (64 x n, fp32, in registers) += A (64 x 16) B (16 x n)

// Where an operand lies: address, the stride between panels along its contiguous axis, 1024 B between groups of 8 rows,
// 128-byte swizzle.
__device__ __forceinline__ u64 operand(const void* p, u32 panel_bytes) {
    u64 address = (shared_address(p) & 0x3FFFF) >> 4;
    return address | ((u64)((panel_bytes & 0x3FFFF) >> 4) << 16) | ((u64)(1024 >> 4) << 32) | ((u64)1 << 62);
}
__device__ __forceinline__ void product_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void product_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void product_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// The compiler may not move uses of these registers over this point: a product in flight owns them.
template <int N> __device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#ifdef BF16
#define TYPES "bf16.bf16"
#define PACK "cvt.rn.bf16x2.f32"
#else
#define TYPES "f16.f16"
#define PACK "cvt.rn.f16x2.f32"
#endif
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm(PACK " %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define REGS32                                                                                                     \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31}"
#define REGS64                                                                                                     \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
    "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
    "%58,%59,%60,%61,%62,%63}"

// A and B in shared memory, both with the summed axis contiguous (A: rows of Q, B: rows of K).
__device__ __forceinline__ void product(float (&d)[32], u64 a, u64 b, int add) {
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " " REGS32 ", %32, %33, p, 1, 1, 0, 0;\n}"
                 : F16(d, 0), F16(d, 16) : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void product(float (&d)[64], u64 a, u64 b, int add) {
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " " REGS64 ", %64, %65, p, 1, 1, 0, 0;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48) : "l"(a), "l"(b), "r"(add));
}
// A in registers, B in shared memory with the summed axis contiguous (rows of K).
__device__ __forceinline__ void product(float (&d)[64], const u32* a, u64 b, int add) {
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " " REGS64 ", {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
// A in registers, B in shared memory with its columns contiguous (rows of V).
__device__ __forceinline__ void product(float (&d)[32], const u32* a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " " REGS32 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void product(float (&d)[64], const u32* a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " " REGS64 ", {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// A in shared memory with the summed axis contiguous (rows of P), B with its columns contiguous (rows of V).
__device__ __forceinline__ void product_columns(float (&d)[32], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPES " " REGS32 ", %32, %33, 1, 1, 1, 0, 1;"
                 : F16(d, 0), F16(d, 16) : "l"(a), "l"(b));
}
__device__ __forceinline__ void product_columns(float (&d)[64], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPES " " REGS64 ", %64, %65, 1, 1, 1, 0, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48) : "l"(a), "l"(b));
}
