// The steps of the backward passes, with the names and arguments of backward.py.
#pragma once

// P = e^(S - m) / l in the place of S; a row that saw nothing (m = -inf, l = 0) becomes zeros.
template <class S, class L, class M> STEP probabilities(const S& s, const L& l, const M& m) {
    each_piece(s, [&](float (&x)[S::V], int r, int) {
        const float top = or_zero(m.get(r)), factor = inverse(l.get(r));
#pragma unroll
        for (int k = 0; k < S::V; ++k) x[k] = fast_exp(x[k] - top) * factor;
    });
}

// P = e^(S - LSE) in the place of S
template <class S, class E> STEP probabilities_from_lse(const S& s, const E& lse) {
    each_piece(s, [&](float (&x)[S::V], int r, int) {
        const float sum = or_zero(lse.get(r));
#pragma unroll
        for (int k = 0; k < S::V; ++k) x[k] = fast_exp(x[k] - sum);
    });
}

// 0 wherever the mask does not let a query see a key
template <class S, class F> STEP clear(const S& s, F visible) {
    each_piece(s, [&](float (&x)[S::V], int r, int c) {
#pragma unroll
        for (int k = 0; k < S::V; ++k)
            if (!visible(r, c + k)) x[k] = 0.0f;
    });
}

// D = rowsum(dO * O)
template <class D, class G, class O> STEP row_dots(const D& delta, const G& grad, const O& o) {
    each_row(grad, [&](int r, int lane, bool live, auto) {
        constexpr int lanes = lanes_of_row<G>();
        float sum = 0.0f;
        for (int c = lane; c < (live ? grad.cols : 0); c += lanes) sum += grad.get(r, c) * o.get(r, c);
        sum = row_reduce<lanes, true>(sum);
        if (live && lane == 0) delta.set(r, 0, sum);
        if (G::team::threads > 32) G::team::sync();
    });
}

// D += rowsum(dO * O) over some columns
template <class D, class G, class O> STEP add_row_dots(const D& delta, const G& grad, const O& o) {
    each_row(grad, [&](int r, int lane, bool live, auto) {
        constexpr int lanes = lanes_of_row<G>();
        float sum = 0.0f;
        for (int c = lane; c < (live ? grad.cols : 0); c += lanes) sum += grad.get(r, c) * o.get(r, c);
        sum = row_reduce<lanes, true>(sum);
        if (live && lane == 0) delta.set(r, 0, delta.get(r, 0) + sum);
        if (G::team::threads > 32) G::team::sync();
    });
}

// dP = dO V^T
template <class P, class G, class V> STEP probability_gradients(const P& dp, const G& grad, const V& v) {
    rows_by_rows(dp, grad, v, [&](int r, int c, float sum) { dp.set(r, c, sum); });
}

// dS = P * (dP - D) in the place of dP
template <class G, class P, class D> STEP score_gradients(const G& dp, const P& p, const D& delta) {
    each_piece(dp, [&](float (&x)[G::V], int r, int c) {
        float y[G::V];
        p.template read_words<G::V>(r, c, y);
        const float sum = delta.get(r);
#pragma unroll
        for (int k = 0; k < G::V; ++k) x[k] = (x[k] - sum) * y[k];
    });
}

// dS = P * (dP - D) for whole rows, where D = rowsum(P * dP)
template <class G, class P> STEP score_gradients_of_rows(const G& dp, const P& p) {
    each_row(dp, [&](int r, int lane, bool live, auto) {
        constexpr int lanes = lanes_of_row<G>();
        const int cols = live ? dp.cols : 0;
        float sum = 0.0f;
        for (int c = lane; c < cols; c += lanes) sum += p.get(r, c) * dp.get(r, c);
        sum = row_reduce<lanes, true>(sum);
        for (int c = lane; c < cols; c += lanes) dp.set(r, c, (dp.get(r, c) - sum) * p.get(r, c));
        if (G::team::threads > 32) G::team::sync();
    });
}

// dV += P^T dO
template <class V, class P, class G> STEP add_value_gradients(const V& dv, const P& p, const G& grad) {
    add_transposed(dv, p, grad, 1.0f);
}

// dK += dS^T Q / sqrt(d)
template <class K, class S, class Q> STEP add_key_gradients(const K& dk, const S& ds, const Q& q) {
    add_transposed(dk, ds, q, 1.0f / sqrtf((float)q.cols));
}

// dQ += dS K / sqrt(d)
template <class Q, class S, class K> STEP add_query_gradients(const Q& dq, const S& ds, const K& k) {
    add_product(dq, ds, k, 1.0f / sqrtf((float)k.cols));
}
