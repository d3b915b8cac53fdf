// Tuned three-kernel standard attention for Hopper (Dao et al. 2022, Algorithm 0): the words of standard-tiled with
// BR query rows, 64 a warpgroup, each pass at memory speed. S and P are N x Nk halves in HBM.
// Compiled with -DD=64|128 -DBC=128 -DCHUNKS=<16-byte chunks a thread and row> [-DBF16] [-DIOSIM_COUNT].
#include "hopper.cuh"

constexpr int BR = 128, GROUPS = BR / 64, THREADS = 128 + BR * 2, STAGES = 2, DEEP = 3, PANELS = D / 64;

// ---------------------------------------------------------------- S = Q K^T / sqrt(d)

struct SharedScores {
    alignas(1024) char q[BR * D * 2];
    alignas(1024) char k[STAGES][BC * D * 2];
    alignas(1024) char s[BR * BC * 2];
    u64 q_full, k_full[STAGES], k_free[STAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
scores(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K, u16* S,
       u64* counts, int N, int Nk, int group, float scale) {
    extern __shared__ char raw[];
    SharedScores& sm = *reinterpret_cast<SharedScores*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    int first = blockIdx.x * BR, head = blockIdx.y, tiles = (Nk + BC - 1) / BC;
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1);
        for (int s = 0; s < STAGES; s++) barrier_init(&sm.k_full[s], 1), barrier_init(&sm.k_free[s], 4 * GROUPS);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) {
            barrier_expect(&sm.q_full, BR * D * 2);
            for (int panel = 0; panel < PANELS; panel++)
                copy_in(sm.q + panel * BR * 128, &Q, &sm.q_full, panel * 64, first, head);
            for (int j = 0; j < tiles; j++) {
                int s = j % STAGES;
                if (j >= STAGES) barrier_wait(&sm.k_free[s], (j / STAGES - 1) & 1);
                barrier_expect(&sm.k_full[s], BC * D * 2);
                for (int panel = 0; panel < PANELS; panel++)
                    copy_in_to_stay(sm.k[s] + panel * BC * 128, &K, &sm.k_full[s], panel * 64, j * BC, head / group);
            }
#ifdef IOSIM_COUNT
            u64 rows = min(BR, N - first);
            atomicAdd(counts, rows * D), atomicAdd(counts + 1, (u64)Nk * D), atomicAdd(counts + 4, rows * Nk);
#endif
        }
        return;
    }
    int half = threadIdx.x / 128 - 1, warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
    int row = first + half * 64 + warp * 16 + lane / 4;
    const char* q = sm.q + half * 64 * 128;
    float s[BC / 2];
    barrier_wait(&sm.q_full, 0);
    // The two warpgroups take turns: one multiplies while the other writes, so that the memory never waits for both.
    u32 my_turn = 8 + half, other_turn = 9 - half;
    if (half == 1) turn_pass(other_turn);
    for (int j = 0; j < tiles; j++) {
        int stage = j % STAGES;
        barrier_wait(&sm.k_full[stage], (j / STAGES) & 1);
        turn_wait(my_turn);
        product_begin();
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            product(s, operand(q + (c / 4) * BR * 128 + (c % 4) * 32, 0),
                    operand(sm.k[stage] + (c / 4) * BC * 128 + (c % 4) * 32, 0), c);
        product_commit();
        product_wait<0>();
        pin(s);
        turn_pass(other_turn);
        if (lane == 0) barrier_arrive(&sm.k_free[stage]);
        // A warp turns its 16 rows around in shared memory and writes them in lines of 2 BC bytes.
        char* out = sm.s + (half * 64 + warp * 16) * BC * 2;
#pragma unroll
        for (int i = 0; i < BC / 2; i += 8) {
            int chunk = i / 4 + lane / 16;
            store_matrices(out + (chunk / 8) * 16 * 128 + swizzled(lane % 16, (chunk % 8) * 16),
                           pack(s[i] * scale, s[i + 1] * scale), pack(s[i + 2] * scale, s[i + 3] * scale),
                           pack(s[i + 4] * scale, s[i + 5] * scale), pack(s[i + 6] * scale, s[i + 7] * scale));
        }
        __syncwarp();
#pragma unroll
        for (int c = lane; c < 16 * BC / 8; c += 32) {
            int r = c / (BC / 8), column = c % (BC / 8) * 8, query = row - lane / 4 + r;
            const char* from = out + (column / 64) * 16 * 128 + swizzled(r, (column % 64) * 2);
            if (query < N && j * BC + column < Nk)
                __stcs(reinterpret_cast<uint4*>(S + ((u64)head * N + query) * Nk + j * BC + column),
                       *reinterpret_cast<const uint4*>(from));
        }
        __syncwarp();
    }
    if (half == 0) turn_wait(my_turn);  // the last turn that was passed
}

// ---------------------------------------------------------------- P = softmax(S): a block a row, the row in registers

__device__ __forceinline__ float lift(u32 bits, int high) {
#ifdef BF16
    return __uint_as_float(high ? bits & 0xFFFF0000u : bits << 16);
#else
    float value;
    asm("{\n .reg .f16 a, b;\n mov.b32 {a, b}, %1;\n cvt.f32.f16 %0, a;\n}"
        : "=f"(value) : "r"(high ? bits >> 16 : bits));
    return value;
#endif
}

