// Tuned flash2 for Hopper (Dao 2023, Algorithm 1): the schedule's tiles and words, accumulators in registers.
// One block a tile of BR = 128 queries. Warpgroup 0 fetches K and V tiles two ahead; warpgroups 1 and 2 own 64 rows
// each.
// While the tensor cores work on S of the next key tile and O of this one, the softmax of the next waits for S only.
// The two take turns at starting products, so that one's softmax runs beside the other's products.
// Compiled with -DD=64|128 -DBC=64|128 -DCAUSAL=0|1 [-DBF16] [-DLSE] [-DIOSIM_COUNT].
#include "hopper.cuh"

constexpr int BR = 128, STAGES = 2, PANELS = D / 64;
constexpr int FIRST_TURN = 3;  // and the next: 0 is __syncthreads, 1 and 2 are of each half
static_assert(BR == ROWS_Q);  // boxes of the host's tensor maps
constexpr int Q_BYTES = BR * D * 2, KV_BYTES = BC * D * 2;

struct Shared {
    alignas(1024) char q[Q_BYTES];
    alignas(1024) char k[STAGES][KV_BYTES];
    alignas(1024) char v[STAGES][KV_BYTES];
    u64 q_full, k_full[STAGES], v_full[STAGES], k_free[STAGES], v_free[STAGES];
};

__device__ __forceinline__ void fetch(char* to, const TensorMap* map, u64* bar, int rows, int row, int instance) {
    barrier_expect(bar, rows * D * 2);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) copy_in(to + panel * rows * 128, map, bar, panel * 64, row, instance);
}

__device__ __forceinline__ void scores_start(float (&s)[BC / 2], const char* q, const char* k) {
    product_begin();
#pragma unroll
    for (int c = 0; c < D / 16; c++)
        product(s, operand(q + (c / 4) * BR * 128 + (c % 4) * 32, 0),
                operand(k + (c / 4) * BC * 128 + (c % 4) * 32, 0), c);
    product_commit();
}

__device__ __forceinline__ void output_start(float (&o)[D / 2], const u32 (&p)[BC / 4], const char* v) {
    product_begin();
#pragma unroll
    for (int c = 0; c < BC / 16; c++) product(o, p + 4 * c, operand(v + c * 16 * 128, BC * 128));
    product_commit();
}

// exp2(S - new maximum) in place; m and l move to the new maximum; factors for O. Two rows a thread.
__device__ __forceinline__ void online_softmax(float (&s)[BC / 2], float (&m)[2], float (&l)[2], float (&factor)[2],
                                               float scale) {
    float top[2] = {m[0], m[1]};
#pragma unroll
    for (int i = 0; i < BC / 2; i++) top[(i >> 1) & 1] = fmaxf(top[(i >> 1) & 1], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
        float safe = top[r] == -INFINITY ? 0.f : top[r] * scale;  // a row that has seen nothing keeps l = 0, O = 0
        factor[r] = power_of_2(m[r] * scale - safe);
        m[r] = top[r];
        top[r] = safe;
        l[r] *= factor[r];
    }
#pragma unroll
    for (int i = 0; i < BC / 2; i++) {
        int r = (i >> 1) & 1;
        s[i] = power_of_2(s[i] * scale - top[r]);
        l[r] += s[i];
    }
}

__device__ __forceinline__ void round_scores(const float (&s)[BC / 2], u32 (&p)[BC / 4]) {
#pragma unroll
    for (int i = 0; i < BC / 4; i++) p[i] = pack(s[2 * i], s[2 * i + 1]);
}

// -inf where a key lies past the end or, if causal, past the query's last key (the last query sees the last key).
__device__ __forceinline__ void hide(float (&s)[BC / 2], int row, int key, int N, int Nk) {
#pragma unroll
    for (int i = 0; i < BC / 2; i++) {
        int column = key + (i / 4) * 8 + (i & 1), query = row + ((i >> 1) & 1) * 8;
        if (column >= Nk || (CAUSAL && column > query + Nk - N)) s[i] = -INFINITY;
    }
}

__device__ __forceinline__ int key_tiles(int first_row, int N, int Nk) {
    int keys = Nk;
    if (CAUSAL) keys = min(Nk, min(first_row + BR, N) + Nk - N);
    return keys <= 0 ? 0 : (keys + BC - 1) / BC;
}

