// Prints the least cost of one tiny attention instance over all runs of the class, by A* search over states.
//
//   pebble N Nk d dv M reads|total LIMIT [mask [mla]]   mask: rows of 0 and 1 with commas, or "dense"
//   -> "optimum COST states" or, at LIMIT states, "at-least COST states" (every run below COST was tried)
//
// A state is what is in fast memory and what was written. Words: q, k, v; c(i,j,A) = the sum of the products of pair
// (i,j) over the set A of columns; o(i,m,S) = the sum of p*v over the set S of keys. Every set A, S is allowed, so every
// summation tree, split and recomputation is. A step reads one word, or computes one word (it may take an operand's
// place), or does both at once; deleting is free. Cost: reads, or reads + writes. Rows that see one key are
// not allowed. mla: V is the first dv columns of K.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>
#include <algorithm>
typedef uint64_t Set;
static int N, Nk, d, dv, M;
static bool count_writes, mla;
static std::vector<int> sees;                       // of each row the set of keys
struct Word { char kind; int a, b, s; };            // q: i,m; k: j,m; v: j,m; c: i,j,A; o: i,m,S
static std::vector<Word> words;
static std::map<std::tuple<char,int,int,int>, int> index_of;
struct Step { Set needs; int makes; bool output; };
static std::vector<Step> steps;
static Set inputs, outputs;

static int word(char kind, int a, int b, int s) {
    if (mla && kind == 'v') kind = 'k';
    auto key = std::make_tuple(kind, a, b, s);
    auto at = index_of.find(key);
    if (at != index_of.end()) return at->second;
    words.push_back({kind, a, b, s});
    return index_of[key] = int(words.size()) - 1;
}
static Set bit(int w) { return Set(1) << w; }

static void build() {
    for (int i = 0; i < N; i++) for (int m = 0; m < d; m++) inputs |= bit(word('q', i, m, 0));
    for (int j = 0; j < Nk; j++) for (int m = 0; m < d; m++) inputs |= bit(word('k', j, m, 0));
    for (int j = 0; j < Nk; j++) for (int m = 0; m < dv; m++) inputs |= bit(word('v', j, m, 0));
    int all = (1 << d) - 1;
    for (int i = 0; i < N; i++) for (int j = 0; j < Nk; j++) if (sees[i] >> j & 1)
        for (int A = 1; A <= all; A++) {
            int made = word('c', i, j, A);
            for (int m = 0; m < d; m++) if (A >> m & 1) {   // the last product of A, alone or added at once
                Set two = bit(word('q', i, m, 0)) | bit(word('k', j, m, 0));
                int rest = A & ~(1 << m);
                steps.push_back({rest ? two | bit(word('c', i, j, rest)) : two, made, false});
            }
            for (int B = (A - 1) & A; B; B = (B - 1) & A) if (B > (A ^ B))
                steps.push_back({bit(word('c', i, j, B)) | bit(word('c', i, j, A ^ B)), made, false});
        }
    for (int i = 0; i < N; i++) for (int m = 0; m < dv; m++)
        for (int S = sees[i]; S; S = (S - 1) & sees[i]) {
            int made = word('o', i, m, S);
            bool output = S == sees[i];
            if (output) outputs |= bit(made);
            for (int j = 0; j < Nk; j++) if (S >> j & 1) {
                Set two = bit(word('c', i, j, all)) | bit(word('v', j, m, 0));
                int rest = S & ~(1 << j);
                steps.push_back({rest ? two | bit(word('o', i, m, rest)) : two, made, output});
            }
            for (int B = (S - 1) & S; B; B = (B - 1) & S) if (B > (S ^ B))
                steps.push_back({bit(word('o', i, m, B)) | bit(word('o', i, m, S ^ B)), made, output});
        }
    if (words.size() > 64) { printf("too-large %zu words\n", words.size()); exit(0); }
}

