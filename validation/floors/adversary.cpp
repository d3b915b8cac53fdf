// Prints the least cost that a search over orders of attention's products finds: an upper bound from no schedule of iosim.
//
//   adversary N Nk d dv M reads|total TURNS SEED [mask [mla]]  mask: rows of 0 and 1 with commas, or "dense"
//   mla: V is the first dv columns of K. Rows that see one key are not allowed.
//   -> "COST START" the least cost, and the kind of order that the search began with
//
// An order is a list of events: one product q*k of a pair, or one product p*v added to an output word. Memory holds M
// words; the word that is needed latest is evicted (Belady), weighted if it must be written first. Scores and outputs are
// spilled and read again, or scores are computed again, pair by pair as the search decides. Orders begin as tiles in four
// loop orders, waves over the rows, scores and outputs in separate passes, or at random, and are then annealed.
#include <cstdint>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>
#include <algorithm>
using std::vector;
struct Event { bool triple; int i, j, m; };
struct Order { vector<Event> events; vector<char> again; double weight; };
static int N, Nk, d, dv, M;
static bool count_writes, mla;
static vector<char> seen;                    // of pair i*Nk+j
static vector<int> keys_of;                  // visible keys of a row
static std::mt19937_64 rng;
static int below(int n) { return int(rng() % uint64_t(n)); }
static int Q(int i, int m) { return i * d + m; }
static int K(int j, int m) { return N * d + j * d + m; }
static int V(int j, int m) { return mla ? K(j, m) : (N + Nk) * d + j * dv + m; }
static int O(int i, int m) { return (N + Nk) * d + Nk * dv + i * dv + m; }
static int C(int i, int j) { return (N + Nk) * d + (N + Nk) * dv + i * Nk + j; }
static int all_words() { return C(N - 1, Nk - 1) + 1; }

