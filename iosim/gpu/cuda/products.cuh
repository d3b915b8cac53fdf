// Matrix products without tensor cores, for any sizes and types, with sums in float.
#pragma once

// f(r, c) for every piece of W columns of every group of GROUP rows that this team owns: 4, or fewer if it owns fewer.
template <int GROUP, int W, class B, class F> DEVICE void own_groups(const B& block, F f) {
    using Team = typename B::team;
    constexpr int pieces = (B::extent_cols + W - 1) / W;
    for (int r0 = Team::index() * Team::rows; r0 < block.rows; r0 += Team::teams * Team::rows) {
        const int groups = (min(Team::rows, block.rows - r0) + GROUP - 1) / GROUP;
        for (int e = Team::lane(); e < groups * pieces; e += Team::threads)
            f(r0 + e / pieces * GROUP, e % pieces * W);
    }
}
template <class B> DEVICE constexpr int group_of() { return B::team::rows < 4 ? B::team::rows : 4; }

// N words of row r from column c, W at a time.
template <int W, int N, class B> DEVICE void read_run(const B& block, int r, int c, float (&x)[N]) {
#pragma unroll
    for (int k = 0; k < N; k += W) {
        float part[W];
        block.template read_words<W>(r, c + k, part);
#pragma unroll
        for (int w = 0; w < W; ++w) x[k + w] = part[w];
    }
}

// put(r, c, sum of A_r,first+x B_cx over the columns x of B) for all words of S. Four partial sums have smaller rounding
// errors than one sum. APART: `first` may be anything; else it is 0, and pieces of 16 bytes are read.
template <bool APART = false, class S, class A, class B, class F>
DEVICE void rows_by_rows(const S& s, const A& a, const B& b, F put, int first = 0) {
    constexpr int GROUP = group_of<S>(), W = APART ? 1 : A::V < B::V ? A::V : B::V, RUN = W < 4 ? 4 : W;
    const int columns = min(a.cols - first, b.cols);
    own_groups<GROUP, 1>(s, [&](int r, int c) {
        if (c >= s.cols) return;
        float sum[GROUP][4] = {};
        const int whole = columns / RUN * RUN;
        for (int x = 0; x < whole; x += RUN) {
            float right[RUN];
            read_run<W>(b, c, x, right);
#pragma unroll
            for (int g = 0; g < GROUP; ++g) {
                float left[RUN];
                read_run<W>(a, min(r + g, s.rows - 1), first + x, left);
#pragma unroll
                for (int k = 0; k < RUN; ++k) sum[g][k % 4] += left[k] * right[k];
            }
        }
        for (int x = whole; x < columns; ++x)
            for (int g = 0; g < GROUP; ++g) sum[g][0] += a.get(min(r + g, s.rows - 1), first + x) * b.get(c, x);
#pragma unroll
        for (int g = 0; g < GROUP; ++g)
            if (r + g < s.rows) put(r + g, c, (sum[g][0] + sum[g][1]) + (sum[g][2] + sum[g][3]));
    });
}

// put(r, c, sum of left(r, x) B_xc over `count` places x) for all words of O; left(r, x) is A_rx or A_xr.
template <class O, class B, class L, class F>
DEVICE void by_columns(const O& o, int count, const B& b, L left, F put) {
    constexpr int GROUP = group_of<O>(), W = B::V == 1 ? 1 : O::V;
    own_groups<GROUP, W>(o, [&](int r, int c) {
        float sum[GROUP][W] = {};
        for (int x = 0; x < count; ++x) {
            float right[W];
            b.template read_words<W>(x, c, right);
#pragma unroll
            for (int g = 0; g < GROUP; ++g) {
                const float weight = left(min(r + g, o.rows - 1), x);
#pragma unroll
                for (int w = 0; w < W; ++w) sum[g][w] += weight * right[w];
            }
        }
        for (int g = 0; g < GROUP && r + g < o.rows; ++g)
            for (int w = 0; w < W; ++w) put(r + g, c + w, sum[g][w]);
    });
}
template <class B> struct Add {  // word += factor * sum
    const B& block;
    float factor;
    DEVICE void operator()(int r, int c, float sum) const { block.set(r, c, block.get(r, c) + factor * sum); }
};

// O += factor * A B, and O += factor * A^T B
template <class O, class A, class B> DEVICE void add_product(const O& o, const A& a, const B& b, float factor) {
    by_columns(o, a.cols, b, [&](int r, int x) { return a.get(r, x); }, Add<O>{o, factor});
}
template <class O, class A, class B> DEVICE void add_transposed(const O& o, const A& a, const B& b, float factor) {
    by_columns(o, a.rows, b, [&](int r, int x) { return a.get(x, r); }, Add<O>{o, factor});
}
