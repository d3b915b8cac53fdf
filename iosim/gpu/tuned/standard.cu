// Tuned three-kernel standard attention for Hopper (Dao et al. 2022, Algorithm 0): the words of standard-tiled with
// BR query rows, half of them a warpgroup, each pass at memory speed. S and P are N x Nk halves in HBM.
// Compiled with -DD=64|128 -DBC=128 -DCHUNKS=<16-byte chunks a thread and row> -DROWS_Q -DWARP_ROWS
// [-DBF16] [-DIOSIM_COUNT].
#include "hopper.cuh"

constexpr int BR = 256, ROWS = BR / 2, PARTS = ROWS / 64, THREADS = 384, STAGES = 2, PANELS = D / 64;
static_assert(BR == ROWS_Q && 16 * PARTS == WARP_ROWS);  // boxes of the host's tensor maps

// What a block works on: BR queries of a head from `first` on, and all key tiles.
struct Work {
    int N, Nk, head, first, tiles;

    // The j-th key tile whose scores are written. The blocks of a head begin at different columns of a row: memory is
    // slower if all of them write the same columns.
    __device__ __forceinline__ int column(int j) const {
        return (j + (int)(blockIdx.x * tiles / gridDim.x)) % tiles * BC;
    }
};

__device__ __forceinline__ Work work_of_block(int N, int Nk) {
    return {N, Nk, (int)blockIdx.y, (int)blockIdx.x * BR, (Nk + BC - 1) / BC};
}

// ---------------------------------------------------------------- S = Q K^T / sqrt(d)

// S leaves in bulk: ordinary stores would hold a warp up until the memory takes them. A swizzled box is 64 columns
// wide, and memory takes whole rows of a tile faster than a tile 64 columns at a time; so the map of S has the panels
// of a row as an axis of its own, and a tile lies in shared memory row by row.
struct SharedScores {
    alignas(1024) char q[BR * D * 2];
    alignas(1024) char k[STAGES][BC * D * 2];
    alignas(1024) char s[BR * BC * 2];
    u64 q_full, k_full[STAGES], k_free[STAGES];
};

__device__ __forceinline__ void barriers_init(SharedScores& sm) {
    barrier_init(&sm.q_full, 1);
    for (int s = 0; s < STAGES; s++) barrier_init(&sm.k_full[s], 1), barrier_init(&sm.k_free[s], 8);
    fence_async();
}

__device__ __forceinline__ void fetch_scores(SharedScores& sm, const Work& w, const TensorMap* Q, const TensorMap* K,
                                             int kv_head) {
    barrier_expect(&sm.q_full, BR * D * 2);
    for (int panel = 0; panel < PANELS; panel++)
        copy_in(sm.q + panel * BR * 128, Q, &sm.q_full, panel * 64, w.first, w.head);
    for (int j = 0; j < w.tiles; j++) {
        int s = j % STAGES;
        free_wait(sm.k_free, j);
        barrier_expect(&sm.k_full[s], BC * D * 2);
        for (int panel = 0; panel < PANELS; panel++)
            copy_in_to_stay(sm.k[s] + panel * BC * 128, K, &sm.k_full[s], panel * 64, w.column(j), kv_head);
    }
}

__device__ __forceinline__ void count_scores(u64* counts, const Work& w) {
#ifdef IOSIM_COUNT
    u64 rows = min(BR, w.N - w.first);
    atomicAdd(counts, rows * D), atomicAdd(counts + 1, (u64)w.Nk * D), atomicAdd(counts + 4, rows * w.Nk);
#endif
}

// Loads a warp's rows of Q into registers. The products then read only K from shared memory.
__device__ __forceinline__ void load_queries(u32 (&q)[PARTS][D / 16][4], const char* from, int own) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            load_matrices(q[m][c], from + (c / 4) * BR * 128 +
                                       swizzled(own + m * 16 + lane % 16, (c % 4) * 32 + lane / 16 * 16));
}

