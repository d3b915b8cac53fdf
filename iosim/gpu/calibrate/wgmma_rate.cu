// The rate of warpgroup matrix products from shared memory, 64 x 128 x 16, for `iosim calibrate`. The operands are like
// random numbers in [0.5, 1), because the GPU's power, and with it the clock, depends on the bits.
#include "hopper.cuh"

extern "C" __global__ void __launch_bounds__(256) wgmma_rate(float* out, int times) {
    __shared__ alignas(1024) u16 a[64 * 64], b[128 * 64];
    for (u32 i = threadIdx.x; i < 128 * 64; i += blockDim.x) {
        b[i] = (u16)(0x3800 | (i * 2654435761u) >> 22);
        if (i < 64 * 64) a[i] = (u16)(0x3800 | (i * 2246822519u) >> 22);
    }
    fence_async();
    __syncthreads();
    float d[64] = {};
    for (int t = 0; t < times; ++t) {
        pin(d);
        product_begin();
#pragma unroll
        for (int k = 0; k < 16; ++k)
            product(d, operand(a + k % 4 * 16, 8192), operand(b + k % 4 * 16, 16384), 1);
        product_commit();
        product_wait<0>();
    }
    pin(d);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 64; ++i) sum += d[i];
    if (sum == 1.2345f) *out = sum;
}