// Symmetries of the instance, as tables by bytes.
typedef std::vector<Set> Table;
static std::vector<Table> symmetries;
static std::vector<std::vector<int>> orders(int n) {
    std::vector<int> p(n);
    for (int i = 0; i < n; i++) p[i] = i;
    std::vector<std::vector<int>> all;
    do all.push_back(p); while (std::next_permutation(p.begin(), p.end()));
    return all;
}
static int image(int set, const std::vector<int>& p) {
    int out = 0;
    for (size_t i = 0; i < p.size(); i++) if (set >> i & 1) out |= 1 << p[i];
    return out;
}
static void find_symmetries() {
    for (auto& r : orders(N)) for (auto& c : orders(Nk)) {
        bool same = true;
        for (int i = 0; i < N; i++) same = same && image(sees[i], c) == sees[r[i]];
        if (!same) continue;
        for (auto& e : orders(d)) for (auto& f : orders(dv)) {
            if (mla && !std::equal(f.begin(), f.end(), e.begin())) continue;
            Table table(8 * 256, 0);
            for (size_t w = 0; w < words.size(); w++) {
                Word x = words[w];
                int to = x.kind == 'q' ? word('q', r[x.a], e[x.b], 0) : x.kind == 'k' ? word('k', c[x.a], e[x.b], 0)
                       : x.kind == 'v' ? word('v', c[x.a], f[x.b], 0) : x.kind == 'c' ? word('c', r[x.a], c[x.b], image(x.s, e))
                       : word('o', r[x.a], f[x.b], image(x.s, c));
                for (int byte = 0; byte < 256; byte++) if (byte >> (w % 8) & 1) table[(w / 8) * 256 + byte] |= bit(to);
            }
            symmetries.push_back(table);
        }
    }
}
static Set moved(Set s, const Table& t) {
    Set out = 0;
    for (int b = 0; s; b++, s >>= 8) out |= t[b * 256 + (s & 255)];
    return out;
}
struct State { Set fast, slow; };
static State canonical(State s) {
    State least = s;
    for (auto& t : symmetries) {
        Set fast = moved(s.fast, t);
        if (fast > least.fast) continue;
        Set slow = moved(s.slow, t);
        if (fast < least.fast || slow < least.slow) least = {fast, slow};
    }
    return least;
}

// What can no longer be of use is dropped, and what must still be read is a lower bound on the cost to come.
static std::vector<Set> part_of_row, part_of_output;   // of row i; of output (i,m)
static std::vector<Set> whole, of_q, of_k, of_v;        // the words of output (i,m), q (i,m), k (j,m) and v (j,m)
static void find_words() {                             // once: the search needs them in every state
    for (int i = 0; i < N; i++) for (int m = 0; m < dv; m++) whole.push_back(sees[i] ? bit(word('o', i, m, sees[i])) : 0);
    for (int i = 0; i < N; i++) for (int m = 0; m < d; m++) of_q.push_back(bit(word('q', i, m, 0)));
    for (int j = 0; j < Nk; j++) for (int m = 0; m < d; m++) of_k.push_back(bit(word('k', j, m, 0)));
    for (int j = 0; j < Nk; j++) for (int m = 0; m < dv; m++) of_v.push_back(bit(word('v', j, m, 0)));
}
static State cleaned(State s) {
    int open_rows = 0;
    for (int i = 0; i < N; i++) {
        bool open = false;
        for (int m = 0; m < dv; m++) {
            bool made = s.slow & whole[i * dv + m];
            if (sees[i] && !made) open = true;
            if (made) { Set gone = part_of_output[i * dv + m]; s.fast &= ~gone; s.slow &= ~gone; }
        }
        if (open) open_rows |= 1 << i;
        else { s.fast &= ~part_of_row[i]; s.slow &= ~part_of_row[i]; }
    }
    for (int j = 0; j < Nk; j++) {
        bool used = false;
        for (int i = 0; i < N; i++) if ((open_rows >> i & 1) && (sees[i] >> j & 1)) used = true;
        for (int m = 0; m < d && !used; m++) s.fast &= ~of_k[j * d + m];
        for (int m = 0; m < dv && !mla; m++) {
            used = false;
            for (int i = 0; i < N; i++) if ((sees[i] >> j & 1) && !(s.slow & whole[i * dv + m])) used = true;
            if (!used) s.fast &= ~of_v[j * dv + m];
        }
    }
    return s;
}
static std::vector<Set> has_key, has_column;           // o words of (i,m) with key j; c words of (i,j) with column m
static int still_to_read(State s) {
    Set held = s.fast | s.slow, needed = 0;
    for (int i = 0; i < N; i++) for (int j = 0; j < Nk; j++) if (sees[i] >> j & 1) {
        bool wanted = false;
        for (int m = 0; m < dv; m++) {
            if (s.slow & whole[i * dv + m]) continue;
            if (held & has_key[(i * dv + m) * Nk + j]) continue;
            needed |= of_v[j * dv + m];
            wanted = true;
        }
        if (wanted) for (int m = 0; m < d; m++)
            if (!(held & has_column[(i * Nk + j) * d + m])) needed |= of_q[i * d + m] | of_k[j * d + m];
    }
    return __builtin_popcountll(needed & ~s.fast);
}

