// The steps of products in parts, softmax in passes, partial results and dropout, with the names and arguments of
// passes.py, and of `merge` and `drop` of softmax.py.
#pragma once

// ---------------------------------------------------------------- scores in parts

// S += Q K^T over some columns
template <class S, class Q, class K> STEP add_scores(const S& s, const Q& q, const K& k) {
    rows_by_rows(s, q, k, Add<S>{s, 1.0f});
}

// S += Q K^T over the columns of Q from `first` on that K has
template <class S, class Q, class K> STEP add_scores_from(const S& s, const Q& q, const K& k, int first) {
    rows_by_rows<true>(s, q, k, Add<S>{s, 1.0f}, first);
}

// O += P V and O += P^T V in the columns of O from `first` on that V has
template <class O, class V, class L> DEVICE void in_columns(const O& o, const V& v, int first, L left) {
    using Team = typename O::team;
    for (int r0 = Team::index() * Team::rows; r0 < o.rows; r0 += Team::teams * Team::rows) {
        const int here = min(Team::rows, o.rows - r0) * v.cols;
        for (int e = Team::lane(); e < here; e += Team::threads) {
            const int r = r0 + e / v.cols, c = e % v.cols;
            float sum = 0.0f;
            for (int x = 0; x < v.rows; ++x) sum += left(r, x) * v.get(x, c);
            o.set(r, first + c, o.get(r, first + c) + sum);
        }
    }
}
template <class O, class P, class V> STEP accumulate_columns(const O& o, const P& p, const V& v, int first) {
    in_columns(o, v, first, [&](int r, int x) { return p.get(r, x); });
}
template <class O, class P, class V> STEP accumulate_transposed(const O& o, const P& p, const V& v, int first) {
    in_columns(o, v, first, [&](int r, int x) { return p.get(x, r); });
}

// S / sqrt(d)
template <class S> STEP scale(const S& s, float d) {
    const float factor = 1.0f / sqrtf(d);
    each_piece(s, [&](float (&x)[S::V], int, int) {
#pragma unroll
        for (int k = 0; k < S::V; ++k) x[k] *= factor;
    });
}

// ---------------------------------------------------------------- softmax in passes

// f(r, lane == 0, part of the row) for every lane of the team's rows. Afterwards the static shared memory of row_reduce
// may be used again.
template <class S, class F> DEVICE void each_row_part(const S& s, F f) {
    each_row(s, [&](int r, int lane, bool live, auto whole) {
        RowPart<S, decltype(whole)::value> row(s, r, lane, live);
        f(r, live && lane == 0, row);
        if (S::team::threads > 32) S::team::sync();
    });
}

template <class M, class S> STEP add_maximum(const M& m, const S& s) {
    each_row_part(s, [&](int r, bool first, auto& row) {
        const float top = row.maximum();
        if (first) m.set(r, 0, fmaxf(m.get(r), top));
    });
}

// e^(s - m). A row that sees nothing (m = -inf) becomes zeros, and so do the words beyond the last column.
template <class S, class M> STEP exponentials(const S& s, const M& m) {
    each_piece(s, [&](float (&x)[S::V], int r, int c) {
        const float top = or_zero(m.get(r));
#pragma unroll
        for (int k = 0; k < S::V; ++k) x[k] = c + k < s.cols ? fast_exp(x[k] - top) : 0.0f;
    });
}

template <class L, class P> STEP add_sum(const L& l, const P& p) {
    each_row_part(p, [&](int r, bool first, auto& row) {
        const float sum = row.sum();
        if (first) l.set(r, 0, l.get(r) + sum);
    });
}

template <class M, class L, class S> STEP add_maximum_and_sum(const M& m, const L& l, const S& s) {
    each_row_part(s, [&](int r, bool first, auto& row) {
        const float top = row.maximum(), before = first ? m.get(r) : -INFINITY_F, now = fmaxf(before, top);
        const float sum = row.sum_of_exponentials(or_zero(top));
        if (!first) return;
        l.set(r, 0, l.get(r) * fast_exp(before - or_zero(now)) + sum * fast_exp(top - or_zero(now)));
        m.set(r, 0, now);
    });
}