// A run of one order. Every step reads at most one word, and at most M words are held between steps.
struct Run {
    const Order& order;
    vector<int> use, at_use;                 // next use of operand 3*e+x after event e; next use of a word from now on
    vector<char> in, dirty, stored, made, product;
    vector<int> held, left;                  // words in memory; triples left of an output word
    long reads = 0, writes = 0;
    int now = 0;
    size_t most = 0;                         // most words held between steps
    static constexpr int NEVER = 1 << 29;
    Run(const Order& o) : order(o), in(all_words()), dirty(all_words()), stored(all_words()), made(all_words()),
                          product(N * Nk * d), left(N * dv) {
        for (int i = 0; i < N; i++) for (int m = 0; m < dv; m++) left[i * dv + m] = keys_of[i];
        use.assign(3 * o.events.size(), NEVER);
        at_use.assign(all_words(), NEVER);
        for (int e = int(o.events.size()) - 1; e >= 0; e--) {
            int w[3]; operands(o.events[e], w);
            for (int x = 0; x < 3; x++) { use[3 * e + x] = at_use[w[x]]; at_use[w[x]] = e; }
        }
    }
    static void operands(const Event& e, int* w) {
        w[0] = C(e.i, e.j);
        w[1] = e.triple ? V(e.j, e.m) : Q(e.i, e.m);
        w[2] = e.triple ? O(e.i, e.m) : K(e.j, e.m);
    }
    bool is_score(int w) const { return w >= C(0, 0); }
    void evict(size_t room, const int* pinned) {
        while (held.size() > room) {
            size_t victim = held.size(); double worst = -1;
            for (size_t x = 0; x < held.size(); x++) {
                int w = held[x];
                if (pinned && (w == pinned[0] || w == pinned[1] || w == pinned[2])) continue;
                double far = at_use[w] - now;
                if (far <= worst) continue;    // the weight is at most 1
                bool pays = at_use[w] < NEVER && dirty[w] && !(is_score(w) && order.again[w - C(0, 0)]);
                if (pays) far *= order.weight;
                if (far > worst) { worst = far; victim = x; }
            }
            int w = held[victim];
            held[victim] = held.back(); held.pop_back(); in[w] = 0;
            if (at_use[w] >= NEVER || !dirty[w]) continue;
            if (is_score(w) && order.again[w - C(0, 0)]) { forget(w); continue; }
            writes++; dirty[w] = 0; stored[w] = 1;
        }
    }
    void forget(int w) {                     // a score that is computed again: its products are to be done anew
        int pair = w - C(0, 0);
        made[w] = 0; stored[w] = 0; dirty[w] = 0;
        for (int m = 0; m < d; m++) product[pair * d + m] = 0;
    }
    void step(const int* w, int result, int e) {    // event e, or -1 within one; `result` of w[0..2] is made or changed
        int missing[3], count = 0;
        for (int x = 0; x < 3; x++) if (!in[w[x]] && (w[x] != result || made[w[x]])) missing[count++] = w[x];
        for (int x = 0; x < count; x++) {
            if (x + 1 < count) evict(M - 1, w);   // the last read is one step with the product
            held.push_back(missing[x]); in[missing[x]] = 1; reads++;
        }
        if (!in[result]) { held.push_back(result); in[result] = 1; }
        made[result] = 1; dirty[result] = 1;
        for (int y = 0; y < 3 && e >= 0; y++) at_use[w[y]] = use[3 * e + y];
        if (e >= 0 && order.events[e].triple && --left[order.events[e].i * dv + order.events[e].m] == 0) {
            writes++; dirty[result] = 0; at_use[result] = NEVER;
        }
        int keep[3] = {result, result, result};   // what was made has a place of its own after the step
        evict(M, keep);
        most = std::max(most, held.size());
    }
    void products(int i, int j, int only, int e) {
        for (int m = 0; m < d; m++) {
            if ((only >= 0 && m != only) || product[(i * Nk + j) * d + m]) continue;
            int w[3] = {C(i, j), Q(i, m), K(j, m)};
            step(w, w[0], e);
            product[(i * Nk + j) * d + m] = 1;
        }
    }
    long go(long limit) {                    // the cost, or some cost above `limit`
        for (size_t e = 0; e < order.events.size(); e++) {
            if (cost() > limit) return cost();
            const Event& x = order.events[e];
            now = int(e);
            int w[3]; operands(x, w);
            if (x.triple) {
                products(x.i, x.j, -1, -1);
                step(w, w[2], int(e));
            } else {
                if (at_use[C(x.i, x.j)] < NEVER) products(x.i, x.j, x.m, int(e));
                for (int y = 0; y < 3; y++) at_use[w[y]] = use[3 * e + y];
            }
        }
        for (int l : left) if (l) { fprintf(stderr, "unfinished\n"); exit(1); }
        if (most > size_t(M)) { fprintf(stderr, "too many words held\n"); exit(1); }
        return cost();
    }
    long cost() const { return reads + (count_writes ? writes : 0); }
};
static long cost(const Order& o, double most) { return Run(o).go(long(most)); }

