// A GPU of one multiprocessor on a CPU, for tests: takes the place of ptx.cuh. Every thread of a block is a fibre; a
// barrier or a warp-wide operation switches to the next one. HBM accesses are looked up in the tensors that were
// announced: one outside of them stops the test, and each word read or written is counted for its tensor.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define DEVICE inline
#define __global__
#define __shared__ static
#define __constant__ static
#define __restrict__
#define __launch_bounds__(...)
#define INFINITY_F __builtin_inff()

template <class T> static inline T min(T a, T b) { return a < b ? a : b; }
struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx;

// ---------------------------------------------------------------- types

typedef float fp32;
struct fp16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct fp8 { unsigned char bits; };
struct alignas(16) Raw16 { unsigned word[4]; };
struct alignas(8) float2 { float x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }

template <class A, class B> static inline A as(B b) { A a; memcpy(&a, &b, sizeof a); return a; }
static inline unsigned __float_as_uint(float x) { return as<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return as<float>(x); }
static inline float to_float(float x) { return x; }
static inline float to_float(bf16 x) { return as<float>((unsigned)x.bits << 16); }
static inline float to_float(fp16 x) {  // the exponent of a float is 112 more; the compiler's own conversion is slow
    const float size = as<float>((x.bits & 0x7fff) << 13) * 0x1p112f;
    const float known = (x.bits & 0x7c00) == 0x7c00 ? as<float>((x.bits & 0x7fff) << 13 | 0x7f800000) : size;
    return x.bits & 0x8000 ? -known : known;
}
static inline float to_float(fp8 x) {
    const int mantissa = x.bits & 7, exponent = x.bits >> 3 & 15;
    if ((x.bits & 0x7f) == 0x7f) return NAN;
    return (x.bits & 0x80 ? -1 : 1) * (exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9));
}
static inline void from_float(float x, float& y) { y = x; }
static inline void from_float(float x, fp16& y) { y.bits = as<unsigned short>((_Float16)x); }
static inline void from_float(float x, bf16& y) {
    unsigned u = as<unsigned>(x);
    y.bits = x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
template <class T> static inline unsigned pack2(float x, float y, T) {
    T a, b;
    from_float(x, a), from_float(y, b);
    return a.bits | (unsigned)b.bits << 16;
}
#define LOG2_E 1.4426950408889634f
static inline float fast_exp(float x) { return expf(x); }
static inline float fast_exp2(float x) { return exp2f(x); }

// ---------------------------------------------------------------- fibres

enum { MOST_THREADS = 512, STACK = 1 << 16 };
static struct Fibre { ucontext_t start; jmp_buf here; char* stack; bool begun, done; int waits; } fibres[MOST_THREADS];
static jmp_buf scheduler;
static int running, threads, reversed;
static void (*body)();

static jmp_buf launcher;
static const char* fault;
[[noreturn]] static void stop(const char* why) {
    fault = why;
    _longjmp(launcher, 1);
}

enum { FREE, WARP, ALL };
#define OFTEN __attribute__((optimize("O2")))  // a function that runs so often that it is worth the time to compile
OFTEN static void wait_for(int what) {
    fibres[running].waits = what;
    if (!_setjmp(fibres[running].here)) _longjmp(scheduler, 1);
}
static void entry() {  // a fibre runs a block after the other: to start one takes two calls of the system
    for (;;) {
        body();
        fibres[running].done = true;
        wait_for(FREE);
    }
}
OFTEN static void resume(int k) {
    running = k, threadIdx = {(unsigned)k, 0, 0}, fibres[k].waits = FREE;
    if (_setjmp(scheduler)) return;
    if (fibres[k].begun) _longjmp(fibres[k].here, 1);
    fibres[k].begun = true;
    setcontext(&fibres[k].start);
}
// Runs a block: warp by warp, each as far as it gets without the others.
OFTEN static void run_block() {
    for (int k = 0; k < threads; ++k) {
        Fibre& f = fibres[k];
        f.done = false, f.waits = FREE;
        if (f.begun) continue;
        if (!f.stack) f.stack = (char*)malloc(STACK);
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = f.stack, f.start.uc_stack.ss_size = STACK, f.start.uc_link = nullptr;
        makecontext(&f.start, entry, 0);
    }
    for (bool all_done = false; !all_done;) {
        int done = 0;
        for (int n = 0; n < threads / 32; ++n) {
            const int first = 32 * (reversed ? threads / 32 - 1 - n : n);
            for (;;) {  // a warp goes on while its threads wait for each other only
                int warp = 0, all = 0, ended = 0;
                for (int n2 = 0; n2 < 32; ++n2) {
                    const int k = first + (reversed ? 31 - n2 : n2);
                    if (!fibres[k].done) resume(k);
                    warp += !fibres[k].done && fibres[k].waits == WARP;
                    all += !fibres[k].done && fibres[k].waits == ALL;
                    ended += fibres[k].done;
                }
                if (warp != 32 && all != 32 && ended != 32) stop("the threads of a warp wait for different things");
                done += ended == 32;
                if (warp != 32) break;
            }
        }
        if (done != 0 && done != threads / 32) stop("a barrier that not all warps reach");
        all_done = done != 0;
    }
}
static inline void __syncthreads() { wait_for(ALL); }
static inline void __syncwarp() { wait_for(WARP); }

// ---------------------------------------------------------------- warp-wide operations

template <class T> struct Slots { T of[MOST_THREADS]; };
template <class T> static T* exchange(T value) {  // everybody's value; two rounds, so that none is overwritten early
    static Slots<T> slots[2];
    static unsigned turn[MOST_THREADS];
    T* mine = slots[turn[running]++ % 2].of;
    mine[running] = value;
    wait_for(WARP);
    return mine + running / 32 * 32;
}
template <int LANES> static float lanes_max(float x) {
    float* all = exchange(x) + running % 32 / LANES * LANES;
    for (int k = 0; k < LANES; ++k) x = fmaxf(x, all[k]);
    return x;
}
template <int LANES> static float lanes_sum(float x) {
    float *all = exchange(x) + running % 32 / LANES * LANES, sum = 0;
    for (int k = 0; k < LANES; ++k) sum += all[k];
    return sum;
}
static inline unsigned long long warp_sum(unsigned long long x) {
    unsigned long long *all = exchange(x), sum = 0;
    for (int k = 0; k < 32; ++k) sum += all[k];
    return sum;
}
static inline void atomicAdd(unsigned long long* total, unsigned long long x) { *total += x; }

static inline void ldmatrix_any(unsigned (&r)[4], const void* row, bool transposed) {
    const unsigned short** rows = (const unsigned short**)exchange((const void*)row);
    if ((size_t)row % 16) stop("ldmatrix of a row that does not start at 16 bytes");
    const int lane = running % 32;
    for (int m = 0; m < 4; ++m) {
        const int a = lane / 4, b = lane % 4 * 2;
        const unsigned low = transposed ? rows[m * 8 + b][a] : rows[m * 8 + a][b];
        const unsigned high = transposed ? rows[m * 8 + b + 1][a] : rows[m * 8 + a][b + 1];
        r[m] = low | high << 16;
    }
}
static inline void ldmatrix(unsigned (&r)[4], const void* row) { ldmatrix_any(r, row, false); }
static inline void ldmatrix_transposed(unsigned (&r)[4], const void* row) { ldmatrix_any(r, row, true); }

struct Fragments { unsigned a[4], b[2]; };
template <class T> static void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T) {
    Fragments* all = exchange(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
    const int g = running % 32 / 4, t = running % 4;
    for (int part = 0; part < 4; ++part) {
        const int row = g + part / 2 * 8, column = t * 2 + part % 2;
        for (int k = 0; k < 16; ++k) {
            const unsigned x = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2];
            const unsigned y = all[column * 4 + k % 8 / 2].b[k / 8];
            c[part] += to_float(T{(unsigned short)(x >> k % 2 * 16)}) * to_float(T{(unsigned short)(y >> k % 2 * 16)});
        }
    }
}

