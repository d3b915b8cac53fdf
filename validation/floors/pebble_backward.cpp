// Prints the least cost of the backward pass of one tiny attention instance over all runs of the class (search.h).
//
//   pebble_backward N Nk d dv M reads|total|adds LIMIT [stored]     dense, with at least two keys; output as that of pebble
//
// Words: q, k, v, g (dO); c(i,j,A) = the sum of the products q*k of a pair over the set A of columns, and for all of them
// s or p, which take each other's place; e(i,j,B) = that of g*v, and for all columns dP; t(i,j) = dS; Q(i,m,S), K(j,m,S)
// and W(j,m,S) = sums of dQ, dK, dV over the set S of keys or of rows. Every set is allowed. P lies in slow memory at
// the start if `stored` is given.
#include "search.h"
static int N, Nk, d, dv;
static bool stored;
struct Word { char kind; int a, b, s; };
static std::vector<Word> words;
static std::map<std::tuple<char,int,int,int>, int> index_of;
static int word(char kind, int a, int b, int s) {
    auto key = std::make_tuple(kind, a, b, s);
    auto at = index_of.find(key);
    if (at != index_of.end()) return at->second;
    words.push_back({kind, a, b, s});
    return index_of[key] = int(words.size()) - 1;
}
static Set w(char kind, int a, int b, int s) { return bit(word(kind, a, b, s)); }

// Sums of `kind` over subsets of `all`, whose part for x is made from two(x).
template <class Two> static void sums(char kind, int a, int b, int all, bool output, Two two) {
    for (int S = 1; S <= all; S++) {
        int made = word(kind, a, b, S);
        bool last = output && S == all;
        if (last) outputs |= bit(made);
        for (int x = 0; S >> x; x++) if (S >> x & 1) {
            int rest = S & ~(1 << x);
            steps.push_back({rest ? two(x) | w(kind, a, b, rest) : two(x), made, last});
        }
        for (int B = (S - 1) & S; B; B = (B - 1) & S) {
            Set one = w(kind, a, b, B), other = w(kind, a, b, S ^ B);
            merges.push_back({one, other, made, last});
            if (B > (S ^ B)) steps.push_back({one | other, made, last});
        }
    }
}
static void build() {
    int of_d = (1 << d) - 1, of_dv = (1 << dv) - 1, keys = (1 << Nk) - 1, rows = (1 << N) - 1;
    for (int i = 0; i < N; i++) for (int m = 0; m < d; m++) inputs |= w('q', i, m, 0);
    for (int j = 0; j < Nk; j++) for (int m = 0; m < d; m++) inputs |= w('k', j, m, 0);
    for (int j = 0; j < Nk; j++) for (int m = 0; m < dv; m++) inputs |= w('v', j, m, 0);
    for (int i = 0; i < N; i++) for (int m = 0; m < dv; m++) inputs |= w('g', i, m, 0);
    for (int i = 0; stored && i < N; i++) for (int j = 0; j < Nk; j++) inputs |= w('c', i, j, of_d);
    for (int i = 0; i < N; i++) for (int j = 0; j < Nk; j++) {
        sums('c', i, j, of_d, false, [&](int m) { return w('q', i, m, 0) | w('k', j, m, 0); });
        sums('e', i, j, of_dv, false, [&](int m) { return w('g', i, m, 0) | w('v', j, m, 0); });
        steps.push_back({w('c', i, j, of_d) | w('e', i, j, of_dv), word('t', i, j, 0), false});
    }
    for (int i = 0; i < N; i++) for (int m = 0; m < d; m++)
        sums('Q', i, m, keys, true, [&](int j) { return w('t', i, j, 0) | w('k', j, m, 0); });
    for (int j = 0; j < Nk; j++) for (int m = 0; m < d; m++)
        sums('K', j, m, rows, true, [&](int i) { return w('t', i, j, 0) | w('q', i, m, 0); });
    for (int j = 0; j < Nk; j++) for (int m = 0; m < dv; m++)
        sums('W', j, m, rows, true, [&](int i) { return w('c', i, j, of_d) | w('g', i, m, 0); });
    if (words.size() > 64) { printf("too-large %zu words\n", words.size()); exit(0); }
}
static void find_symmetries() {
    for (auto& r : orders(N)) for (auto& c : orders(Nk)) for (auto& e : orders(d)) for (auto& f : orders(dv)) {
        Table table(8 * 256, 0);
        for (size_t at = 0; at < words.size(); at++) {
            Word x = words[at];
            int to = x.kind == 'q' ? word('q', r[x.a], e[x.b], 0) : x.kind == 'k' ? word('k', c[x.a], e[x.b], 0)
                   : x.kind == 'v' ? word('v', c[x.a], f[x.b], 0) : x.kind == 'g' ? word('g', r[x.a], f[x.b], 0)
                   : x.kind == 'c' ? word('c', r[x.a], c[x.b], image(x.s, e)) : x.kind == 'e' ? word('e', r[x.a], c[x.b], image(x.s, f))
                   : x.kind == 't' ? word('t', r[x.a], c[x.b], 0) : x.kind == 'Q' ? word('Q', r[x.a], e[x.b], image(x.s, c))
                   : x.kind == 'K' ? word('K', c[x.a], e[x.b], image(x.s, r)) : word('W', c[x.a], f[x.b], image(x.s, r));
            for (int byte = 0; byte < 256; byte++) if (byte >> (at % 8) & 1) table[(at / 8) * 256 + byte] |= bit(to);
        }
        symmetries.push_back(table);
    }
}