extern "C" __global__ void __launch_bounds__(384, 1)
flash2(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K, const __grid_constant__ TensorMap V,
       uint4* O, float* lse, u64* counts, int N, int Nk, int group, float scale) {
    extern __shared__ char raw[];
    Shared& sm = *reinterpret_cast<Shared*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    int tiles_q = (N + BR - 1) / BR, tile = CAUSAL ? tiles_q - 1 - blockIdx.x : blockIdx.x;  // the longest first
    int head = blockIdx.y, first = tile * BR, tiles = key_tiles(first, N, Nk);
    if (threadIdx.x == 0) {
        barrier_init(&sm.q_full, 1);
        for (int s = 0; s < STAGES; s++) {
            barrier_init(&sm.k_full[s], 1), barrier_init(&sm.v_full[s], 1);
            barrier_init(&sm.k_free[s], 8), barrier_init(&sm.v_free[s], 8);  // 8 warps read
        }
        fence_async();
    }
    __syncthreads();

    if (threadIdx.x < 128) {  // ------------------------------------------------------------ fetches
        registers_fewer<24>();
        if (threadIdx.x == 0) {
            int kv = head / group;
            if (tiles) fetch(sm.q, &Q, &sm.q_full, BR, first, head);  // a tile that sees nothing reads nothing
            for (int j = 0; j < tiles; j++) {
                int s = j % STAGES;
                u32 parity = (j / STAGES - 1) & 1;
                if (j >= STAGES) barrier_wait(&sm.k_free[s], parity);
                fetch(sm.k[s], &K, &sm.k_full[s], BC, j * BC, kv);
                if (j >= STAGES) barrier_wait(&sm.v_free[s], parity);
                fetch(sm.v[s], &V, &sm.v_full[s], BC, j * BC, kv);
            }
#ifdef IOSIM_COUNT
            u64 keys = min(tiles * BC, Nk), rows = min(BR, N - first);
            atomicAdd(counts, tiles ? rows * D : 0), atomicAdd(counts + 1, keys * D), atomicAdd(counts + 2, keys * D);
#endif
        }
    } else {  // ------------------------------------------------------------------------------ computes
        registers_more<240>();
        int half = threadIdx.x / 128 - 1, warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
        int row = first + half * 64 + warp * 16 + lane / 4;
        const char* q = sm.q + half * 64 * 128;
        float o[D / 2], s[BC / 2], m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, factor[2];
        u32 p[BC / 4];
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0.f;
        int whole = Nk / BC;  // key tiles from here on need `hide`
        if (CAUSAL) whole = min(whole, max(0, first + half * 64 + Nk - N + 1) / BC);
        if (tiles) {
            barrier_wait(&sm.q_full, 0);
            barrier_wait(&sm.k_full[0], 0);
            scores_start(s, q, sm.k[0]);
            product_wait<0>();
            pin(s);
            if (lane == 0) barrier_arrive(&sm.k_free[0]);
            if (0 >= whole) hide(s, row, (lane % 4) * 2, N, Nk);
            online_softmax(s, m, l, factor, scale);
            round_scores(s, p);
            if (half) turn_pass(FIRST_TURN);
            for (int j = 1; j < tiles; j++) {
                int now = j % STAGES, before = (j - 1) % STAGES;
                barrier_wait(&sm.k_full[now], (j / STAGES) & 1);
                turn_wait(FIRST_TURN + half);
                scores_start(s, q, sm.k[now]);
                barrier_wait(&sm.v_full[before], ((j - 1) / STAGES) & 1);
                output_start(o, p, sm.v[before]);
                turn_pass(FIRST_TURN + 1 - half);
                product_wait<1>();
                pin(s);
                if (lane == 0) barrier_arrive(&sm.k_free[now]);
                if (j >= whole) hide(s, row, j * BC + (lane % 4) * 2, N, Nk);
                online_softmax(s, m, l, factor, scale);
                product_wait<0>();
                pin(o);
                if (lane == 0) barrier_arrive(&sm.v_free[before]);
#pragma unroll
                for (int i = 0; i < D / 2; i++) o[i] *= factor[(i >> 1) & 1];
                round_scores(s, p);
            }
            if (!half) turn_wait(FIRST_TURN);  // the last one that was passed on
            int last = (tiles - 1) % STAGES;
            barrier_wait(&sm.v_full[last], ((tiles - 1) / STAGES) & 1);
            output_start(o, p, sm.v[last]);
            product_wait<0>();
            pin(o);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            l[r] += __shfl_xor_sync(~0u, l[r], 1);
            l[r] += __shfl_xor_sync(~0u, l[r], 2);
#ifdef LSE
            if (lane % 4 == 0 && row + 8 * r < N)
                lse[(u64)head * N + row + 8 * r] =
                    l[r] == 0.f ? -INFINITY : (m[r] * scale + log2f(l[r])) * 0.6931471805599453f;
#endif
            l[r] = l[r] == 0.f ? 0.f : 1.f / l[r];
        }
        // O takes the place of this warpgroup's rows of Q, and leaves from there.
        char* out = sm.q + half * 64 * 128;
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            int r = (i >> 1) & 1, column = (i / 4) * 8 + (lane % 4) * 2;
            u32 at = (column / 64) * BR * 128 + swizzled(warp * 16 + lane / 4 + 8 * r, (column % 64) * 2);
            *reinterpret_cast<u32*>(out + at) = pack(o[i] * l[r], o[i + 1] * l[r]);
        }
        group_sync(1 + half);
        store_rows<64, D>(O, out, BR * 128, first + half * 64, N, head);
#ifdef IOSIM_COUNT
        if (threadIdx.x % 128 == 0) atomicAdd(counts + 3, (u64)max(0, min(64, N - first - half * 64)) * D);
#endif
    }
}
