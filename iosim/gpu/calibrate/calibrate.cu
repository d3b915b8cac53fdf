// Micro-benchmarks of `iosim calibrate`: each keeps one unit of the GPU busy, and its result is stored so that the
// compiler keeps the work. The host counts operations and bytes.

extern "C" __global__ void nothing() {}

// ---- memory: 16 bytes a thread and access, grid-stride. n counts uint4.

extern "C" __global__ void read_bytes(const uint4* in, uint4* out, long long n) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    long long stride = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 4
    for (; i < n; i += stride) {
        uint4 x = in[i];
        sum.x ^= x.x; sum.y ^= x.y; sum.z ^= x.z; sum.w ^= x.w;
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) *out = sum;
}

extern "C" __global__ void write_bytes(const uint4* in, uint4* out, long long n) {
    uint4 x = make_uint4(threadIdx.x, blockIdx.x, 1, 2);
    long long stride = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = x;
}

extern "C" __global__ void copy_bytes(const uint4* in, uint4* out, long long n) {
    long long stride = (long long)gridDim.x * blockDim.x;
#pragma unroll 4
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = in[i];
}

// All blocks together read n uint4 `times` times, without the L1. In every turn a block reads another block's share, so
// that both sides of the L2 read everything. What fits in the L2 comes from there.
extern "C" __global__ void read_again(const uint4* in, uint4* out, long long n, int times) {
    uint4 sum = make_uint4(0, 0, 0, 0);
    long long share = n / gridDim.x;
    for (int t = 0; t < times; ++t) {
        const uint4* part = in + (blockIdx.x + 67ll * t) % gridDim.x * share;
#pragma unroll 8
        for (long long i = threadIdx.x; i < share; i += blockDim.x) {
            uint4 x = __ldcg(part + i);
            sum.x ^= x.x; sum.y ^= x.y; sum.z ^= x.z; sum.w ^= x.w;
        }
    }
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) *out = sum;
}

// One thread follows a chain of loads: in[i] is the next index. The time of a step is the latency.
extern "C" __global__ void chase(const unsigned* in, unsigned* out, int steps) {
    unsigned i = 0;
    for (int t = 0; t < steps; ++t) i = __ldcg(in + i);
    *out = i;
}

// ---- arithmetic: `times` turns of 8 independent chains a thread.

extern "C" __global__ void fma_rate(float* out, float a, float b, int times) {
    float x[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = threadIdx.x + c;
    for (int t = 0; t < times; ++t) {
#pragma unroll
        for (int c = 0; c < 8; ++c) x[c] = fmaf(x[c], a, b);
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += x[c];
    if (sum == 1.2345f) *out = sum;
}

extern "C" __global__ void exp_rate(float* out, float a, int times) {
    float x[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = (threadIdx.x + c) * a;
    for (int t = 0; t < times; ++t) {
#pragma unroll
        for (int c = 0; c < 8; ++c) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[c]));
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) sum += x[c];
    if (sum == 1.2345f) *out = sum;
}

// m16n8k16 with float sums: 4096 floating-point operations a warp and instruction; 8 independent accumulators.
#define MMA(NAME, TYPE)                                                                                          \
    extern "C" __global__ void NAME(float* out, unsigned a0, unsigned b0, int times) {                           \
        float c[8][4] = {};                                                                                      \
        unsigned a = a0 + threadIdx.x, b = b0 + threadIdx.x;                                                     \
        for (int t = 0; t < times; ++t) {                                                                        \
            _Pragma("unroll") for (int k = 0; k < 8; ++k) asm volatile(                                          \
                "mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                                   \
                "{%0,%1,%2,%3}, {%4,%5,%4,%5}, {%6,%6}, {%0,%1,%2,%3};"                                          \
                : "+f"(c[k][0]), "+f"(c[k][1]), "+f"(c[k][2]), "+f"(c[k][3])                                     \
                : "r"(a), "r"(a + k), "r"(b));                                                                   \
        }                                                                                                        \
        float sum = 0;                                                                                           \
        _Pragma("unroll") for (int k = 0; k < 8; ++k) sum += c[k][0] + c[k][1] + c[k][2] + c[k][3];              \
        if (sum == 1.2345f) *out = sum;                                                                          \
    }
MMA(mma_fp16, "f16")
MMA(mma_bf16, "bf16")
