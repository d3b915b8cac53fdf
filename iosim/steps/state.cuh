// The steps of attention with a state, with the names and arguments of state.py. Gates come last: sums of log decays in
// a block of one column or of d, or a number, the log decay of every token; without them nothing decays.
#pragma once

// The log decay from the start of the chunk up to row r, for word m of a key.
template <class G> DEVICE float log_decay(const G& g, int r, int m) { return g.get(r, g.cols == 1 ? 0 : m); }
DEVICE float log_decay(float g, int r, int) { return g * (r + 1); }
template <class G> DEVICE bool same_for_all_words(const G& g) { return g.cols == 1; }
DEVICE bool same_for_all_words(float) { return true; }

// phi(x) = elu(x) + 1
template <class B> STEP features(const B& block) {
    each_piece(block, [&](float (&x)[B::V], int, int) {
#pragma unroll
        for (int k = 0; k < B::V; ++k) x[k] = x[k] > 0.0f ? x[k] + 1.0f : fast_exp(x[k]);
    });
}

// Column c is phi of word c mod d to the power of 1 / (1 + c / d).
template <class Y, class X> STEP more_features(const Y& y, const X& x) {
    own_pieces<1>(y, y.rows, [&](int r, int c) {
        if (c >= y.cols) return;
        const float word = x.get(r, c % x.cols), phi = word > 0.0f ? word + 1.0f : fast_exp(word);
        y.set(r, c, powf(phi, 1.0f / (1 + c / x.cols)));
    });
}

// z += the sum of phi(K) over the keys
template <class Z, class K> STEP add_keys(const Z& z, const K& k) {
    own_pieces<1>(z, z.rows, [&](int r, int) {
        float sum = z.get(r);
        for (int key = 0; key < k.rows; ++key) sum += k.get(key, r);
        z.set(r, 0, sum);
    });
}

// l = phi(Q) z
template <class L, class Q, class Z> STEP read_normaliser(const L& l, const Q& q, const Z& z) {
    own_pieces<1>(l, l.rows, [&](int r, int) {
        float sum = 0.0f;
        for (int x = 0; x < q.cols; ++x) sum += q.get(r, x) * z.get(x);
        l.set(r, 0, sum);
    });
}

// f(column) for all columns of a block, by the first team alone. Rows depend on each other.
template <class B, class F> DEVICE void each_column(const B& block, F f) {
    if (B::team::index()) return;
    for (int c = B::team::lane(); c < block.cols; c += B::team::threads) f(c);
}

// Sums over the tokens up to each
template <class G> STEP cumulate(const G& g) {
    each_column(g, [&](int c) {
        float sum = 0.0f;
        for (int r = 0; r < g.rows; ++r) g.set(r, c, sum += g.get(r, c));
    });
}

// S = Q K^T for keys that are `least` tokens or more before the query, else 0. The margins become zeros as well.
template <class S, class Q, class K> DEVICE void earlier(const S& s, const Q& q, const K& k, int least) {
    fill(s, 0.0f);
    S::team::sync();
    rows_by_rows(s, q, k, [&](int r, int c, float sum) { s.set(r, c, c + least <= r ? sum : 0.0f); });
}
template <class S, class Q, class K, class G>
DEVICE void earlier(const S& s, const Q& q, const K& k, int least, const G& g) {
    fill(s, 0.0f);
    S::team::sync();
    if (same_for_all_words(g)) {
        rows_by_rows(s, q, k, [&](int r, int c, float sum) {
            s.set(r, c, c + least <= r ? sum * fast_exp(log_decay(g, r, 0) - log_decay(g, c, 0)) : 0.0f);
        });
        return;
    }
    own_pieces<1>(s, s.rows, [&](int r, int c) {
        if (c >= s.cols || c + least > r) return;
        float sum = 0.0f;
        for (int m = 0; m < q.cols; ++m)
            sum += q.get(r, m) * k.get(c, m) * fast_exp(log_decay(g, r, m) - log_decay(g, c, m));
        s.set(r, c, sum);
    });
}
template <class S, class Q, class K, class... G> STEP products(const S& s, const Q& q, const K& k, const G&... g) {
    earlier(s, q, k, 0, g...);
}
template <class S, class K, class... G> STEP key_products(const S& s, const K& k, const G&... g) {
    earlier(s, k, k, 1, g...);
}

// exp of the log decay; 1 without gates
DEVICE float decay_to(int, int) { return 1.0f; }
template <class G> DEVICE float decay_to(int r, int m, const G& g) { return fast_exp(log_decay(g, r, m)); }
DEVICE float decay_from(int, int, int) { return 1.0f; }
template <class G> DEVICE float decay_from(int r, int last, int m, const G& g) {
    return fast_exp(log_decay(g, last, m) - log_decay(g, r, m));
}

// u_t = b_t (v_t - (S decayed up to t)^T k_t - the sum of S_tj u_j), token by token
template <class V, class B, class S, class K, class H, class... G>
STEP delta_values(const V& v, const B& b, const S& s, const K& k, const H& state, const G&... g) {
    each_column(v, [&](int c) {
        for (int t = 0; t < v.rows; ++t) {
            float answer = 0.0f;
            for (int m = 0; m < k.cols; ++m) answer += k.get(t, m) * decay_to(t, m, g...) * state.get(m, c);
            for (int j = 0; j < t; ++j) answer += s.get(t, j) * v.get(j, c);
            v.set(t, c, b.get(t) * (v.get(t, c) - answer));
        }
    });
}

// ---------------------------------------------------------------- the delta rule in passes of their own