// Computes S of a warpgroup and one key tile, and waits until it is there.
__device__ __forceinline__ void multiply(float (&s)[PARTS][BC / 2], const u32 (&q)[PARTS][D / 16][4], const char* k) {
    product_begin();
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int c = 0; c < D / 16; c++)
            product(s[m], q[m][c], operand(k + (c / 4) * BC * 128 + (c % 4) * 32, 0), c);
    product_commit();
    product_wait<0>();
#pragma unroll
    for (int m = 0; m < PARTS; m++) pin(s[m]);
}

// Writes a warp's rows of a tile, scaled, to shared memory.
__device__ __forceinline__ void stage_scores(const float (&s)[PARTS][BC / 2], float scale, char* out) {
    int lane = threadIdx.x % 32;
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
}

// Writes the columns past the last whole panel, because no box can end inside a panel: 16 bytes a thread and turn.
__device__ __forceinline__ void write_last_columns(const char* out, u16* S, const Work& w, int row, int column) {
    int whole = w.Nk / 64 * 64;
    for (int c = threadIdx.x % 32; column + BC > whole && c < 16 * PARTS * 8; c += 32) {
        int r = c / 8, tail = whole + c % 8 * 8, panel = (whole - column) / 64;
        if (row + r < w.N && tail < w.Nk)
            *reinterpret_cast<uint4*>(S + ((u64)w.head * w.N + row + r) * w.Nk + tail) =
                *reinterpret_cast<const uint4*>(out + swizzled(r * (BC / 64) + panel, c % 8 * 16));
    }
}

// Writes a warp's rows of a tile, scaled, to S. They go through `out` in shared memory, after its last contents were
// copied.
__device__ __forceinline__ void write_scores(const float (&s)[PARTS][BC / 2], float scale, char* out,
                                             const TensorMap* panels, u16* S, const Work& w, int row, int column) {
    copy_out_wait();
    __syncwarp();
    stage_scores(s, scale, out);
    fence_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0 && column + 64 <= w.Nk) copy_out_once(panels, out, column / 64, row, w.head);
    write_last_columns(out, S, w, row, column);
    __syncwarp();
}