// Words by what they belong to, found once.
static std::vector<Set> parts_of_output, whole;                          // of every output: its unfinished sums; itself
struct Need { Set output, covered, inputs; };                            // of a pair's product: what it adds to, what holds it
static std::vector<Need> needs;
static void find_words() {
    int of_d = (1 << d) - 1, of_dv = (1 << dv) - 1;
    std::map<std::tuple<char,int,int>, Set> all, full;
    for (size_t at = 0; at < words.size(); at++) {
        Word x = words[at];
        if (x.kind != 'Q' && x.kind != 'K' && x.kind != 'W') continue;
        auto key = std::make_tuple(x.kind, x.a, x.b);
        all[key] |= bit(at);
        if (outputs >> at & 1) full[key] = bit(at);
    }
    for (auto& entry : all) { parts_of_output.push_back(entry.second & ~full[entry.first]); whole.push_back(full[entry.first]); }
    auto holding = [&](char kind, int a, int b, int x) {
        Set found = 0;
        for (size_t at = 0; at < words.size(); at++)
            if (words[at].kind == kind && words[at].a == a && words[at].b == b && (words[at].s >> x & 1)) found |= bit(at);
        return found;
    };
    for (int i = 0; i < N; i++) for (int j = 0; j < Nk; j++) {
        Set score = w('c', i, j, of_d) | w('t', i, j, 0), t = w('t', i, j, 0);
        auto want = [&](char kind, int a, int m, int x, Set first, bool gradient) {
            Set output = full[std::make_tuple(kind, a, m)], covered = holding(kind, a, m, x);
            needs.push_back({output, covered, first});
            for (int c = 0; !stored && c < d; c++)
                needs.push_back({output, covered | t | (gradient ? 0 : score) | holding('c', i, j, c), w('q', i, c, 0) | w('k', j, c, 0)});
            for (int c = 0; gradient && c < dv; c++)
                needs.push_back({output, covered | t | holding('e', i, j, c), w('g', i, c, 0) | w('v', j, c, 0)});
        };
        for (int m = 0; m < d; m++) want('Q', i, m, j, w('k', j, m, 0), true);
        for (int m = 0; m < d; m++) want('K', j, m, i, w('q', i, m, 0), true);
        for (int m = 0; m < dv; m++) want('W', j, m, i, w('g', i, m, 0), false);
    }
    (void)of_dv;
}
static State cleaned(State s) {
    for (size_t x = 0; x < whole.size(); x++)
        if (s.slow & whole[x]) { s.fast &= ~parts_of_output[x]; s.slow &= ~parts_of_output[x]; }
    return s;
}
static int still_to_read(State s) {
    Set held = s.fast | s.slow, needed = 0;
    for (auto& n : needs) if (!(s.slow & n.output) && !(held & n.covered)) needed |= n.inputs;
    return __builtin_popcountll(needed & ~s.fast);
}
int main(int argc, char** argv) {
    N = atoi(argv[1]); Nk = atoi(argv[2]); d = atoi(argv[3]); dv = atoi(argv[4]); M = atoi(argv[5]);
    count_writes = strcmp(argv[6], "reads");
    adds = !strcmp(argv[6], "adds");
    stored = argc > 8 && !strcmp(argv[8], "stored");
    build();
    find_symmetries();
    find_words();
    return search(size_t(atof(argv[7])), N * d + Nk * (d + dv));
}