// ---------------------------------------------------------------- HBM

// The requests of warps, as the hardware counts them: with IOSIM_REQUESTS, copies say which piece a lane moves
// (on_cpu.py). Lanes of a warp that move the same word of their pieces in the same turn make one request.
static int piece_row[MOST_THREADS], piece[MOST_THREADS], accesses[MOST_THREADS], copy_number[MOST_THREADS];
static inline void new_copy() { ++copy_number[running]; }
static inline void at_piece(int r0, int e) { piece_row[running] = r0, piece[running] = e, accesses[running] = 0; }

struct Request { int launch, block, warp, copy, row, group, turn, sector; };
struct Requests {  // a list that grows
    Request* list;
    long long count, room;
    void add(Request one) {
        if (count == room) list = (Request*)realloc(list, (room = 2 * room + 1024) * sizeof(Request));
        list[count++] = one;
    }
};
struct Region {
    const char* start;
    long long bytes;
    int word;
    long long reads, writes;
};
static Requests asked[32][2];  // of each region: reads, then writes
static Region regions[32];
static int region_count, launch_number;

static Region& region(const void* address, int bytes) {
    static int last;
    for (int n = 0; n < region_count; ++n) {
        const int k = (last + n) % region_count;
        const long long offset = (const char*)address - regions[k].start;
        if (offset >= 0 && offset + bytes <= regions[k].bytes) return regions[last = k];
    }
    stop("an access outside of all tensors");
}
static Region& request(const void* address, int bytes, bool writes) {
    Region& found = region(address, bytes);
#ifdef IOSIM_REQUESTS
    const int block = blockIdx.y << 12 | blockIdx.x, turn = accesses[running]++ << 1 | (bytes == 16);
    const int sector = ((const char*)address - found.start) / 32;
    asked[&found - regions][writes].add({launch_number, block, running / 32, copy_number[running],
                                         piece_row[running], piece[running] / 32, turn, sector});
#endif
    return found;
}
template <class T> static T hbm_read(const T* p) { return ++request(p, sizeof(T), false).reads, *p; }
template <class T> static void hbm_write(T* p, T value) { ++request(p, sizeof(T), true).writes, *p = value; }
template <class T> static Raw16 hbm_read16(const T* p) {
    if ((size_t)p % 16) stop("a read of 16 bytes that is not aligned");
    request(p, 16, false).reads += 16 / sizeof(T);
    return *reinterpret_cast<const Raw16*>(p);
}
template <class T> static void hbm_write16(T* p, Raw16 value) {
    if ((size_t)p % 16) stop("a write of 16 bytes that is not aligned");
    request(p, 16, true).writes += 16 / sizeof(T);
    *reinterpret_cast<Raw16*>(p) = value;
}