// A = (1 + diag(b) S)^-1 in the place of S, row by row. A row's words of S are read before those of A take their
// places: from the left, as many columns at a time as the first team has threads.
template <class S, class B> STEP invert(const S& s, const B& b) {
    using Team = typename S::team;
    if (Team::index()) return;
    for (int t = 0; t < s.rows; ++t)
        for (int first = 0; first < s.cols; first += Team::threads) {
            const int c = first + Team::lane();
            float sum = 0.0f;
            for (int j = c; j < t; ++j) sum += s.get(t, j) * s.get(j, c);
            Team::sync();
            if (c < s.cols) s.set(t, c, c < t ? -b.get(t) * sum : c == t ? 1.0f : 0.0f);
            Team::sync();
        }
}

// W = A (b K), with K decayed from the start of the chunk
template <class W, class A, class K, class B, class... G>
STEP state_factors(const W& w, const A& a, const K& k, const B& b, const G&... g) {
    own_pieces<1>(w, w.rows, [&](int r, int c) {
        if (c >= w.cols) return;
        float sum = 0.0f;
        for (int j = 0; j < a.cols; ++j) sum += a.get(r, j) * b.get(j) * k.get(j, c) * decay_to(j, c, g...);
        w.set(r, c, sum);
    });
}

// U = A (b V)
template <class U, class A, class V, class B> STEP own_values(const U& u, const A& a, const V& v, const B& b) {
    const auto weight = [&](int r, int j) { return a.get(r, j) * b.get(j); };
    by_columns(u, a.cols, v, weight, [&](int r, int c, float sum) { u.set(r, c, sum); });
}

// U -= W S
template <class U, class W, class S> STEP less_state(const U& u, const W& w, const S& state) {
    add_product(u, w, state, -1.0f);
}

// ---------------------------------------------------------------- the state

// O += Q S, with S decayed up to each token
template <class O, class Q, class S, class... G> STEP read_state(const O& o, const Q& q, const S& state, const G&... g) {
    const auto weight = [&](int r, int x) { return q.get(r, x) * decay_to(r, x, g...); };
    by_columns(o, q.cols, state, weight, Add<O>{o, 1.0f});
}

// S = the state decayed over the chunk, and K^T U with what is left of each at the end
template <class S, class K, class U, class... G> STEP add_chunk(const S& state, const K& k, const U& u, const G&... g) {
    const int last = k.rows - 1;
    const auto weight = [&](int r, int x) { return k.get(x, r) * decay_from(x, last, r, g...); };
    by_columns(state, k.rows, u, weight, [&](int r, int c, float sum) {
        state.set(r, c, state.get(r, c) * decay_to(last, r, g...) + sum);
    });
}

// ---------------------------------------------------------------- a ring of rows

// o = x S for row r of X, with S decayed over all rows of the ring
template <class O, class X, class S, class K, class... G>
DEVICE void read_ring(const O& o, const X& x, int r, const S& state, const K& k, const G&... g) {
    const auto weight = [&](int, int m) { return x.get(r, m) * decay_to(k.rows - 1, m, g...); };
    by_columns(o, state.rows, state, weight, [&](int row, int c, float sum) { o.set(row, c, sum); });
}
template <class O, class Q, class S, class K, class... G>
STEP ring_state(const O& o, const Q& q, const S& state, const K& k, const G&... g) {
    read_ring(o, q, 0, state, k, g...);
}
template <class O, class S, class K, class... G>
STEP ring_key(const O& o, const S& state, const K& k, const G&... g) {
    read_ring(o, k, k.rows - 1, state, k, g...);
}

// X . k_j for row r of X, decayed from row j to the last one
template <class X, class K, class... G>
DEVICE float ring_weight(const X& x, int r, const K& k, int j, const G&... g) {
    float sum = 0.0f;
    for (int m = 0; m < k.cols; ++m) sum += x.get(r, m) * k.get(j, m) * decay_from(j, k.rows - 1, m, g...);
    return sum;
}

// O += what the rows of the ring answer to q; that of the last row is v
template <class O, class Q, class K, class U, class V, class... G>
STEP ring_output(const O& o, const Q& q, const K& k, const U& u, const V& v, const G&... g) {
    const auto weight = [&](int, int j) { return ring_weight(q, 0, k, j, g...); };
    const float own = ring_weight(q, 0, k, k.rows - 1, g...);
    by_columns(o, u.rows, u, weight, [&](int r, int c, float sum) { o.set(r, c, o.get(r, c) + sum + own * v.get(r, c)); });
}

// u = b (v - what the state and the rows before it answer to the last key) in the place of v
template <class V, class B, class O, class K, class U, class... G>
STEP ring_delta(const V& v, const B& b, const O& o, const K& k, const U& u, const G&... g) {
    const auto weight = [&](int, int j) { return ring_weight(k, k.rows - 1, k, j, g...); };
    by_columns(v, u.rows, u, weight, [&](int r, int c, float sum) {
        v.set(r, c, b.get(0) * (v.get(r, c) - o.get(r, c) - sum));
    });
}

// S = the state decayed over the ring, and K^T U of its rows; the value of the last one is v
template <class S, class K, class U, class V, class... G>
STEP add_ring(const S& state, const K& k, const U& u, const V& v, const G&... g) {
    const int last = k.rows - 1;
    const auto weight = [&](int r, int x) { return k.get(x, r) * decay_from(x, last, r, g...); };
    by_columns(state, last, u, weight, [&](int r, int c, float sum) {
        state.set(r, c, state.get(r, c) * decay_to(last, r, g...) + sum + k.get(last, r) * v.get(0, c));
    });
}
