// Tuned three-kernel standard attention for Hopper (Dao et al. 2022, Algorithm 0): the words of standard-tiled with
// BR query rows, half of them a warpgroup, each pass at memory speed. S and P are N x Nk halves in HBM.
// Compiled with -DD=64|128 -DBC=128 -DCHUNKS=<16-byte chunks a thread and row> -DROWS_Q -DWARP_ROWS
// [-DBF16] [-DIOSIM_COUNT].
#include "hopper.cuh"

constexpr int BR = 256, ROWS = BR / 2, PARTS = ROWS / 64, THREADS = 384, STAGES = 2, PANELS = D / 64;
static_assert(BR == ROWS_Q && 16 * PARTS == WARP_ROWS);  // boxes of the host's tensor maps

// ---------------------------------------------------------------- S = Q K^T / sqrt(d)

// S leaves in bulk: ordinary stores would hold a warp up until the memory takes them. A swizzled box is 64 columns wide,
// and memory takes whole rows of a tile faster than a tile 64 columns at a time; so the map of S has the panels of a row
// as an axis of its own, and a tile lies in shared memory row by row.
struct SharedScores {
    alignas(1024) char q[BR * D * 2];
    alignas(1024) char k[STAGES][BC * D * 2];
    alignas(1024) char s[BR * BC * 2];
    u64 q_full, k_full[STAGES], k_free[STAGES];
};

__device__ __forceinline__ void fetch_scores(SharedScores& sm, const TensorMap* Q, const TensorMap* K, int first, int head,
                                             int kv_head, int tiles) {
    barrier_expect(&sm.q_full, BR * D * 2);
    for (int panel = 0; panel < PANELS; panel++)
        copy_in(sm.q + panel * BR * 128, Q, &sm.q_full, panel * 64, first, head);
    for (int j = 0; j < tiles; j++) {
        int s = j % STAGES;
        if (j >= STAGES) barrier_wait(&sm.k_free[s], (j / STAGES - 1) & 1);
        barrier_expect(&sm.k_full[s], BC * D * 2);
        for (int panel = 0; panel < PANELS; panel++)
            copy_in_to_stay(sm.k[s] + panel * BC * 128, K, &sm.k_full[s], panel * 64, j * BC, kv_head);
    }
}