static void add_tile(Order& o, int i0, int i1, int j0, int j1, int how, bool score, bool triple) {
    auto each = [&](auto f) {
        if (how & 1) { for (int j = j0; j < j1; j++) for (int i = i0; i < i1; i++) if (seen[i * Nk + j]) f(i, j); }
        else { for (int i = i0; i < i1; i++) for (int j = j0; j < j1; j++) if (seen[i * Nk + j]) f(i, j); }
    };
    if (how & 2 && score && triple) {        // pair after pair
        each([&](int i, int j) {
            for (int m = 0; m < d; m++) o.events.push_back({false, i, j, m});
            for (int m = 0; m < dv; m++) o.events.push_back({true, i, j, m});
        });
        return;
    }
    if (score) for (int m = 0; m < d; m++) each([&](int i, int j) { o.events.push_back({false, i, j, m}); });
    if (triple) for (int m = 0; m < dv; m++) each([&](int i, int j) { o.events.push_back({true, i, j, m}); });
}
static void add_tiles(Order& o, int a, int b, bool q_outer, bool snake, int how, bool score, bool triple) {
    int rows = (N + a - 1) / a, cols = (Nk + b - 1) / b;
    for (int x = 0; x < (q_outer ? rows : cols); x++) for (int y = 0; y < (q_outer ? cols : rows); y++) {
        int inner = snake && x % 2 ? (q_outer ? cols : rows) - 1 - y : y;
        int r = q_outer ? x : inner, c = q_outer ? inner : x;
        add_tile(o, r * a, std::min(N, r * a + a), c * b, std::min(Nk, c * b + b), how, score, triple);
    }
}
static std::string start(Order& o) {
    o.events.clear();
    o.again.assign(N * Nk, 0);
    static const double weights[] = {1, 1, 0.5, 0.25};
    o.weight = weights[below(4)];
    int kind = below(5), a = 1 + below(std::min(N, M + 1)), b = 1 + below(std::min(Nk, below(2) ? M + 1 : 2));
    if (below(2)) std::swap(a, b);
    a = std::min(a, N), b = std::min(b, Nk);
    if (below(3) == 0) for (auto& x : o.again) x = below(2);
    if (kind == 0) {                          // as many rows as memory holds, key by key
        a = std::clamp(M / (d + dv) - below(3), 1, N);
        add_tiles(o, a, 1, true, below(2), 3, true, true);
        return "rows";
    }
    if (kind == 1) { add_tiles(o, a, b, below(2), below(2), below(4), true, true); return "tiles"; }
    if (kind == 2) {
        add_tiles(o, a, b, below(2), below(2), below(4), true, false);
        add_tiles(o, 1 + below(std::min(N, M)), 1 + below(std::min(Nk, 4)), below(2), below(2), below(4), false, true);
        return "passes";
    }
    if (kind == 3) {                          // waves: a band of rows sees some keys, the next band, then back for more
        int band = std::min(N, a * (1 + below(4))), wave = 1 + below(Nk);
        for (int i = 0; i < N; i += band) for (int j = 0; j < Nk; j += wave) {
            int end = std::min(N, i + band), last = std::min(Nk, j + wave);
            for (int r = i; r < end; r += a) {
                int how = below(4);
                for (int c = j; c < last; c += b) add_tile(o, r, std::min(end, r + a), c, std::min(last, c + b), how, true, true);
            }
        }
        return "waves";
    }
    add_tiles(o, 1, 1, true, false, 0, true, true);
    std::shuffle(o.events.begin(), o.events.end(), rng);
    return "random";
}
static void change(Order& o) {
    int n = int(o.events.size()), what = below(8);
    if (what == 0) { for (int k = 1 + below(4); k; k--) o.again[below(N * Nk)] ^= 1; return; }
    int length = 1 + below(what < 4 ? 4 : std::max(2, n / 8)), from = below(n - length + 1);
    auto begin = o.events.begin();
    if (what == 1 || what == 4) { std::reverse(begin + from, begin + from + length); return; }
    int to = below(2) ? below(n - length + 1) : std::clamp(from + below(41) - 20, 0, n - length);
    if (to < from) std::rotate(begin + to, begin + from, begin + from + length);
    else std::rotate(begin + from, begin + from + length, begin + to + length);
}
static void read_mask(const std::string& mask) {
    seen.assign(N * Nk, 1);
    if (mask != "dense") for (int i = 0; i < N; i++) for (int j = 0; j < Nk; j++) seen[i * Nk + j] = mask[i * (Nk + 1) + j] == '1';
    for (int i = 0; i < N; i++) keys_of.push_back(int(std::count(seen.begin() + i * Nk, seen.begin() + (i + 1) * Nk, 1)));
}
int main(int argc, char** argv) {
    N = atoi(argv[1]); Nk = atoi(argv[2]); d = atoi(argv[3]); dv = atoi(argv[4]); M = atoi(argv[5]);
    count_writes = !strcmp(argv[6], "total");
    int turns = atoi(argv[7]);
    rng.seed(atoi(argv[8]));
    mla = argc > 10;
    read_mask(argc > 9 ? argv[9] : "dense");
    Order best; std::string from;
    long least = 1L << 60;
    for (int t = 0; t < turns / 4; t++) {     // a quarter of the turns looks for a good beginning
        Order o; std::string kind = start(o);
        long c = cost(o, double(least));
        if (c < least) least = c, best = o, from = kind;
    }
    Order now = best; long here = least;
    for (int t = 0; t < turns - turns / 4; t++) {
        double heat = 0.01 * double(least) * (1 - double(t) / turns) * 0.3;
        Order next = now; change(next);
        long c = cost(next, double(here) + 40 * heat);   // above that the chance of being taken is e^-40
        if (c <= here || std::exp(-double(c - here) / (heat + 1e-9)) > double(rng() >> 11) / 9007199254740992.0) now = next, here = c;
        if (c < least) least = c, best = next;
    }
    printf("%ld %s\n", least, from.c_str());
}