// ---------------------------------------------------------------- partial results, dropout

// Adds a partial O, which is normalised, with its log-sum-exp: -inf for a row that saw nothing.
template <class M, class L, class O, class P, class E>
STEP merge(const M& m, const L& l, const O& o, const P& part, const E& lse) {
    each_row(o, [&](int r, int lane, bool live, auto) {
        const float before = live ? m.get(r) : 0.0f, more = live ? lse.get(r) : 0.0f, now = fmaxf(before, more);
        const float old = fast_exp(before - or_zero(now)), weight = fast_exp(more - or_zero(now));
        O::team::sync();  // all lanes have read m
        if (!live) return;
        if (lane == 0) {
            l.set(r, 0, l.get(r) * old + weight);
            m.set(r, 0, now);
        }
        for (int c = lane * O::V; c < o.cols; c += lanes_of_row<O>() * O::V) {
            float x[O::V], y[O::V];
            o.read(r, c, x);
            part.template read_words<O::V>(r, c, y);
#pragma unroll
            for (int k = 0; k < O::V; ++k) x[k] = x[k] * old + y[k] * weight;
            o.write(r, c, x);
        }
    });
}

// `factor`, or 0 where an element is dropped: SplitMix64 (Steele, Lea, Flood 2014) at its place in the sequence.
DEVICE float dropout(int row, int key, unsigned long long seed, unsigned long long least, float factor) {
    const unsigned long long place = ((unsigned long long)row << 32) + (unsigned)key + 1;
    unsigned long long x = place * 0x9E3779B97F4A7C15ULL + seed;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    x ^= x >> 31;
    return x >> 11 >= least ? factor : 0.0f;
}
// P *= factor(r, c), the factor of dropout for row r and column c.
template <class S, class F> STEP drop(const S& s, F factor) {
    each_piece(s, [&](float (&x)[S::V], int r, int c) {
#pragma unroll
        for (int k = 0; k < S::V; ++k) x[k] *= factor(r, c + k);
    });
}

// ---------------------------------------------------------------- an index of keys

// R = the sum over the rows of S of w max(S, 0)
template <class R, class S, class W> STEP weighted_sums(const R& result, const S& s, const W& w) {
    own_pieces<1>(result, result.rows, [&](int r, int c) {
        float sum = 0.0f;
        for (int x = 0; x < s.rows; ++x) sum += w.get(x) * fmaxf(s.get(x, c), 0.0f);
        result.set(r, c, sum);
    });
}

// The place of each word is the number of words that are larger, or as large and before it.
template <class I, class S> STEP largest(const I& index, const S& s) {
    own_pieces<1>(s, s.rows, [&](int r, int c) {
        const float mine = s.get(r, c);
        int place = 0;
        for (int x = 0; x < s.cols && place < index.cols; ++x) {
            const float other = s.get(r, x);
            place += other > mine || (other == mine && x < c);
        }
        if (place < index.cols) *index.at(r, place) = c;
    });
}

// ---------------------------------------------------------------- rows of a cache

template <class Y, class X> STEP copied(const Y& y, const X& x) {
    own_pieces<1>(y, y.rows, [&](int r, int c) { y.set(r, c, x.get(r, c)); });
}

// The largest absolute value of each `words` columns over 448, the largest number of FP8; 1 for zeros
template <class S, class X> STEP block_scales(const S& s, const X& x, float words) {
    own_pieces<1>(s, s.rows, [&](int r, int c) {
        float most = 0.0f;
        for (int k = c * (int)words; k < min((c + 1) * (int)words, x.cols); ++k) most = fmaxf(most, fabsf(x.get(r, k)));
        s.set(r, c, most > 0.0f ? most / 448.0f : 1.0f);
    });
}

template <class Y, class X, class S> STEP quantised(const Y& y, const X& x, const S& scales, float words) {
    own_pieces<1>(y, y.rows, [&](int r, int c) {
        y.set(r, c, x.get(r, c) / scales.get(min(r, scales.rows - 1), min(c / (int)words, scales.cols - 1)));
    });
}
