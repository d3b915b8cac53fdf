// Prints the least cost of one tiny attention instance over all runs of the class, by A* search over states.
//
//   pebble N Nk d dv M reads|total|adds LIMIT [mask [mla]]   mask: rows of 0 and 1 with commas, or "dense"
//   -> "optimum COST states" or, at LIMIT states, "at-least COST states" (every run below COST was tried)
//
// A state is what is in fast memory and what was written. Words: q, k, v; c(i,j,A) = the sum of the products of pair
// (i,j) over the set A of columns; o(i,m,S) = the sum of p*v over the set S of keys. Every set A, S is allowed, so every
// summation tree, split and recomputation is. A step reads one word, or computes one word (it may take an operand's
// place), or does both at once; deleting is free. Cost: reads, or reads + writes. With adds, slow memory adds a word that
// is sent to it, a part of a score or of an output, to another part there: reads + writes + adds. Rows that see one key are
// not allowed. mla: V is the first dv columns of K.
#include "search.h"
static int N, Nk, d, dv;
static bool mla;
static std::vector<int> sees;                       // of each row the set of keys
struct Word { char kind; int a, b, s; };            // q: i,m; k: j,m; v: j,m; c: i,j,A; o: i,m,S
static std::vector<Word> words;
static std::map<std::tuple<char,int,int,int>, int> index_of;

static int word(char kind, int a, int b, int s) {
    if (mla && kind == 'v') kind = 'k';
    auto key = std::make_tuple(kind, a, b, s);
    auto at = index_of.find(key);
    if (at != index_of.end()) return at->second;
    words.push_back({kind, a, b, s});
    return index_of[key] = int(words.size()) - 1;
}

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
            for (int B = (A - 1) & A; B; B = (B - 1) & A) {
                Set one = bit(word('c', i, j, B)), other = bit(word('c', i, j, A ^ B));
                merges.push_back({one, other, made, false});
                if (B > (A ^ B)) steps.push_back({one | other, made, false});
            }
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
            for (int B = (S - 1) & S; B; B = (B - 1) & S) {
                Set one = bit(word('o', i, m, B)), other = bit(word('o', i, m, S ^ B));
                merges.push_back({one, other, made, output});
                if (B > (S ^ B)) steps.push_back({one | other, made, output});
            }
        }
    if (words.size() > 64) { printf("too-large %zu words\n", words.size()); exit(0); }
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

int main(int argc, char** argv) {
    N = atoi(argv[1]); Nk = atoi(argv[2]); d = atoi(argv[3]); dv = atoi(argv[4]); M = atoi(argv[5]);
    count_writes = strcmp(argv[6], "reads");
    adds = !strcmp(argv[6], "adds");
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
    int n = 0;
    for (int i = 0; i < N; i++) if (sees[i]) n += dv;
    return search(limit, n);
}