static unsigned table_read(const unsigned* p) {  // of a mask; small tables are constants, and no load reads them
    for (int k = 0; k < region_count; ++k)
        if ((const char*)p >= regions[k].start && (const char*)p < regions[k].start + regions[k].bytes) return hbm_read(p);
    return *p;
}

// Copies land when they are waited for, not earlier: who reads too soon reads what was there before. In reversed order
// they land at once: who still needs what was there before loses it.
struct Copy { void* to; const void* from; };
struct Copies { Copy list[4096]; int ends[64]; int count, groups; };
static Copies copies[MOST_THREADS];
template <class T> static void copy16_async(T* sram, const T* hbm) {
    if ((size_t)hbm % 16 || (size_t)sram % 16) stop("a copy of 16 bytes that is not aligned");
    request(hbm, 16, false).reads += 16 / sizeof(T);
    if (reversed) memcpy(sram, hbm, 16);
    Copies& mine = copies[running];
    if (mine.count == 4096) stop("too many copies under way");
    mine.list[mine.count++] = {sram, hbm};
}
static inline void copies_commit() { copies[running].ends[copies[running].groups++] = copies[running].count; }
template <int STILL> static void copies_done() {
    Copies& mine = copies[running];
    const int landing = mine.groups - STILL;
    if (landing <= 0) return;
    const int count = mine.ends[landing - 1];
    for (int k = 0; k < count && !reversed; ++k) memcpy(mine.list[k].to, mine.list[k].from, 16);
    memmove(mine.list, mine.list + count, (mine.count - count) * sizeof(Copy));
    mine.count -= count;
    for (int k = landing; k < mine.groups; ++k) mine.ends[k - landing] = mine.ends[k] - count;
    mine.groups -= landing;
}

// ---------------------------------------------------------------- launches

static Raw16* shared;  // every kernel says `extern __shared__ Raw16 shared[]`; the tests drop that line

// Runs `kernel` for every block; shared memory of exactly `bytes`, poisoned with NaN, with a guard behind it.
extern "C" void announce(const void* start, long long bytes, int word) {
    asked[region_count][0].count = asked[region_count][1].count = 0;
    regions[region_count++] = {(const char*)start, bytes, word};
}
extern "C" void forget_all() { region_count = 0; }
extern "C" long long moved(int k, int writes) { return writes ? regions[k].writes : regions[k].reads; }

// The requests of a tensor: a row from each lane, with the sector that it touches.
extern "C" const Requests* requests(int k, int writes) { return &asked[k][writes]; }

struct Any {  // an argument of a kernel
    void* pointer;
    template <class T> operator T*() const { return (T*)pointer; }
};

// -> what went wrong, or null
static const char* launch(void (*kernel)(), int grid_x, int grid_y, int block, int bytes, int backwards) {
    enum { GUARD = 256 };
    char* memory = (char*)aligned_alloc(16, (bytes + GUARD + 15) / 16 * 16);
    shared = (Raw16*)memory, threads = block, reversed = backwards, body = kernel, fault = nullptr;
    ++launch_number;
    if (_setjmp(launcher)) {
        for (Fibre& f : fibres) f.begun = false;  // they stopped in the middle of a block
        return fault;
    }
    for (unsigned y = 0; y < (unsigned)grid_y; ++y)
        for (unsigned n = 0; n < (unsigned)grid_x; ++n) {
            memset(memory, 0xff, bytes + GUARD);
            for (int k = 0; k < threads; ++k) copies[k].count = copies[k].groups = 0;
            blockIdx = {backwards ? grid_x - 1 - n : n, y, 0};
            run_block();
            for (int k = 0; k < GUARD; ++k)
                if ((unsigned char)memory[bytes + k] != 0xff) stop("a write behind the shared memory");
        }
    free(memory);
    return nullptr;
}
