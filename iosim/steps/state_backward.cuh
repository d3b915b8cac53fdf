// The steps of the gradients of attention with a state, with the names and arguments of state_backward.py.
#pragma once

// dQ = dO S^T, with S decayed up to each token
template <class Q, class O, class S, class... G>
STEP read_state_rows(const Q& dq, const O& grad, const S& state, const G&... g) {
    rows_by_rows(dq, grad, state, [&](int r, int c, float sum) { dq.set(r, c, sum * decay_to(r, c, g...)); });
}

// dQ_i += the sum of w_ij K_j over the tokens j <= i, decayed
template <class Q, class W, class K, class... G>
STEP add_earlier(const Q& dq, const W& w, const K& k, const G&... g) {
    if constexpr (sizeof...(G) == 0) {
        add_product(dq, w, k, 1.0f);
    } else {
        own_pieces<1>(dq, dq.rows, [&](int r, int c) {
            if (c >= dq.cols) return;
            float sum = dq.get(r, c);
            for (int j = 0; j <= r; ++j) sum += w.get(r, j) * k.get(j, c) * decay_from(j, r, c, g...);
            dq.set(r, c, sum);
        });
    }
}

// dK = V dS^T, with dS decayed from the end of the chunk down to each token
template <class K, class V, class D, class... G>
STEP read_gradient_rows(const K& dk, const V& v, const D& ds, const G&... g) {
    const int last = dk.rows - 1;
    rows_by_rows(dk, v, ds, [&](int r, int c, float sum) { dk.set(r, c, sum * decay_from(r, last, c, g...)); });
}

// dK_j += the sum of w_ij Q_i over the tokens i >= j, decayed
template <class K, class W, class Q, class... G>
STEP add_later(const K& dk, const W& w, const Q& q, const G&... g) {
    if constexpr (sizeof...(G) == 0) {
        add_transposed(dk, w, q, 1.0f);
    } else {
        own_pieces<1>(dk, dk.rows, [&](int r, int c) {
            if (c >= dk.cols) return;
            float sum = dk.get(r, c);
            for (int i = r; i < q.rows; ++i) sum += w.get(i, r) * q.get(i, c) * decay_from(r, i, c, g...);
            dk.set(r, c, sum);
        });
    }
}

// dV = K dS, with dS decayed from the end of the chunk down to each token
template <class V, class K, class D, class... G>
STEP read_gradient(const V& dv, const K& k, const D& ds, const G&... g) {
    const int last = dv.rows - 1;
    const auto weight = [&](int r, int x) { return k.get(r, x) * decay_from(r, last, x, g...); };
    by_columns(dv, k.cols, ds, weight, [&](int r, int c, float sum) { dv.set(r, c, sum); });
}

// dS = dS decayed over the chunk, and Q^T dO, each decayed down to the start
template <class D, class Q, class O, class... G>
STEP add_chunk_back(const D& ds, const Q& q, const O& grad, const G&... g) {
    const int last = q.rows - 1;
    const auto weight = [&](int r, int x) { return q.get(x, r) * decay_to(x, r, g...); };
    by_columns(ds, q.rows, grad, weight, [&](int r, int c, float sum) {
        ds.set(r, c, ds.get(r, c) * decay_to(last, r, g...) + sum);
    });
}

// The word of a gate that belongs to x y in row r: of column c, or the sum of all.
template <class X, class Y> DEVICE float of_gate(const X& x, const Y& y, int r, int c, int words) {
    if (words == x.cols) return x.get(r, c) * y.get(r, c);
    float sum = 0.0f;
    for (int m = 0; m < x.cols; ++m) sum += x.get(r, m) * y.get(r, m);
    return sum;
}

// e = the sums of S dS over the columns, or the sum of all
template <class E, class S, class D> STEP state_dots(const E& e, const S& state, const D& ds) {
    own_pieces<1>(e, e.rows, [&](int r, int c) {
        if (c) return;
        float sum = 0.0f;
        for (int m = e.rows == 1 ? 0 : r; m < (e.rows == 1 ? state.rows : r + 1); ++m) sum += of_gate(state, ds, m, 0, 0);
        e.set(r, 0, sum);
    });
}

