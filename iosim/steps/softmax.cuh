// The tile steps, with the names and arguments of the Python steps: each writes into its first arguments. A step
// touches only the rows that its team owns, except in arguments that it reads whole (Cost.reads_whole), as K in scores.
// This file has what softmax attention needs, for any sizes and types. Its products are in mma.cuh for tensor cores,
// and in products.cuh without them. Softmax in passes is in passes.cuh, gradients in
// backward.cuh.
#pragma once
#define STEP DEVICE void  // a step that a schedule can name

template <class B, class F> DEVICE void each_piece(const B& block, F f) {  // f(x, r, c) changes V words x in place
    const auto change = [&](int r, int c) {
        if (c >= block.cols) return;
        float x[B::V];
        block.read(r, c, x);
        f(x, r, c);
        block.write(r, c, x);
    };
    if constexpr (divides<B>())
        if (is_whole(block)) return all_pieces<B::V>(block, change);
    own_pieces<B::V>(block, block.rows, change);
}

template <class B> DEVICE void fill(const B& block, float value) {  // the margins as well
    float x[B::V];
#pragma unroll
    for (int k = 0; k < B::V; ++k) x[k] = value;
    own_pieces<B::V>(block, B::extent_rows, [&](int r, int c) { block.write(r, c, x); });
}

template <class O> STEP zeros(const O& o) { fill(o, 0.0f); }
template <class M> STEP minus_infinity(const M& m) { fill(m, -INFINITY_F); }
template <class S> STEP keep(const S&) {}

// `visible(r, c)`: whether the query of row r sees the key of column c.
template <class S, class F> STEP hide(const S& s, F visible) {
    each_piece(s, [&](float (&x)[S::V], int r, int c) {
#pragma unroll
        for (int k = 0; k < S::V; ++k)
            if (!visible(r, c + k)) x[k] = -INFINITY_F;
    });
}

template <class O, class L> STEP normalise(const O& o, const L& l) {
    each_piece(o, [&](float (&x)[O::V], int r, int) {
        const float sum = l.get(r), factor = sum == 0.0f ? 1.0f : 1.0f / sum;
#pragma unroll
        for (int k = 0; k < O::V; ++k) x[k] *= factor;
    });
}

template <class O, class L> STEP denormalise(const O& o, const L& l) {
    each_piece(o, [&](float (&x)[O::V], int r, int) {
        const float factor = l.get(r);
#pragma unroll
        for (int k = 0; k < O::V; ++k) x[k] *= factor;
    });
}

template <class L, class M> STEP log_sum_exp(const L& l, const M& m) {
    each_piece(l, [&](float (&x)[1], int r, int) {
        const float top = m.get(r);
        x[0] = top == -INFINITY_F ? top : logf(x[0]) + top;
    });
}

// Every `words` columns have a scale; one row of scales may be that of all rows.
template <class K, class S> STEP rescale(const K& k, const S& scales, float words) {
    each_piece(k, [&](float (&x)[K::V], int r, int c) {
#pragma unroll
        for (int n = 0; n < K::V; ++n) x[n] *= scales.get(min(r, scales.rows - 1), min((c + n) / (int)words, scales.cols - 1));
    });
}

// ---------------------------------------------------------------- sums and maxima over rows: several lanes a row

// The lanes that share a row: at least 4, and as many as leave each at most 4 pieces. So a warp works on several short
// rows at the same time.
template <class B> DEVICE constexpr int lanes_of_row() {
    if (B::team::threads > 32) return B::team::threads;
    int lanes = 4;
    while (lanes < 32 && (lanes * B::V * 4 < B::extent_cols || lanes * B::team::rows < 32)) lanes *= 2;
    return lanes;
}

// The sum or the maximum of x over the lanes of a row. More lanes than a warp has exchange their results through static
// shared memory, beside the footprint: 128 bytes for sums and 128 for maxima. Steps use the two by turns, so that the
// barrier of one protects what the other wrote.
template <int LANES, bool SUM> DEVICE float row_reduce(float x) {
    x = SUM ? lanes_sum<(LANES < 32 ? LANES : 32)>(x) : lanes_max<(LANES < 32 ? LANES : 32)>(x);
    if constexpr (LANES > 32) {
        __shared__ float partial[32];
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
        __syncthreads();
        x = partial[0];
        for (int warp = 1; warp < LANES / 32; ++warp) x = SUM ? x + partial[warp] : fmaxf(x, partial[warp]);
    }
    return x;
}

