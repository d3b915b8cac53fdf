// Blocks in shared memory, the teams of threads that own their rows, copies from and to HBM, and counters of words.
#pragma once

// Words of type int, which are entries of a table.
DEVICE float to_float(int x) { return (float)x; }
DEVICE void from_float(float x, int& result) { result = (int)x; }
// E4M3, rounded to nearest even; what is larger than 448 becomes 448. Below 2^-6 words are multiples of 2^-9: adding 2^23
// rounds them.
DEVICE void from_float(float x, fp8& result) {
    const float size = fminf(fabsf(x), 448.0f);
    const unsigned word = __float_as_uint(size);
    const unsigned normal = ((word + 0x7ffff + (word >> 20 & 1)) >> 20) - 960;
    const unsigned small = __float_as_uint(size * 512.0f + 8388608.0f) & 15;
    const unsigned bits = x != x ? 0x7f : size < 0.015625f ? small : normal;
    result.bits = (unsigned char)(bits | (__float_as_uint(x) >> 31 << 7));
}

// 16 bytes as floats, and back.
DEVICE void unpack(Raw16 raw, float* x, float) {
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = __uint_as_float(raw.word[k]);
}
DEVICE void unpack(Raw16 raw, float* x, int) {  // numbers below 2^24 are exact
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = (float)(int)raw.word[k];
}
template <class T> DEVICE void unpack(Raw16 raw, float* x, T) {
#pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = to_float(T{(unsigned short)(raw.word[k / 2] >> k % 2 * 16)});
}
DEVICE void unpack(Raw16 raw, float* x, fp8) {  // 16 words
#pragma unroll
    for (int k = 0; k < 16; ++k) x[k] = to_float(fp8{(unsigned char)(raw.word[k / 4] >> k % 4 * 8)});
}
DEVICE Raw16 packed(const float* x, float) {
    Raw16 raw;
#pragma unroll
    for (int k = 0; k < 4; ++k) raw.word[k] = __float_as_uint(x[k]);
    return raw;
}
DEVICE Raw16 packed(const float* x, int) {
    Raw16 raw;
#pragma unroll
    for (int k = 0; k < 4; ++k) raw.word[k] = (unsigned)(int)x[k];
    return raw;
}
DEVICE Raw16 packed(const float* x, fp8) {  // 16 words
    Raw16 raw;
#pragma unroll
    for (int k = 0; k < 4; ++k) raw.word[k] = 0;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        fp8 word;
        from_float(x[k], word);
        raw.word[k / 4] |= (unsigned)word.bits << k % 4 * 8;
    }
    return raw;
}
template <class T> DEVICE Raw16 packed(const float* x, T) {
    Raw16 raw;
#pragma unroll
    for (int k = 0; k < 4; ++k) raw.word[k] = pack2(x[2 * k], x[2 * k + 1], T());
    return raw;
}

// A thread block of ALL threads, in teams of THREADS: each is a warp, or there is one team. Teams own the rows of every
// block in turn, ROWS consecutive rows each. A step that touches only its team's rows needs no barrier between teams.
// MARGINS: blocks are padded to 16 x 16 for the tensor cores, and loads fill the margins with zeros.
template <int ALL, int THREADS, int ROWS, bool MARGINS> struct Teams {
    static constexpr int threads = THREADS, teams = ALL / THREADS, rows = ROWS;
    static constexpr bool margins = MARGINS;
    static DEVICE int index() { return teams == 1 ? 0 : threadIdx.x / THREADS; }
    static DEVICE int lane() { return teams == 1 ? threadIdx.x : threadIdx.x % THREADS; }
    static DEVICE void sync() {
        if (THREADS == 32) __syncwarp();
        else __syncthreads();
    }
};

