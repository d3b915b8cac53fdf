// The second kernel of standard.cu: P = softmax(S), a block a row, which is read once and stays in registers.
#pragma once

// The float in the high or the low half of 32 bits.
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

// The maximum or the sum over the block of one value a thread.
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

// Reads a thread's chunks of a row as floats, -inf past its end, and returns their maximum. All are read before the
// first is used.
__device__ __forceinline__ float read_row(float (&x)[CHUNKS][8], const uint4* row, int row_chunks) {
    u32 words[CHUNKS][4];
    float top = -INFINITY;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int chunk = c * blockDim.x + threadIdx.x;
        uint4 got = make_uint4(0, 0, 0, 0);
        if (chunk < row_chunks) got = __ldcs(row + chunk);
        words[c][0] = got.x, words[c][1] = got.y, words[c][2] = got.z, words[c][3] = got.w;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            x[c][e] = c * blockDim.x + threadIdx.x < row_chunks ? lift(words[c][e / 2], e & 1) : -INFINITY;
            top = fmaxf(top, x[c][e]);
        }
    return top;
}

// Replaces x by e^(x - top) and returns the sum. A row that sees nothing has top = -inf.
__device__ __forceinline__ float exponentials(float (&x)[CHUNKS][8], float top) {
    float safe = top == -INFINITY ? 0.f : top * 1.4426950408889634f, sum = 0.f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
        for (int e = 0; e < 8; e++) sum += x[c][e] = power_of_2(x[c][e] * 1.4426950408889634f - safe);
    return sum;
}

__device__ __forceinline__ void write_row(uint4* row, const float (&x)[CHUNKS][8], float share, int row_chunks) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int chunk = c * blockDim.x + threadIdx.x;
        if (chunk < row_chunks)
            __stcs(row + chunk,
                   make_uint4(pack(x[c][0] * share, x[c][1] * share), pack(x[c][2] * share, x[c][3] * share),
                              pack(x[c][4] * share, x[c][5] * share), pack(x[c][6] * share, x[c][7] * share)));
    }
}

extern "C" __global__ void softmax_rows(const uint4* S, uint4* P, u64* counts, int row_chunks) {
    __shared__ float tops[32], sums[32];
    u64 at = (u64)blockIdx.x * row_chunks;
    float x[CHUNKS][8];
    float top = together<true>(read_row(x, S + at, row_chunks), tops);
    float sum = together<false>(exponentials(x, top), sums);
    write_row(P + at, x, sum == 0.f ? 0.f : 1.f / sum, row_chunks);
#ifdef IOSIM_COUNT
    if (threadIdx.x == 0) atomicAdd(counts + 5, (u64)row_chunks * 8), atomicAdd(counts + 6, (u64)row_chunks * 8);
#endif
}