// The two warpgroups take turns: one multiplies while the other writes, so that the memory never waits for both.
__device__ __forceinline__ void compute_scores(SharedScores& sm, const Work& w, const TensorMap* panels, u16* S,
                                               float scale) {
    int half = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
    int own = warp * 16 * PARTS;  // a warp's rows follow each other, so that one box takes them out
    u32 q[PARTS][D / 16][4];
    float s[PARTS][BC / 2];
    barrier_wait(&sm.q_full, 0);
    load_queries(q, sm.q, own);
    u32 my_turn = 8 + half, other_turn = 9 - half;
    if (half == 1) turn_pass(other_turn);  // half 0 begins
    for (int j = 0; j < w.tiles; j++) {
        int stage = j % STAGES;
        full_wait(sm.k_full, j);
        turn_wait(my_turn);
        multiply(s, q, sm.k[stage]);
        turn_pass(other_turn);
        if (lane == 0) barrier_arrive(&sm.k_free[stage]);
        write_scores(s, scale, sm.s + own * BC * 2, panels, S, w, w.first + own, w.column(j));
    }
    if (half == 0) turn_wait(my_turn);  // the last turn that was passed
    copy_out_wait();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
scores(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
       const __grid_constant__ TensorMap panels, u16* S, u64* counts, int N, int Nk, int group, float scale) {
    extern __shared__ char raw[];
    SharedScores& sm = *reinterpret_cast<SharedScores*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    Work w = work_of_block(N, Nk);
    if (threadIdx.x == 0) barriers_init(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>();
        if (threadIdx.x == 0) {
            fetch_scores(sm, w, &Q, &K, w.head / group);
            count_scores(counts, w);
        }
    } else {
        registers_more<240>();
        compute_scores(sm, w, &panels, S, scale);
    }
}

// ---------------------------------------------------------------- P = softmax(S)

#include "softmax_rows.cuh"

// ---------------------------------------------------------------- O = P V

struct SharedOutput {
    alignas(1024) char p[STAGES][BR * BC * 2];
    alignas(1024) char v[STAGES][BC * D * 2];
    u64 full[STAGES], free[STAGES];
};

__device__ __forceinline__ void barriers_init(SharedOutput& sm) {
    for (int s = 0; s < STAGES; s++) barrier_init(&sm.full[s], 1), barrier_init(&sm.free[s], 8);
    fence_async();
}

__device__ __forceinline__ void fetch_output(SharedOutput& sm, const Work& w, const TensorMap* P, const TensorMap* V,
                                             int group) {
    for (int j = 0; j < w.tiles; j++) {
        int s = j % STAGES;
        free_wait(sm.free, j);
        barrier_expect(&sm.full[s], BC * D * 2 + BR * BC * 2);
        for (int panel = 0; panel < BC / 64; panel++)
            copy_in(sm.p[s] + panel * BR * 128, P, &sm.full[s], j * BC + panel * 64, w.first, w.head);
        for (int panel = 0; panel < PANELS; panel++)
            copy_in(sm.v[s] + panel * BC * 128, V, &sm.full[s], panel * 64, j * BC, w.head / group);
    }
}

__device__ __forceinline__ void count_output(u64* counts, const Work& w) {
#ifdef IOSIM_COUNT
    u64 rows = min(BR, w.N - w.first);
    atomicAdd(counts + 7, rows * w.Nk), atomicAdd(counts + 2, (u64)w.Nk * D), atomicAdd(counts + 3, rows * D);
#endif
}

// Adds one key tile to O, from a warpgroup's rows of P, and waits until it is there.
__device__ __forceinline__ void add_product(float (&o)[PARTS][D / 2], const char* p, const char* v) {
    product_begin();
#pragma unroll
    for (int c = 0; c < BC / 16; c++)
#pragma unroll
        for (int m = 0; m < PARTS; m++)
            product_columns(o[m], operand(p + m * 64 * 128 + (c / 4) * BR * 128 + (c % 4) * 32, 0),
                            operand(v + c * 16 * 128, BC * 128));
    product_commit();
    product_wait<0>();
#pragma unroll
    for (int m = 0; m < PARTS; m++) pin(o[m]);
}

// Writes a warpgroup's rows of O, rounded, to shared memory.
__device__ __forceinline__ void stage_output(const float (&o)[PARTS][D / 2], int warp, int lane, char* out) {
#pragma unroll
    for (int m = 0; m < PARTS; m++)
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            int r = (i >> 1) & 1, column = (i / 4) * 8 + (lane % 4) * 2;
            u32 at = (column / 64) * ROWS * 128 + swizzled(m * 64 + warp * 16 + lane / 4 + 8 * r, (column % 64) * 2);
            *reinterpret_cast<u32*>(out + at) = pack(o[m][i], o[m][i + 1]);
        }
}

__device__ __forceinline__ void compute_output(SharedOutput& sm, const Work& w, uint4* O) {
    int half = threadIdx.x / 128 - 1, warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
    float o[PARTS][D / 2] = {};
    for (int j = 0; j < w.tiles; j++) {
        int s = j % STAGES;
        full_wait(sm.full, j);
        add_product(o, sm.p[s] + half * ROWS * 128, sm.v[s]);
        if (lane == 0) barrier_arrive(&sm.free[s]);
    }
    __syncwarp();
    // All warpgroups have read their last tile: the first stage is free for O.
    asm volatile("bar.sync 8, %0;" ::"n"(THREADS - 128) : "memory");
    char* out = sm.p[0] + half * ROWS * D * 2;
    stage_output(o, warp, lane, out);
    group_sync(1 + half);
    store_rows<ROWS, D>(O, out, ROWS * 128, w.first + half * ROWS, w.N, w.head);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
output(const __grid_constant__ TensorMap P, const __grid_constant__ TensorMap V, uint4* O, u64* counts, int N, int Nk,
       int group) {
    extern __shared__ char raw[];
    SharedOutput& sm = *reinterpret_cast<SharedOutput*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    Work w = work_of_block(N, Nk);
    if (threadIdx.x == 0) barriers_init(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) {
            fetch_output(sm, w, &P, &V, group);
            count_output(counts, w);
        }
    } else {
        compute_output(sm, w, O);
    }
}