// A block of R x C words, of which rows x cols are in use. Rows are not padded. If a row consists of 16-byte chunks,
// their order differs from row to row: the number of a chunk is XORed with the reversed bits of the row. So a warp that
// reads a column of chunks (ldmatrix), 4 rows of 8 bytes or 2 rows of 64 bytes uses every bank once. In long rows
// neighbouring chunks are swapped in every other group of 8. So 8 lanes that each convert two chunks of floats use
// every bank once as well.
template <class T, int R, int C, class TEAM> struct Block {
    using type = T;
    using team = TEAM;
    static constexpr int extent_rows = R, extent_cols = C;
    static constexpr int chunks = C * sizeof(T) % 16 == 0 ? C * sizeof(T) / 16 : 0;
    static constexpr int V = chunks ? 16 / sizeof(T) : 1;  // words that are read or written together
    static constexpr int group = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : chunks % 2 == 0 ? 2 : 1;
    static constexpr bool in_pairs = chunks >= 128 && chunks % 16 == 0 && sizeof(T) == 4;

    T* data;
    int rows, cols, first;
    DEVICE Block(void* sram, int rows, int cols, int first = 0)
        : data(static_cast<T*>(sram)), rows(rows), cols(cols), first(first) {}

    DEVICE static int key(int r) {
        const int k = r / (8 / group);
        return group == 8 ? (k & 1) << 2 | (k & 2) | (k >> 2 & 1) : group == 4 ? (k & 1) << 1 | (k >> 1 & 1) : k & 1;
    }
    DEVICE T* at(int r, int c) const {
        r += first;
        if (chunks == 0 || group == 1) return data + r * C + c;
        const int pair = in_pairs ? c / V >> 3 & 1 : 0;
        return data + r * C + ((c / V ^ key(r) ^ pair) * V | c % V);
    }
    DEVICE float get(int r, int c = 0) const { return to_float(*at(r, c)); }
    DEVICE void set(int r, int c, float x) const { from_float(x, *at(r, c)); }

    // V words from column c, a multiple of V. Words beyond `cols` may be anything, but belong to this block.
    DEVICE void read(int r, int c, float (&x)[V]) const {
        if constexpr (V == 1) x[0] = get(r, c);
        else unpack(*reinterpret_cast<const Raw16*>(at(r, c)), x, T());
    }
    DEVICE void write(int r, int c, const float (&x)[V]) const {
        if constexpr (V == 1) set(r, c, x[0]);
        else *reinterpret_cast<Raw16*>(at(r, c)) = packed(x, T());
    }
    // `W` words from column c, a multiple of W.
    template <int W> DEVICE void read_words(int r, int c, float (&x)[W]) const {
#pragma unroll
        for (int k = 0; k < W; ++k) x[k] = to_float(at(r, c + k / V * V)[k % V]);
    }
};

// f(r, c) for every piece of W words in those of the first `rows` rows that this team owns. Neighbouring lanes get
// neighbouring pieces.
template <int W, class B, class F> DEVICE void own_pieces(const B&, int rows, F f) {
    using Team = typename B::team;
    constexpr int pieces = (B::extent_cols + W - 1) / W;
    for (int r0 = Team::index() * Team::rows; r0 < rows; r0 += Team::teams * Team::rows) {
        const int here = min(Team::rows, rows - r0) * pieces;
        for (int e = Team::lane(); e < here; e += Team::threads) f(r0 + e / pieces, e % pieces * W);
    }
}

// The row and the column of piece e, if each of ROWS rows has PIECES. With one row the compiler sees that it is row 0.
template <int PIECES, int ROWS> DEVICE int row_of(int e) { return ROWS == 1 ? 0 : e / PIECES; }
template <int PIECES, int ROWS> DEVICE int column_of(int e) { return ROWS == 1 ? e : e % PIECES; }

// As own_pieces for all rows of the block. The loop is unrolled, so that many accesses are under way at the same time.
template <int W, class B, class F> DEVICE void all_pieces(const B&, F f) {
    using Team = typename B::team;
    constexpr int rows = Team::rows < B::extent_rows ? Team::rows : B::extent_rows;
    constexpr int pieces = B::extent_cols / W, here = rows * pieces, turns = here / Team::threads;
    static_assert(B::extent_rows % rows == 0 && B::extent_cols % W == 0, "whole rows of teams, whole pieces");
    for (int r0 = Team::index() * rows; r0 < B::extent_rows; r0 += Team::teams * rows) {
        const int lane = Team::lane();
#pragma unroll 4
        for (int k = 0; k < turns; ++k) {
            const int e = k * Team::threads + lane;
            f(r0 + row_of<pieces, rows>(e), column_of<pieces, rows>(e) * W);
        }
        if (here % Team::threads) {
            const int e = turns * Team::threads + lane;
            if (e < here) f(r0 + row_of<pieces, rows>(e), column_of<pieces, rows>(e) * W);
        }
    }
}

// `divides`: all_pieces can be used. `is_whole`: the whole block is in use; the compiler knows where tiles divide their
// axis.
template <class B> DEVICE constexpr bool divides() {
    return B::extent_rows && B::extent_rows % (B::team::rows < B::extent_rows ? B::team::rows : B::extent_rows) == 0;
}
template <class B> DEVICE bool is_whole(const B& block) {
    return block.rows == B::extent_rows && block.cols == B::extent_cols;
}

