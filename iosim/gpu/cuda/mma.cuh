// `scores` and `accumulate` on tensor cores: mma.m16n8k16 on fp16 or bf16 blocks with fp32 sums. Blocks are padded to
// multiples of 16 x 16 with zeros. A warp works on 16 rows at a time; ptx.cuh says which lane holds what.
#pragma once

// Two words at (r, c), c even.
template <class B> DEVICE void read2(const B& block, int r, int c, float& x, float& y) {
    const typename B::type* from = block.at(r, c);
    x = to_float(from[0]), y = to_float(from[1]);
}
DEVICE void set2(float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); }
template <class T> DEVICE void set2(T* to, float x, float y) { *reinterpret_cast<unsigned*>(to) = pack2(x, y, T()); }

template <class B, class F> DEVICE void each_16_rows(const B&, F f) {
    using Team = typename B::team;
    for (int r = Team::index() * 16; r < B::extent_rows; r += Team::teams * 16) f(r);
}

// S = Q K^T / sqrt(d). 16 queries stay in registers; keys are read 16 or 32 at a time. Columns of Q beyond those of K
// meet the columns of `rest`.
template <class S, class Q, class K, class R> DEVICE void scores_mma(const S& s, const Q& q, const K& k, const R& rest) {
    constexpr int STEPS = Q::extent_cols / 16, FIRST = K::extent_cols / 16, WIDE = S::extent_cols % 32 == 0 ? 2 : 1;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float scale = 1.0f / sqrtf((float)Q::extent_cols);
    each_16_rows(s, [&](int r) {
        unsigned a[STEPS][4];
#pragma unroll
        for (int x = 0; x < STEPS; ++x) ldmatrix(a[x], q.at(r + lane % 16, x * 16 + lane / 16 * 8));
        for (int c = 0; c < S::extent_cols; c += 16 * WIDE) {
            float sum[2 * WIDE][4] = {};
#pragma unroll
            for (int x = 0; x < STEPS; ++x)
#pragma unroll
                for (int w = 0; w < WIDE; ++w) {
                    unsigned b[4];
                    const int row = c + w * 16 + lane % 8 + lane / 16 * 8, column = lane / 8 % 2 * 8;
                    if (x < FIRST) ldmatrix(b, k.at(row, x * 16 + column));
                    else ldmatrix(b, rest.at(row, (x - FIRST) * 16 + column));
                    mma(sum[2 * w], a[x], b[0], b[1], typename K::type());
                    mma(sum[2 * w + 1], a[x], b[2], b[3], typename K::type());
                }
#pragma unroll
            for (int w = 0; w < 2 * WIDE; ++w) {
                set2(s.at(r + g, c + w * 8 + t * 2), sum[w][0] * scale, sum[w][1] * scale);
                set2(s.at(r + g + 8, c + w * 8 + t * 2), sum[w][2] * scale, sum[w][3] * scale);
            }
        }
    });
}

// O += P V. 16 rows of P, of up to 128 keys, are rounded to V's type and stay in registers while V is read.
template <class O, class P, class V> DEVICE void accumulate_mma(const O& o, const P& p, const V& v) {
    constexpr int C = P::extent_cols, PART = C % 128 == 0 ? 128 : C % 64 == 0 ? 64 : C % 32 == 0 ? 32 : 16;
    constexpr int KEYS = C <= 128 ? C : PART;
    constexpr int STEPS = KEYS / 16, WIDE = O::extent_cols % 32 == 0 ? 2 : 1;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    each_16_rows(o, [&](int r) {
        for (int key = 0; key < P::extent_cols; key += KEYS) {
            unsigned a[STEPS][4];
#pragma unroll
            for (int x = 0; x < STEPS; ++x)
#pragma unroll
                for (int part = 0; part < 4; ++part) {
                    float left, right;
                    read2(p, r + g + part % 2 * 8, key + x * 16 + part / 2 * 8 + t * 2, left, right);
                    a[x][part] = pack2(left, right, typename V::type());
                }
            for (int c = 0; c < O::extent_cols; c += 16 * WIDE) {
                float sum[2 * WIDE][4];
#pragma unroll
                for (int w = 0; w < 2 * WIDE; ++w) {
                    read2(o, r + g, c + w * 8 + t * 2, sum[w][0], sum[w][1]);
                    read2(o, r + g + 8, c + w * 8 + t * 2, sum[w][2], sum[w][3]);
                }
#pragma unroll
                for (int x = 0; x < STEPS; ++x)
#pragma unroll
                    for (int w = 0; w < WIDE; ++w) {
                        unsigned b[4];
                        const int row = key + x * 16 + lane % 8 + lane / 8 % 2 * 8;
                        ldmatrix_transposed(b, v.at(row, c + w * 16 + lane / 16 * 8));
                        mma(sum[2 * w], a[x], b[0], b[1], typename V::type());
                        mma(sum[2 * w + 1], a[x], b[2], b[3], typename V::type());
                    }
#pragma unroll
                for (int w = 0; w < 2 * WIDE; ++w) {
                    set2(o.at(r + g, c + w * 8 + t * 2), sum[w][0], sum[w][1]);
                    set2(o.at(r + g + 8, c + w * 8 + t * 2), sum[w][2], sum[w][3]);
                }
            }
        }
    });
}
