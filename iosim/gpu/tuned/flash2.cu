// Tuned flash2 for Hopper (Dao 2023, Algorithm 1): the schedule's tiles and words, accumulators in registers.
// One block a tile of BR = 128 queries. Warpgroup 0 fetches K and V tiles two ahead; warpgroups 1 and 2 own 64 rows
// each.
// While the tensor cores work on S of the next key tile and O of this one, the softmax of the next waits for S only.
// The two take turns at starting products, so that one's softmax runs beside the other's products.
// Compiled with -DD=64|128 -DBC=64|128 -DCAUSAL=0|1 [-DBF16] [-DLSE] [-DIOSIM_COUNT].
#include "hopper.cuh"

constexpr int BR = 128, STAGES = 2, PANELS = D / 64;
constexpr int FIRST_TURN = 3;  // barriers 3 and 4 are the turns; 0 is __syncthreads, 1 and 2 are the halves'
static_assert(BR == ROWS_Q);  // boxes of the host's tensor maps
constexpr int Q_BYTES = BR * D * 2, KV_BYTES = BC * D * 2;

struct Shared {
    alignas(1024) char q[Q_BYTES];
    alignas(1024) char k[STAGES][KV_BYTES];
    alignas(1024) char v[STAGES][KV_BYTES];
    u64 q_full, k_full[STAGES], v_full[STAGES], k_free[STAGES], v_free[STAGES];
};

// What a block works on: BR queries of a head from `first` on, and the key tiles that at least one of them sees.
struct Work {
    int N, Nk, head, first, tiles;
};

__device__ __forceinline__ Work work_of_block(int N, int Nk) {
    int tiles_q = (N + BR - 1) / BR, tile = CAUSAL ? tiles_q - 1 - blockIdx.x : blockIdx.x;  // the longest first
    int first = tile * BR, keys = Nk;
    if (CAUSAL) keys = min(Nk, min(first + BR, N) + Nk - N);
    return {N, Nk, (int)blockIdx.y, first, keys <= 0 ? 0 : (keys + BC - 1) / BC};
}

__device__ __forceinline__ void barriers_init(Shared& sm) {
    barrier_init(&sm.q_full, 1);
    for (int s = 0; s < STAGES; s++) {
        barrier_init(&sm.k_full[s], 1), barrier_init(&sm.v_full[s], 1);
        barrier_init(&sm.k_free[s], 8), barrier_init(&sm.v_free[s], 8);  // 8 warps read
    }
    fence_async();
}

// ---------------------------------------------------------------- warpgroup 0, the producer: one thread fetches

__device__ __forceinline__ void fetch(char* to, const TensorMap* map, u64* bar, int rows, int row, int instance) {
    barrier_expect(bar, rows * D * 2);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++) copy_in(to + panel * rows * 128, map, bar, panel * 64, row, instance);
}

__device__ __forceinline__ void fetch_all(Shared& sm, const Work& w, const TensorMap* Q, const TensorMap* K,
                                          const TensorMap* V, int kv_head) {
    if (w.tiles) fetch(sm.q, Q, &sm.q_full, BR, w.first, w.head);  // a tile that sees nothing reads nothing
    for (int j = 0; j < w.tiles; j++) {
        int s = j % STAGES;
        free_wait(sm.k_free, j);
        fetch(sm.k[s], K, &sm.k_full[s], BC, j * BC, kv_head);
        free_wait(sm.v_free, j);
        fetch(sm.v[s], V, &sm.v_full[s], BC, j * BC, kv_head);
    }
}

__device__ __forceinline__ void count_reads(u64* counts, const Work& w) {
#ifdef IOSIM_COUNT
    u64 keys = min(w.tiles * BC, w.Nk), rows = min(BR, w.N - w.first);
    atomicAdd(counts, w.tiles ? rows * D : 0), atomicAdd(counts + 1, keys * D), atomicAdd(counts + 2, keys * D);
#endif
}

// ---------------------------------------------------------------- steps of a warpgroup, in registers

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

// ---------------------------------------------------------------- warpgroups 1 and 2, the consumers: 64 rows each

// The words of O, S and P that a thread holds: two of every 8 columns, in two rows.
struct Tiles {
    float o[D / 2] = {}, s[BC / 2];
    u32 p[BC / 4];
};

// The sum and maximum of the two rows of a thread, and the factor that rescales O to the newest maximum.
struct Rows {
    float l[2] = {0.f, 0.f}, m[2] = {-INFINITY, -INFINITY}, factor[2];
};

struct Consumer {
    Shared& sm;
    const Work& w;
    float scale;
    int half = threadIdx.x / 128 - 1, warp = (threadIdx.x / 32) % 4, lane = threadIdx.x % 32;
    int row = w.first + half * 64 + warp * 16 + lane / 4;  // of this thread; its other row lies 8 below
    char* q = sm.q + half * 64 * 128;                      // this half's rows of Q, in the end of O

    // The number of key tiles, from the first one on, that every query of this half sees whole. The others need `hide`.
    __device__ __forceinline__ int whole_tiles() const {
        return CAUSAL ? min(w.Nk / BC, max(0, w.first + half * 64 + w.Nk - w.N + 1) / BC) : w.Nk / BC;
    }