struct Entry { State s; uint8_t cost, closed, used; };
static std::vector<Entry> table;
static size_t entries = 0;
static Entry& find(State s) {
    Set h = (s.fast * 0x9E3779B97F4A7C15ull) ^ (s.slow * 0xC2B2AE3D27D4EB4Full);
    h ^= h >> 29; h *= 0xBF58476D1CE4E5B9ull; h ^= h >> 32;
    size_t at = h & (table.size() - 1);
    while (table[at].used && (table[at].s.fast != s.fast || table[at].s.slow != s.slow)) at = (at + 1) & (table.size() - 1);
    return table[at];
}
static std::vector<std::vector<std::pair<State, int>>> queue;
static void reach(State s, int cost) {
    s = canonical(cleaned(s));
    Entry& e = find(s);
    if (e.used && e.cost <= cost) return;
    if (!e.used) { e.used = 1; e.s = s; e.closed = 0; entries++; }
    e.cost = uint8_t(cost);
    size_t total = cost + still_to_read(s);
    if (queue.size() <= total) queue.resize(total + 1);
    queue[total].push_back({s, cost});
}
static std::vector<Set> kept(Set from, int room) {     // every way to keep `room` words of a set
    std::vector<Set> ways{from};
    while (!ways.empty() && __builtin_popcountll(ways[0]) > room) {
        std::vector<Set> fewer;
        for (Set w : ways) for (Set rest = w; rest; rest &= rest - 1) fewer.push_back(w & ~(rest & -rest));
        std::sort(fewer.begin(), fewer.end());
        fewer.erase(std::unique(fewer.begin(), fewer.end()), fewer.end());
        ways = fewer;
    }
    return ways;
}
static void expand(State s, int cost) {
    Set readable = inputs | s.slow;
    for (auto& t : steps) {
        Set missing = t.needs & ~s.fast, made = bit(t.makes);
        int reads = __builtin_popcountll(missing);
        if (reads > 1 || (missing & ~readable) || (s.fast & made) || (t.output && (s.slow & made))) continue;
        for (Set rest : kept(s.fast | missing, M - 1)) {
            Set fast = t.output ? rest : rest | made;
            bool store = t.output || !count_writes;
            if (store) reach({fast, s.slow | made}, cost + reads);
            else {
                reach({fast, s.slow}, cost + reads);
                if (!(s.slow & made)) reach({fast, s.slow | made}, cost + reads + 1);
            }
        }
    }
    for (Set x = readable & ~s.fast & ~outputs; x; x &= x - 1)
        for (Set rest : kept(s.fast, M - 1)) reach({rest | (x & -x), s.slow}, cost + 1);
}
int main(int argc, char** argv) {
    N = atoi(argv[1]); Nk = atoi(argv[2]); d = atoi(argv[3]); dv = atoi(argv[4]); M = atoi(argv[5]);
    count_writes = !strcmp(argv[6], "total");
    size_t limit = size_t(atof(argv[7]));
    sees.assign(N, (1 << Nk) - 1);
    if (argc > 8 && strcmp(argv[8], "dense")) {
        const char* at = argv[8];
        for (int i = 0; i < N; i++, at++) { sees[i] = 0; for (int j = 0; j < Nk; j++) sees[i] |= (*at++ == '1') << j; }
    }
    mla = argc > 9;
    build();
    find_symmetries();
    find_words();
    part_of_row.assign(N, 0); part_of_output.assign(N * dv, 0);
    has_key.assign(N * dv * Nk, 0); has_column.assign(N * Nk * d, 0);
    for (size_t w = 0; w < words.size(); w++) {
        Word x = words[w];
        if (x.kind == 'q' || x.kind == 'c') part_of_row[x.a] |= bit(w);
        if (x.kind == 'c') for (int m = 0; m < d; m++) if (x.s >> m & 1) has_column[(x.a * Nk + x.b) * d + m] |= bit(w);
        if (x.kind != 'o') continue;
        if (x.s != sees[x.a]) part_of_output[x.a * dv + x.b] |= bit(w);
        for (int j = 0; j < Nk; j++) if (x.s >> j & 1) has_key[(x.a * dv + x.b) * Nk + j] |= bit(w);
    }
    size_t size = 1;
    while (size < 2 * limit + 4096) size *= 2;
    table.assign(size, Entry{});
    int n = 0;
    for (int i = 0; i < N; i++) if (sees[i]) n += dv;
    int base = count_writes ? n : 0;
    reach({0, 0}, 0);
    for (size_t level = 0; level < queue.size(); level++)
        while (!queue[level].empty()) {
            auto [s, cost] = queue[level].back();
            queue[level].pop_back();
            Entry& e = find(s);
            if (e.closed || e.cost != cost) continue;
            e.closed = 1;
            if ((s.slow & outputs) == outputs) { printf("optimum %d %zu\n", int(level) + base, entries); return 0; }
            if (entries >= limit) { printf("at-least %d %zu\n", int(level) + base, entries); return 0; }
            expand(s, cost);
        }
    printf("none 0 %zu\n", entries);
}