DEVICE float or_zero(float top) { return top == -INFINITY_F ? 0.0f : top; }
DEVICE float inverse(float sum) { return sum == 0.0f ? 1.0f : 1.0f / sum; }

// The part of a row that one lane has: held in registers if it is at most 64 words, else read again each time.
// WHOLE: every lane has a row, and its last piece ends with the row.
template <class B, bool WHOLE> struct RowPart {
    static constexpr int V = B::V, lanes = lanes_of_row<B>();
    static constexpr int pieces = ((B::extent_cols + V - 1) / V + lanes - 1) / lanes;
    static constexpr bool held = pieces * V <= 64;
    static constexpr int unroll = held ? pieces : 4;
    const B& block;
    int r, lane;
    bool live;
    float x[held ? pieces : 1][V];

    DEVICE RowPart(const B& block, int r, int lane, bool live) : block(block), r(r), lane(lane), live(live) {
        if constexpr (held) {
#pragma unroll
            for (int k = 0; k < pieces; ++k) read(k, x[k]);
        }
    }
    DEVICE void read(int k, float (&to)[V]) const {  // -inf beyond the row
        const int c = (k * lanes + lane) * V;
        const bool inside = WHOLE || (live && c < block.cols);
        if (inside) block.read(r, c, to);
#pragma unroll
        for (int v = 0; v < V; ++v)
            if (!WHOLE && (!inside || c + v >= block.cols)) to[v] = -INFINITY_F;
    }
    DEVICE float (&piece(int k))[V] {
        if constexpr (held) return x[k];
        else return read(k, x[0]), x[0];
    }
    DEVICE void write(int k) {  // words beyond the row become those of e^-inf: zeros
        const int c = (k * lanes + lane) * V;
        if (WHOLE || (live && c < block.cols)) block.write(r, c, x[held ? k : 0]);
    }
    DEVICE float maximum() {
        float top = -INFINITY_F;
#pragma unroll unroll
        for (int k = 0; k < pieces; ++k) {
            float (&y)[V] = piece(k);
#pragma unroll
            for (int v = 0; v < V; ++v) top = fmaxf(top, y[v]);
        }
        return row_reduce<lanes, false>(top);
    }
    // The sum of f(y) over all words y of the row; f must be 0 for -inf, which stands beyond the row.
    template <class F> DEVICE float total(F f) {
        float sum = 0.0f;
#pragma unroll unroll
        for (int k = 0; k < pieces; ++k) {
            float (&y)[V] = piece(k);
#pragma unroll
            for (int v = 0; v < V; ++v) sum += f(y[v]);
        }
        return row_reduce<lanes, true>(sum);
    }
    DEVICE float sum() {
        return total([](float y) { return y == -INFINITY_F ? 0.0f : y; });
    }
    DEVICE float sum_of_exponentials(float top) {
        return total([&](float y) { return fast_exp(y - top); });
    }
    // x = e^(x - top), written back; returns the sum. For a row that sees nothing top is 0.
    DEVICE float exponentials(float top) {
        float sum = 0.0f;
#pragma unroll unroll
        for (int k = 0; k < pieces; ++k) {
            float (&y)[V] = piece(k);
#pragma unroll
            for (int v = 0; v < V; ++v) sum += y[v] = fast_exp(y[v] - top);
            write(k);
        }
        return row_reduce<lanes, true>(sum);
    }
    // x = softmax(x), written back once if it is held. e^(x - top) is 2^(x log2 e - top log2 e): only the second
    // product is rounded, and it is the same for the whole row.
    DEVICE void softmax() {
        if constexpr (held) softmax_held();
        else scale(inverse(exponentials(or_zero(maximum()))));
    }
    DEVICE void softmax_held() {
        const float shift = -LOG2_E * or_zero(maximum());
        float sum = 0.0f;
#pragma unroll unroll
        for (int k = 0; k < pieces; ++k)
#pragma unroll
            for (int v = 0; v < V; ++v) sum += x[k][v] = fast_exp2(fmaf(x[k][v], LOG2_E, shift));
        scale(inverse(row_reduce<lanes, true>(sum)));
    }
    DEVICE void scale(float factor) {
#pragma unroll unroll
        for (int k = 0; k < pieces; ++k) {
            float (&y)[V] = piece(k);
#pragma unroll
            for (int v = 0; v < V; ++v) y[v] *= factor;
            write(k);
        }
    }
};