    // The softmax of key tile j as soon as its S is there; LEFT products that started later may be under way still.
    template <int LEFT> __device__ __forceinline__ void softmax(Tiles& t, Rows& rows, int j, int whole) const {
        product_wait<LEFT>();
        pin(t.s);
        if (lane == 0) barrier_arrive(&sm.k_free[j % STAGES]);
        if (j >= whole) hide(t.s, row, j * BC + (lane % 4) * 2, w.N, w.Nk);
        online_softmax(t.s, rows.m, rows.l, rows.factor, scale);
    }

    // S of key tile j and O of the one before, started together in this half's turn; the softmax of j runs beside O.
    __device__ __forceinline__ void step(Tiles& t, Rows& rows, int j, int whole) const {
        int now = j % STAGES, before = (j - 1) % STAGES;
        full_wait(sm.k_full, j);
        turn_wait(FIRST_TURN + half);
        scores_start(t.s, q, sm.k[now]);
        full_wait(sm.v_full, j - 1);
        output_start(t.o, t.p, sm.v[before]);
        turn_pass(FIRST_TURN + 1 - half);
        softmax<1>(t, rows, j, whole);
        product_wait<0>();
        pin(t.o);
        if (lane == 0) barrier_arrive(&sm.v_free[before]);
#pragma unroll
        for (int i = 0; i < D / 2; i++) t.o[i] *= rows.factor[(i >> 1) & 1];
        round_scores(t.s, t.p);
    }

    // All key tiles: S of the first and O of the last have no other product beside them.
    __device__ __forceinline__ void attend(Tiles& t, Rows& rows, int whole) const {
        barrier_wait(&sm.q_full, 0);
        full_wait(sm.k_full, 0);
        scores_start(t.s, q, sm.k[0]);
        softmax<0>(t, rows, 0, whole);
        round_scores(t.s, t.p);
        if (half) turn_pass(FIRST_TURN);  // half 0 begins
        for (int j = 1; j < w.tiles; j++) step(t, rows, j, whole);
        if (!half) turn_wait(FIRST_TURN);  // the last turn that was passed on
        full_wait(sm.v_full, w.tiles - 1);
        output_start(t.o, t.p, sm.v[(w.tiles - 1) % STAGES]);
        product_wait<0>();
        pin(t.o);
    }

    // Sums over the four threads that share a row; the LSE; then 1 / l in the place of l.
    __device__ __forceinline__ void end_rows(Rows& rows, float* lse) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float& l = rows.l[r];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
#ifdef LSE
            if (lane % 4 == 0 && row + 8 * r < w.N)
                lse[(u64)w.head * w.N + row + 8 * r] =
                    l == 0.f ? -INFINITY : (rows.m[r] * scale + log2f(l)) * 0.6931471805599453f;
#endif
            l = l == 0.f ? 0.f : 1.f / l;
        }
    }

    // O takes the place of this half's rows of Q, and leaves from there.
    __device__ __forceinline__ void write_output(const Tiles& t, const Rows& rows, uint4* O) const {
#pragma unroll
        for (int i = 0; i < D / 2; i += 2) {
            int r = (i >> 1) & 1, column = (i / 4) * 8 + (lane % 4) * 2;
            u32 at = (column / 64) * BR * 128 + swizzled(warp * 16 + lane / 4 + 8 * r, (column % 64) * 2);
            *reinterpret_cast<u32*>(q + at) = pack(t.o[i] * rows.l[r], t.o[i + 1] * rows.l[r]);
        }
        group_sync(1 + half);
        store_rows<64, D>(O, q, BR * 128, w.first + half * 64, w.N, w.head);
    }

    __device__ __forceinline__ void count_writes(u64* counts) const {
#ifdef IOSIM_COUNT
        const u64 stored = max(0, min(64, w.N - w.first - half * 64));
        if (threadIdx.x % 128 == 0) atomicAdd(counts + 3, stored * D);
#ifdef LSE
        if (threadIdx.x % 128 == 0) atomicAdd(counts + 8, stored);
#endif
#endif
    }
};

// ---------------------------------------------------------------- the kernel

extern "C" __global__ void __launch_bounds__(384, 1)
flash2(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K, const __grid_constant__ TensorMap V,
       uint4* O, float* lse, u64* counts, int N, int Nk, int group, float scale) {
    extern __shared__ char raw[];
    Shared& sm = *reinterpret_cast<Shared*>((reinterpret_cast<u64>(raw) + 1023) & ~(u64)1023);
    Work w = work_of_block(N, Nk);
    if (threadIdx.x == 0) barriers_init(sm);
    __syncthreads();
    if (threadIdx.x < 128) {
        registers_fewer<24>();
        if (threadIdx.x == 0) {
            fetch_all(sm, w, &Q, &K, &V, w.head / group);
            count_reads(counts, w);
        }
    } else {
        registers_more<240>();
        Consumer consumer{sm, w, scale};
        int whole = consumer.whole_tiles();
        Tiles t;
        Rows rows;
        if (w.tiles) consumer.attend(t, rows, whole);
        consumer.end_rows(rows, lse);
        consumer.write_output(t, rows, O);
        consumer.count_writes(counts);
    }
}