// One value for the whole block, from one a thread.
template <bool MAXIMUM> __device__ __forceinline__ float together(float x, float* room) {
#pragma unroll
    for (int step = 16; step; step /= 2) {
        float y = __shfl_xor_sync(~0u, x, step);
        x = MAXIMUM ? fmaxf(x, y) : x + y;
    }
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
    __syncthreads();
    float all = room[0];
    for (int w = 1; w < blockDim.x / 32; w++) all = MAXIMUM ? fmaxf(all, room[w]) : all + room[w];
    return all;
}

extern "C" __global__ void softmax_rows(const uint4* S, uint4* P, u64* counts, int row_chunks) {
    __shared__ float tops[32], sums[32];
    u64 at = (u64)blockIdx.x * row_chunks;
    u32 words[CHUNKS][4];
    float x[CHUNKS][8], top = -INFINITY, sum = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int chunk = c * blockDim.x + threadIdx.x;
        uint4 got = make_uint4(0, 0, 0, 0);
        if (chunk < row_chunks) got = __ldcs(S + at + chunk);
        words[c][0] = got.x, words[c][1] = got.y, words[c][2] = got.z, words[c][3] = got.w;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x[c][e] = c * blockDim.x + threadIdx.x < row_chunks ? lift(words[c][e / 2], e & 1) : -INFINITY;
            top = fmaxf(top, x[c][e]);
        }
    top = together<true>(top, tops);
    float safe = top == -INFINITY ? 0.f : top * 1.4426950408889634f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int e = 0; e < 8; e++) sum += x[c][e] = exp2f(x[c][e] * 1.4426950408889634f - safe);
    sum = together<false>(sum, sums);
    float share = sum == 0.f ? 0.f : 1.f / sum;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int chunk = c * blockDim.x + threadIdx.x;
        if (chunk < row_chunks)
            __stcs(P + at + chunk,
                   make_uint4(pack(x[c][0] * share, x[c][1] * share), pack(x[c][2] * share, x[c][3] * share),
                              pack(x[c][4] * share, x[c][5] * share), pack(x[c][6] * share, x[c][7] * share)));
    }
#ifdef IOSIM_COUNT
    if (threadIdx.x == 0) atomicAdd(counts + 5, (u64)row_chunks * 8), atomicAdd(counts + 6, (u64)row_chunks * 8);
#endif
}

// ---------------------------------------------------------------- O = P V

struct SharedOutput {
    alignas(1024) char p[DEEP][BR * BC * 2];
    alignas(1024) char v[DEEP][BC * D * 2];
    u64 full[DEEP], free[DEEP];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
output(const __grid_constant__ TensorMap P, const __grid_constant__ TensorMap V, uint4* O, u64* counts, int N, int Nk,
       int group) {
    extern __shared__ char raw[];
    SharedOutput& sm = *reinterpret_cast<SharedOutput*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    int first = blockIdx.x * BR, head = blockIdx.y, tiles = (Nk + BC - 1) / BC;
    if (threadIdx.x == 0) {
        for (int s = 0; s < DEEP; s++) barrier_init(&sm.full[s], 1), barrier_init(&sm.free[s], 4 * GROUPS);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) {
            for (int j = 0; j < tiles; j++) {
                int s = j % DEEP;
                if (j >= DEEP) barrier_wait(&sm.free[s], (j / DEEP - 1) & 1);
                barrier_expect(&sm.full[s], BC * D * 2 + BR * BC * 2);
                for (int panel = 0; panel < BC / 64; panel++)
                    copy_in(sm.p[s] + panel * BR * 128, &P, &sm.full[s], j * BC + panel * 64, first, head);
                for (int panel = 0; panel < PANELS; panel++)
                    copy_in(sm.v[s] + panel * BC * 128, &V, &sm.full[s], panel * 64, j * BC, head / group);
            }
#ifdef IOSIM_COUNT
            u64 rows = min(BR, N - first);
            atomicAdd(counts + 7, rows * Nk), atomicAdd(counts + 2, (u64)Nk * D), atomicAdd(counts + 3, rows * D);
#endif
        }
        return;
    }
    int half = threadIdx.x / 128 - 1, warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
    float o[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0.f;
    for (int j = 0; j < tiles; j++) {
        int s = j % DEEP;
        barrier_wait(&sm.full[s], (j / DEEP) & 1);
        product_begin();
#pragma unroll
        for (int c = 0; c < BC / 16; c++)
            product_columns(o, operand(sm.p[s] + half * 64 * 128 + (c / 4) * BR * 128 + (c % 4) * 32, 0),
                            operand(sm.v[s] + c * 16 * 128, BC * 128));
        product_commit();
        product_wait<0>();
        pin(o);
        if (lane == 0) barrier_arrive(&sm.free[s]);
    }
    __syncwarp();
    // All warpgroups are through: the first stage is free for O.
    asm volatile("bar.sync 8, %0;" ::"n"(THREADS - 128) : "memory");
    char* out = sm.p[0] + half * 64 * D * 2;
#pragma unroll
    for (int i = 0; i < D / 2; i += 2) {
        int r = (i >> 1) & 1, column = (i / 4) * 8 + (lane % 4) * 2;
        u32 at = (column / 64) * 64 * 128 + swizzled(warp * 16 + lane / 4 + 8 * r, (column % 64) * 2);
        *reinterpret_cast<u32*>(out + at) = pack(o[i], o[i + 1]);
    }
    group_sync(1 + half);
    store_rows<D>(O, out, 64 * 128, first + half * 64, N, head);
}