template <bool YES> struct Whole { static constexpr bool value = YES; };

// f(r, lane, live, whole) for the rows of this team, several at a time. Every thread calls f; live ones have a row.
template <class B, class F> DEVICE void each_row(const B& block, F f) {
    using Team = typename B::team;
    constexpr int lanes = lanes_of_row<B>(), at_once = Team::threads / lanes;
    constexpr int rows = Team::rows < B::extent_rows ? Team::rows : B::extent_rows;
    if constexpr (divides<B>() && rows % at_once == 0 && B::extent_cols % (lanes * B::V) == 0)
        if (is_whole(block)) {
            for (int r0 = Team::index() * rows; r0 < B::extent_rows; r0 += Team::teams * rows)
                for (int k = 0; k < rows; k += at_once)
                    f(r0 + k + row_of<lanes, at_once>(Team::lane()), column_of<lanes, at_once>(Team::lane()), true,
                      Whole<true>());
            return;
        }
    for (int r0 = Team::index() * Team::rows; r0 < block.rows; r0 += Team::teams * Team::rows)
        for (int k = 0; k < min(Team::rows, block.rows - r0); k += at_once) {
            const int r = k + Team::lane() / lanes;
            f(r0 + r, Team::lane() % lanes, r < Team::rows && r0 + r < block.rows, Whole<false>());
        }
}

template <class S> STEP softmax_rows(const S& s) {
    each_row(s, [&](int r, int lane, bool live, auto whole) {
        RowPart<S, decltype(whole)::value>(s, r, lane, live).softmax();
    });
}

template <class S, class M, class L, class O> STEP online_softmax(const S& s, const M& m, const L& l, const O& o) {
    each_row(s, [&](int r, int lane, bool live, auto whole) {
        RowPart<S, decltype(whole)::value> row(s, r, lane, live);
        const float before = live ? m.get(r) : -INFINITY_F, top = fmaxf(before, row.maximum());
        const float factor = fast_exp(before - or_zero(top)), sum = row.exponentials(or_zero(top));
        S::team::sync();  // all lanes have read m
        if (!live) return;
        if (lane == 0) {
            l.set(r, 0, l.get(r) * factor + sum);
            m.set(r, 0, top);
        }
        if (factor == 1.0f) return;  // the maximum did not grow, so O stays as it is
        for (int c = lane * O::V; c < o.cols; c += lanes_of_row<S>() * O::V) {
            float x[O::V];
            o.read(r, c, x);
#pragma unroll
            for (int k = 0; k < O::V; ++k) x[k] *= factor;
            o.write(r, c, x);
        }
    });
}

// ---------------------------------------------------------------- matrix products

// S = Q K^T / sqrt(d)
template <class S, class Q, class K> STEP scores(const S& s, const Q& q, const K& k) {
    const float scale = 1.0f / sqrtf((float)q.cols);
    if constexpr (S::team::margins) scores_mma(s, q, k, k);
    else rows_by_rows(s, q, k, [&](int r, int c, float sum) { s.set(r, c, sum * scale); });
}

// S = (Q_1 K^T + Q_2 rope^T) / sqrt(d), for Q_1 and Q_2 side by side
template <class S, class Q, class K, class R> STEP scores_apart(const S& s, const Q& q, const K& k, const R& rope) {
    const float scale = 1.0f / sqrtf((float)q.cols);
    if constexpr (S::team::margins) scores_mma(s, q, k, rope);
    else {
        rows_by_rows(s, q, k, [&](int r, int c, float sum) { s.set(r, c, sum * scale); });
        rows_by_rows<true>(s, q, rope, [&](int r, int c, float sum) { s.set(r, c, s.get(r, c) + sum * scale); }, k.cols);
    }
}

// O += P V
template <class O, class P, class V> STEP accumulate(const O& o, const P& p, const V& v) {
    if constexpr (O::team::margins) accumulate_mma(o, p, v);
    else add_product(o, p, v, 1.0f);
}
