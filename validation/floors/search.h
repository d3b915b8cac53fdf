// What pebble.cpp and pebble_backward.cpp share: A* over the states of one tiny instance.
//
// A program fills `steps`, `merges`, `inputs`, `outputs` and `symmetries`, defines `cleaned` and `still_to_read`, and calls
// `search`. A state is what is in fast memory and what is in slow memory.
#pragma once
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
struct Step { Set needs; int makes; bool output; };
struct Merge { Set sent, there; int makes; bool output; };   // slow memory adds a word of fast memory to one of its own
static std::vector<Step> steps;
static std::vector<Merge> merges;
static Set inputs, outputs;
static int M;
static bool count_writes, adds;
static Set bit(int w) { return Set(1) << w; }

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
static State cleaned(State s);
static int still_to_read(State s);

struct Entry { State s; uint8_t cost, closed, used; };
static std::vector<Entry> table;
static size_t entries = 0;
static Set hashed(State s) {
    Set h = (s.fast * 0x9E3779B97F4A7C15ull) ^ (s.slow * 0xC2B2AE3D27D4EB4Full);
    h ^= h >> 29; h *= 0xBF58476D1CE4E5B9ull; h ^= h >> 32;
    return h;
}
static Entry& find(State s) {
    size_t at = hashed(s) & (table.size() - 1);
    while (table[at].used && (table[at].s.fast != s.fast || table[at].s.slow != s.slow)) at = (at + 1) & (table.size() - 1);
    return table[at];
}
static std::vector<std::vector<std::pair<State, int>>> queue;
struct Child { State s; int cost; };
static std::vector<Child> children;                    // of one state; each is looked up after all were asked for
static void reach(State s, int cost) {
    s = canonical(cleaned(s));
    __builtin_prefetch(&table[hashed(s) & (table.size() - 1)]);
    children.push_back({s, cost});
}
static void note_children() {
    for (auto& [s, cost] : children) {
        Entry& e = find(s);
        if (e.used && e.cost <= cost) continue;
        if (!e.used) { e.used = 1; e.s = s; e.closed = 0; entries++; }
        e.cost = uint8_t(cost);
        size_t total = cost + still_to_read(s);
        if (queue.size() <= total) queue.resize(total + 1);
        queue[total].push_back({s, cost});
    }
    children.clear();
}
static std::vector<Set> ways;                           // to keep some words of a set; the smallest number first
static void drop(Set kept, Set rest, int words) {      // drops that many words of `rest`
    if (!words) { ways.push_back(kept); return; }
    while (__builtin_popcountll(rest) >= words) {
        Set highest = bit(63 - __builtin_clzll(rest));
        rest &= ~highest;
        drop(kept & ~highest, rest, words - 1);
    }
}
static const std::vector<Set>& kept(Set from, int room) {   // every way to keep `room` words of a set
    ways.clear();
    drop(from, from, std::max(0, __builtin_popcountll(from) - room));
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
    for (auto& m : adds ? merges : std::vector<Merge>()) {
        Set made = bit(m.makes);
        if ((s.fast & m.sent) && (s.slow & m.there) && !(s.slow & made))
            reach({s.fast, (s.slow & ~m.there) | made}, cost + !m.output);
    }
    for (Set x = readable & ~s.fast & ~outputs; x; x &= x - 1)
        for (Set rest : kept(s.fast, M - 1)) reach({rest | (x & -x), s.slow}, cost + 1);
}
// Prints the result. `outputs_written` are counted in any case if writes are, because each is written once.
static int search(size_t limit, int outputs_written) {
    size_t size = 1;
    while (size < 2 * limit + 4096) size *= 2;
    table.assign(size, Entry{});
    int base = count_writes ? outputs_written : 0;
    reach({0, 0}, 0);
    note_children();
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
            note_children();
        }
    printf("none 0 %zu\n", entries);
    return 0;
}