// A warp's rows of a tile, scaled, to S: through `out` in shared memory, whose last contents may be on their way still.
__device__ __forceinline__ void write_scores(float (&s)[PARTS][BC / 2], float scale, char* out, const TensorMap* panels,
                                             u16* S, int row, int column, int head, int N, int Nk) {
    int lane = threadIdx.x % 32;
    copy_out_wait();
    __syncwarp();
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int i = 0; i < BC / 2; i += 8) {
            int chunk = i / 4 + lane / 16;
            store_matrices(out + swizzled((m * 16 + lane % 16) * (BC / 64) + chunk / 8, (chunk % 8) * 16),
                           pack(s[m][i] * scale, s[m][i + 1] * scale),
                           pack(s[m][i + 2] * scale, s[m][i + 3] * scale),
                           pack(s[m][i + 4] * scale, s[m][i + 5] * scale),
                           pack(s[m][i + 6] * scale, s[m][i + 7] * scale));
        }
    fence_async();
    __syncwarp();
    if (lane == 0 && column + 64 <= Nk) copy_out_once(panels, out, column / 64, row, head);
    // Columns past the last whole panel, which no box can end in.
    int whole = Nk / 64 * 64;
    for (int c = lane; column + BC > whole && c < 16 * PARTS * 8; c += 32) {
        int r = c / 8, tail = whole + c % 8 * 8, panel = (whole - column) / 64;
        if (row + r < N && tail < Nk)
            *reinterpret_cast<uint4*>(S + ((u64)head * N + row + r) * Nk + tail) =
                *reinterpret_cast<const uint4*>(out + swizzled(r * (BC / 64) + panel, c % 8 * 16));
    }
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
scores(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K, const __grid_constant__ TensorMap panels,
       u16* S, u64* counts, int N, int Nk, int group, float scale) {
    extern __shared__ char raw[];
    SharedScores& sm = *reinterpret_cast<SharedScores*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    int first = blockIdx.x * BR, head = blockIdx.y, tiles = (Nk + BC - 1) / BC;
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1);
        for (int s = 0; s < STAGES; s++) barrier_init(&sm.k_full[s], 1), barrier_init(&sm.k_free[s], 8);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>();
        if (threadIdx.x == 0) {
            fetch_scores(sm, &Q, &K, first, head, head / group, tiles);
#ifdef IOSIM_COUNT
            u64 rows = min(BR, N - first);
            atomicAdd(counts, rows * D), atomicAdd(counts + 1, (u64)Nk * D), atomicAdd(counts + 4, rows * Nk);
#endif
        }
        return;
    }
    registers_more<240>();
    int half = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    int own = warp * 16 * PARTS;  // a warp's rows follow each other, so that one box takes them out
    u32 q[PARTS][D / 16][4];      // Q in registers: the products then read K alone from shared memory
    float s[PARTS][BC / 2];
    barrier_wait(&sm.q_full, 0);
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            load_matrices(q[m][c], sm.q + (c / 4) * BR * 128 +
                                       swizzled(own + m * 16 + lane % 16, (c % 4) * 32 + lane / 16 * 16));
    // The two warpgroups take turns: one multiplies while the other writes, so that the memory never waits for both.
    u32 my_turn = 8 + half, other_turn = 9 - half;
    if (half == 1) turn_pass(other_turn);
    for (int j = 0; j < tiles; j++) {
        int stage = j % STAGES;
        barrier_wait(&sm.k_full[stage], (j / STAGES) & 1);
        turn_wait(my_turn);
        product_begin();
#pragma unroll
        for (int m = 0; m < PARTS; m++)
#pragma unroll
            for (int c = 0; c < D / 16; c++)
                product(s[m], q[m][c], operand(sm.k[stage] + (c / 4) * BC * 128 + (c % 4) * 32, 0), c);
        product_commit();
        product_wait<0>();
#pragma unroll
        for (int m = 0; m < PARTS; m++) pin(s[m]);
        turn_pass(other_turn);
        if (lane == 0) barrier_arrive(&sm.k_free[stage]);
        write_scores(s, scale, sm.s + own * BC * 2, &panels, S, first + own, j * BC, head, N, Nk);
    }
    if (half == 0) turn_wait(my_turn);  // the last turn that was passed
    copy_out_wait();
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
        for (int e = 0; e < 8; e++) sum += x[c][e] = power_of_2(x[c][e] * 1.4426950408889634f - safe);
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
    alignas(1024) char p[STAGES][BR * BC * 2];
    alignas(1024) char v[STAGES][BC * D * 2];
    u64 full[STAGES], free[STAGES];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
output(const __grid_constant__ TensorMap P, const __grid_constant__ TensorMap V, uint4* O, u64* counts, int N, int Nk,
       int group) {
    extern __shared__ char raw[];
    SharedOutput& sm = *reinterpret_cast<SharedOutput*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    int first = blockIdx.x * BR, head = blockIdx.y, tiles = (Nk + BC - 1) / BC;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) barrier_init(&sm.full[s], 1), barrier_init(&sm.free[s], 8);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) {
            for (int j = 0; j < tiles; j++) {
                int s = j % STAGES;
                if (j >= STAGES) barrier_wait(&sm.free[s], (j / STAGES - 1) & 1);
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
    float o[PARTS][D / 2];
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[m][i] = 0.f;
    for (int j = 0; j < tiles; j++) {
        int s = j % STAGES;
        barrier_wait(&sm.full[s], (j / STAGES) & 1);
        product_begin();
#pragma unroll
        for (int c = 0; c < BC / 16; c++)
#pragma unroll
            for (int m = 0; m < PARTS; m++)
                product_columns(o[m], operand(sm.p[s] + (half * ROWS + m * 64) * 128 + (c / 4) * BR * 128 + (c % 4) * 32, 0),
                                operand(sm.v[s] + c * 16 * 128, BC * 128));
        product_commit();
        product_wait<0>();
#pragma unroll
        for (int m = 0; m < PARTS; m++) pin(o[m]);
        if (lane == 0) barrier_arrive(&sm.free[s]);
    }
    __syncwarp();
    // All warpgroups are through: the first stage is free for O.
    asm volatile("bar.sync 8, %0;" ::"n"(THREADS - 128) : "memory");
    char* out = sm.p[0] + half * ROWS * D * 2;
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            int r = (i >> 1) & 1, column = (i / 4) * 8 + (lane % 4) * 2;
            u32 at = (column / 64) * ROWS * 128 + swizzled(m * 64 + warp * 16 + lane / 4 + 8 * r, (column % 64) * 2);
            *reinterpret_cast<u32*>(out + at) = pack(o[m][i], o[m][i + 1]);
        }
    group_sync(1 + half);
    store_rows<ROWS, D>(O, out, ROWS * 128, first + half * ROWS, N, head);
}