// The number of words that this thread moved. It does nothing unless compiled with IOSIM_COUNT.
struct Counter {
#ifdef IOSIM_COUNT
    unsigned long long words = 0;
    DEVICE void add(int n) { words += n; }
    DEVICE void flush(unsigned long long* total) const {
        const unsigned long long sum = warp_sum(words);
        if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
    }
#else
    DEVICE void add(int) {}
    DEVICE void flush(unsigned long long*) const {}
#endif
};

// The words that a copy moves at once: as many as fill 16 bytes in HBM and in the block, or one.
template <bool ALIGNED, class B, class G> DEVICE constexpr int copy_width() {
    constexpr int wide = 16 / sizeof(G) > B::V ? 16 / sizeof(G) : B::V;
    return ALIGNED && B::V > 1 && B::extent_cols % wide == 0 ? wide : 1;
}
template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };

template <class T> DEVICE void copy_word(T& to, T from) { to = from; }
template <class T, class G> DEVICE void copy_word(T& to, G from) { from_float(to_float(from), to); }

// W words from HBM to a block. The copy is asynchronous if the words need no conversion.
template <int W, class B, class G> DEVICE void load_piece(const B& block, int r, int c, const G* from) {
    using T = typename B::type;
    if constexpr (Same<T, G>::value) copy16_async(block.at(r, c), from);
    else {
        constexpr int UNIT = 16 / sizeof(G);
        float x[W];
#pragma unroll
        for (int k = 0; k < W; k += UNIT) unpack(hbm_read16(from + k), x + k, G());
#pragma unroll
        for (int k = 0; k < W; k += B::V) *reinterpret_cast<Raw16*>(block.at(r, c + k)) = packed(x + k, T());
    }
}

// W words of a margin.
template <int W, class B> DEVICE void zero_piece(const B& block, int r, int c) {
    const float zeros[B::V] = {};
    if (B::team::margins)
        for (int k = 0; k < W; k += B::V) block.write(r, c + k, zeros);
}

template <int W, class B, class G> DEVICE void store_piece(const B& block, int r, int c, G* to) {
    constexpr int UNIT = 16 / sizeof(G);
    float x[W];
#pragma unroll
    for (int k = 0; k < W; k += B::V)
        unpack(*reinterpret_cast<const Raw16*>(block.at(r, c + k)), x + k, typename B::type());
#pragma unroll
    for (int k = 0; k < W; k += UNIT) hbm_write16(to + k, packed(x + k, G()));
}

// HBM -> SRAM: `hbm` is the tile's first word, and rows are `stride` words apart. ALIGNED: every row starts at a
// multiple of 16 bytes.
template <bool ALIGNED, class B, class G> DEVICE void load(const B& block, const G* hbm, long long stride, Counter& n) {
    constexpr int W = copy_width<ALIGNED, B, G>();
    if constexpr (W > 1 && divides<B>())
        if (is_whole(block))
            return all_pieces<W>(block, [&](int r, int c) {
                n.add(W);
                load_piece<W>(block, r, c, hbm + r * stride + c);
            });
    own_pieces<W>(block, B::team::margins ? B::extent_rows : block.rows, [&](int r, int c) {
        const int inside = r < block.rows ? min(W, block.cols - c) : 0;
        const G* from = hbm + r * stride + c;
        if (inside > 0) n.add(inside);
        if constexpr (W > 1) {
            if (inside == W) return load_piece<W>(block, r, c, from);
            if (inside <= 0) return zero_piece<W>(block, r, c);
        }
#pragma unroll 1
        for (int k = 0; k < W; ++k) {
            if (k < inside) copy_word(*block.at(r, c + k), hbm_read(from + k));
            else if (B::team::margins) block.set(r, c + k, 0.0f);
        }
    });
}

// SRAM -> HBM, as `load`.
template <bool ALIGNED, class B, class G> DEVICE void store(const B& block, G* hbm, long long stride, Counter& n) {
    constexpr int W = copy_width<ALIGNED, B, G>();
    if constexpr (W > 1 && divides<B>())
        if (is_whole(block))
            return all_pieces<W>(block, [&](int r, int c) {
                n.add(W);
                store_piece<W>(block, r, c, hbm + r * stride + c);
            });
    own_pieces<W>(block, block.rows, [&](int r, int c) {
        const int inside = min(W, block.cols - c);
        G* to = hbm + r * stride + c;
        if (inside > 0) n.add(inside);
        if constexpr (W > 1)
            if (inside == W) return store_piece<W>(block, r, c, to);
#pragma unroll 1
        for (int k = 0; k < inside; ++k) {
            G word;
            from_float(block.get(r, c + k), word);
            hbm_write(to + k, word);
        }
    });
}

// Bit `index` of a table of the mask's tiles or tokens.
DEVICE bool bit(const unsigned* table, long long index) { return table[index >> 5] >> (index & 31) & 1; }