// dg = - K dK, in the words of a gate
template <class G, class K, class D> STEP less_keys(const G& dg, const K& k, const D& dk) {
    own_pieces<1>(dg, dg.rows, [&](int r, int c) {
        if (c < dg.cols) dg.set(r, c, -of_gate(k, dk, r, c, dg.cols));
    });
}

// dg = the sums of dg + Q dQ over the tokens from each on, and e; e = those of the first token
template <class G, class E, class Q, class D>
STEP gate_gradients(const G& dg, const E& e, const Q& q, const D& dq) {
    each_column(dg, [&](int c) {
        float sum = e.get(c);
        for (int r = dg.rows - 1; r >= 0; --r) dg.set(r, c, sum += dg.get(r, c) + of_gate(q, dq, r, c, dg.cols));
        e.set(c, 0, sum);
    });
}

// r_t = v_t - what the state before t answers to k_t, in the place of v
template <class V, class B, class S, class K, class H, class... G>
STEP delta_rests(const V& v, const B& b, const S& s, const K& k, const H& state, const G&... g) {
    each_column(v, [&](int c) {
        for (int t = 0; t < v.rows; ++t) {
            float answer = 0.0f;
            for (int m = 0; m < k.cols; ++m) answer += k.get(t, m) * decay_to(t, m, g...) * state.get(m, c);
            for (int j = 0; j < t; ++j) answer += s.get(t, j) * b.get(j) * v.get(j, c);
            v.set(t, c, v.get(t, c) - answer);
        }
    });
}

// U = b V, row by row
template <class U, class B, class V> STEP weigh_rows(const U& u, const B& b, const V& v) {
    own_pieces<1>(u, u.rows, [&](int r, int c) {
        if (c < u.cols) u.set(r, c, b.get(r) * v.get(r, c));
    });
}

// du_t -= the sum of s_it b_i du_i over later tokens i, from the last token on
template <class V, class S, class B> STEP solve_back(const V& dv, const S& s, const B& b) {
    each_column(dv, [&](int c) {
        for (int t = dv.rows - 1; t >= 0; --t) {
            float sum = dv.get(t, c);
            for (int i = t + 1; i < dv.rows; ++i) sum -= s.get(i, t) * b.get(i) * dv.get(i, c);
            dv.set(t, c, sum);
        }
    });
}

// n = - b n, row by row
template <class N, class B> STEP weigh_down(const N& n, const B& b) {
    own_pieces<1>(n, n.rows, [&](int r, int c) {
        if (c < n.cols) n.set(r, c, -b.get(r) * n.get(r, c));
    });
}

// z_ij = n_i . u_j for j < i, else 0
template <class Z, class N, class U> STEP earlier_rows(const Z& z, const N& n, const U& u) { earlier(z, n, u, 1); }

// dS += K^T n, each decayed down to the start of the chunk
template <class D, class K, class N, class... G>
STEP add_keys_back(const D& ds, const K& k, const N& n, const G&... g) {
    const auto weight = [&](int r, int x) { return k.get(x, r) * decay_to(x, r, g...); };
    by_columns(ds, k.rows, n, weight, Add<D>{ds, 1.0f});
}

// dg += K dK, in the words of a gate
template <class G, class K, class D> STEP more_keys(const G& dg, const K& k, const D& dk) {
    own_pieces<1>(dg, dg.rows, [&](int r, int c) {
        if (c < dg.cols) dg.set(r, c, dg.get(r, c) + of_gate(k, dk, r, c, dg.cols));
    });
}

// X += Y
template <class X, class Y> STEP add_rows(const X& x, const Y& y) {
    own_pieces<1>(x, x.rows, [&](int r, int c) {
        if (c < x.cols) x.set(r, c, x.get(r, c) + y.get(r, c));
    });
}
