// What only the hardware can do: 16-bit floats, HBM accesses, asynchronous copies, reductions in a warp, tensor cores.
// Everything else in these files is plain C++ that also runs on a CPU: tests replace this file by an emulation.
#pragma once
#define DEVICE __device__ __forceinline__
#define INFINITY_F __int_as_float(0x7f800000)

typedef float fp32;
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct fp8 { unsigned char bits; };  // E4M3
struct __align__(16) Raw16 { unsigned word[4]; };

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
DEVICE float to_float(fp16 x) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
    return result;
}
// The exponent and 3 bits of a word of 8 bits in their places in a float, whose exponent is 120 more. Denormals are
// multiples of 2^-9; they must not pass through denormal floats, which kernels may flush to zero. Both words that are not a
// number have all 7 bits.
DEVICE float to_float(fp8 x) {
    const unsigned low = x.bits & 0x7f;
    const float normal = __uint_as_float(low == 0x7f ? 0x7fc00000 : (low << 20) + 0x3c000000);
    const float size = low < 8 ? low * 0.001953125f : normal;
    return x.bits & 0x80 ? -size : size;
}

// Round to nearest even.
DEVICE void from_float(float x, float& result) { result = x; }
DEVICE void from_float(float x, fp16& result) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }
DEVICE void from_float(float x, bf16& result) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x)); }

// Two values in one register, the first in the low half.
DEVICE unsigned pack2(float x, float y, fp16) {
    unsigned result;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
    return result;
}
DEVICE unsigned pack2(float x, float y, bf16) {
    unsigned result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(y), "f"(x));
    return result;
}

// 2^x and e^x by the special-function unit; e^-inf = 0.
#define LOG2_E 1.4426950408889634f
DEVICE float fast_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
DEVICE float fast_exp(float x) { return fast_exp2(x * LOG2_E); }

template <class T> DEVICE T hbm_read(const T* hbm) { return *hbm; }
template <class T> DEVICE void hbm_write(T* hbm, T value) { *hbm = value; }
template <class T> DEVICE Raw16 hbm_read16(const T* hbm) { return *reinterpret_cast<const Raw16*>(hbm); }
// One instruction. The compiler would make four stores of 4 bytes, which move every sector four times.
template <class T> DEVICE void hbm_write16(T* hbm, Raw16 value) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(hbm), "r"(value.word[0]), "r"(value.word[1]),
                 "r"(value.word[2]), "r"(value.word[3]) : "memory");
}

DEVICE unsigned sram_address(const void* sram) { return (unsigned)__cvta_generic_to_shared(sram); }

// 16 bytes from HBM to SRAM, past the registers and the L1 (.cg): done after copies_done.
template <class T> DEVICE void copy16_async(T* sram, const T* hbm) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sram_address(sram)), "l"(hbm) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int STILL> DEVICE void copies_done() { asm volatile("cp.async.wait_group %0;" ::"n"(STILL) : "memory"); }

// The maximum, and the sum, over LANES neighbouring lanes of a warp; LANES is a power of two.
template <int LANES> DEVICE float lanes_max(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}
template <int LANES> DEVICE float lanes_sum(float x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}
DEVICE unsigned long long warp_sum(unsigned long long x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
}

// Four 8x8 matrices of 16-bit words; lane l gives the address of row l % 8 of matrix l / 8 and gets, of each matrix,
// the words 2 (l % 4) and + 1 of row l / 4 (of column l / 4 where transposed).
DEVICE void ldmatrix(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sram_address(row)) : "memory");
}
DEVICE void ldmatrix_transposed(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sram_address(row)) : "memory");
}

// C (16 x 8) += A (16 x 16) B (16 x 8). Lane l holds of C: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and + 1.
#define IOSIM_MMA(TYPE)                                                                             \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "                              \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                     \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
DEVICE void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, fp16) { IOSIM_MMA("f16"); }
DEVICE void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bf16) { IOSIM_MMA("bf16"); }
