// Runs CUDA kernels that were compiled with cuda_on_cpu.h, and writes down what they do to memory.
//
// A block's threads are fibers of one process; processes share the blocks of a grid between them. A fiber runs until it
// reaches a barrier, a warp operation or its end. The compiler calls a hook (__tsan_read4, ...) at every load and store;
// the builder has given each such call a number, its site. Accesses of a warp's lanes are put together into requests
// when all of them wait, counted, and forgotten.
//
// Usage: program JOB-FILE. The job file (layout: run.py) holds the launches and all device memory, and is changed in
// place; counts go to JOB-FILE.<kind>.<process>.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/getsect.h>
#include <mach-o/ldsyms.h>
#define SYMBOL "_"
#else
#define SYMBOL ""
#endif
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct {
    u32 x, y, z;
} uint3;

// ---- made by the builder, beside the kernels -------------------------------------------------------------------------
extern void (*const fmha_kernels[])(void** arguments);
extern const u64 fmha_statics[];  // address, bytes of each `__shared__` variable with a size; 0 at the end
enum { MAX_DEPTH = 8 };
extern const u16 fmha_loops[][MAX_DEPTH];  // of each site: the loops that it is in, from the outermost; 0: no further one
extern char fmha_dynamic[];       // what `extern __shared__` names
enum { FLOP_KINDS = 5 };
extern u64 fmha_flops[][FLOP_KINDS];  // by line of the source
extern const u64 fmha_flop_lines;

// ---- the job file ------------------------------------------------------------------------------------------------------
enum { TRACE = 1, CHECK = 2, REVERSED = 4, GRAIN_BIT = 4 };  // from that bit on: how small accesses are, see `grain_bits`
enum { MAGIC = 0x464d4841, MAX_PROCESSES = 64 };
typedef struct {
    u64 magic, buffers, launches, arena_at, arena_bytes, processes, flags, buffers_at, launches_at, arguments_at, slots_at;
    u64 detail_launch, detail_block, detail_first, detail_last, detail_warp;  // which requests are written down lane by lane
    u64 saved, saved_at, blocks, blocks_at;                                   // slots saved at each barrier; blocks to run
    u64 next_block, stop, culprit;  // culprit: the process that ended badly, where it was not the first
    u64 where[MAX_PROCESSES][4];    // launch, block, thread, site that each process is at; thread NOBODY: at none
} Job;
typedef struct {
    u64 offset, nbytes, is_input;
} Buffer;
typedef struct {
    u64 function, grid, block, smem, first_argument, arguments, first_slot, slots;
} Launch;
typedef struct {
    u64 offset, nbytes;
} Span;
typedef struct {
    u64 kind, value;  // 0: offset in the arena, 1: null, 2: the bits of a 4-byte number
} Argument;

// ---- what is written -----------------------------------------------------------------------------------------------------
typedef struct {
    u32 launch, block, interval, site, region, widest;
    u64 requests, lanes, nbytes, sectors, ideal_sectors, wavefronts, ideal_wavefronts, first, last;
} Row;
typedef struct {
    u32 launch, block, interval, line;
} Interval;
typedef struct {
    u32 kind, launch, block, thread, other_block, other_thread, site, other_site, region, count;
    u64 at;
} Finding;
typedef struct {
    u32 launch, block, interval, line;
    u64 count[FLOP_KINDS];
} Flops;
typedef struct {
    u32 interval, site, region, lanes;
    u32 at[32];
} Request;
enum { ROWS, INTERVALS, FINDINGS, FLOPS, REQUESTS, SAVED, KINDS };
static const char* const KIND_NAMES[] = {"rows", "intervals", "findings", "flops", "requests", "saved"};
enum {
    OUT_OF_BOUNDS = 1, BEYOND_SMEM, UNWRITTEN, RACE_WRITE_READ, RACE_READ_WRITE, RACE_WRITE_WRITE, INPUT_WRITTEN,
    BARRIER_MISSED, BARRIERS_DIFFER, WARP_WAITS, NULL_POINTER, MISALIGNED
};
#define NOBODY (~0ull)

// ---- fibers ----------------------------------------------------------------------------------------------------------------
void fmha_switch(void** from, void* to);
#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.globl " SYMBOL "fmha_switch\n" SYMBOL "fmha_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  popq %rdx\n  jmpq *%rdx\n");  // not `ret`: the processor would predict the wrong way back
static void* prepared(char* top, void (*begin)(void)) {
    u64* sp = (u64*)top;
    *--sp = 0;
    *--sp = (u64)begin;
    for (int i = 0; i < 6; i++) *--sp = 0;
    return sp;
}
#elif defined(__aarch64__)
__asm__(
    ".text\n.p2align 4\n.globl " SYMBOL "fmha_switch\n" SYMBOL "fmha_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  br x30\n");
static void* prepared(char* top, void (*begin)(void)) {
    u64* sp = (u64*)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (u64)begin;
    return sp;
}
#else
#error "fibers are written for x86-64 and arm64"
#endif

enum { READY, AT_BARRIER, IN_WARP, LOG_FULL, DONE };
enum { EXCHANGE, BALLOT, TOGETHER };
typedef struct {
    u32 at, what;  // what: site << 4 | log2 of the bytes << 1 | 1 if shared memory
} Access;
typedef struct {
    void* sp;
    Access *log, *next;
    u32 state, line, vote, operation;
    u32 warp_kind, mask;
    int source;
    u64 value, result;
    void* lane;
    void (*work)(void** lanes);
} Fiber;

enum { STACK = 64 * 1024, PAGE = 16 * 1024, LOG = 4096, MAX_THREADS = 1024, MAX_SITES = 1 << 16 };
enum { MAX_REGIONS = 64, DYNAMIC_ROOM = 232448, SHADOWED = 1 << 19, RED_ZONE = 256 };
#define NOWHERE 0xffffffffu  // no region
#define SEVERAL 0xffffffffu  // threads, or blocks
static Job* job;
static Buffer* buffers;
static char* arena;
static u64 arena_bytes;
static const Launch* launch;
static u32 launch_index, flags;
static u32 block_index, threads, warps, interval;
static Fiber fibers[MAX_THREADS];
static Fiber* now;  // the fiber that runs
static u32 now_thread;
static u64 now_stamp;  // of what it does to memory, see below
static void* scheduler_sp;
static char* stacks;
static FILE* files[KINDS];
static int is_broken;  // the block cannot go on

// Regions: device buffers, then parts of shared memory. Addresses are offsets in the arena, or in shared memory, where
// dynamic shared memory comes first and static variables follow.
typedef struct {
    u32 first, nbytes;
} Region;
static Region regions[MAX_REGIONS];
static u32 buffer_count, region_count, static_count, dynamic_bytes, smem_bytes;
static struct {
    uintptr_t address;
    u32 nbytes, at;
} statics[MAX_REGIONS];
static uintptr_t constants_first, constants_bytes;  // of the kernels, in the program itself
static u64* here;  // in the job file: where this process is

static void save(int kind, const void* what, size_t nbytes) {
    if (fwrite(what, 1, nbytes, files[kind]) != nbytes) _exit(7);
}

// ---- findings ----------------------------------------------------------------------------------------------------------------
enum { MAX_FINDINGS = 256 };
static Finding findings[MAX_FINDINGS];
static u32 finding_count;
static __attribute__((noinline)) void found_of(Finding new) {
    new.launch = launch_index;
    new.block = block_index;
    new.count = 1;
    for (u32 i = 0; i < finding_count; i++) {
        Finding* f = &findings[i];
        if (f->kind == new.kind && f->launch == launch_index && f->site == new.site && f->other_site == new.other_site &&
            f->region == new.region) {
            f->count++;
            return;
        }
    }
    if (finding_count < MAX_FINDINGS) findings[finding_count++] = new;
}
static void found(u32 kind, u32 thread, u32 other, u32 site, u32 other_site, u32 region, u64 at) {
    found_of((Finding){.kind = kind, .thread = thread, .other_block = block_index, .other_thread = other, .site = site,
                       .other_site = other_site, .region = region, .at = at});
}

// ---- shadows: who wrote and read last, for races and for reads of what nothing wrote ---------------------------------------
// A stamp says who did something and when; 0: nobody ever. From the highest bit: launch + 1 in 3 bits, block in 20,
// barriers that the block has passed in 13, warp operations that the warp has passed in 14, flags in 4, thread in 10.
// Counters wrap, so a stamp can be mistaken for another that is 8192 barriers older: nobody traces so long a block.
enum { WARP_BIT = 14, BARRIER_BIT = 28, BLOCK_BIT = 41, LAUNCH_BIT = 61, MAX_LAUNCHES = 7 };
// Whose doings one stamp stands for when it is not only that thread's: other lanes of its warp, other warps of its
// block, other blocks. Readers do not disturb each other, and neither do atomic operations.
#define LANES (1ull << 10)
#define WARPS (1ull << 11)
#define BLOCKS (1ull << 12)
#define ATOMIC (1ull << 13)
typedef struct {
    u64 wrote, read;  // an atomic operation, which leaves other atomic operations alone, counts as reading
    u16 write_site, read_site;
} Shadow;
static Shadow* shared_shadow;
static Shadow* device_shadow;  // of all processes
static u8* is_written;         // of device memory: a byte for each grain
static u32 grain_bits;         // a stamp stands for 1 << grain_bits bytes: the smallest access that the program has
static inline u32 grains(u32 nbytes) { return (nbytes + (1u << grain_bits) - 1) >> grain_bits; }
static u32 barriers, warp_operations[MAX_THREADS / 32];

static u64 stamp_of(u32 thread) {
    return (u64)(launch_index + 1) << LAUNCH_BIT | (u64)(block_index & 0xfffff) << BLOCK_BIT | (u64)(barriers & 0x1fff) << BARRIER_BIT |
           (u64)(warp_operations[thread / 32] & 0x3fff) << WARP_BIT | thread;
}

// Whether nothing orders what that stamp says and what happens now: no barrier, no warp operation, no end of a launch.
static inline int unordered(u64 s) {
    u64 x = s ^ now_stamp;
    if (x >> BARRIER_BIT) return !(x >> LAUNCH_BIT) && (s & BLOCKS || x >> BLOCK_BIT);
    if (s & (WARPS | BLOCKS)) return 1;
    if (!(x & 0x3ff) && !(s & LANES)) return 0;
    return (x & 0x3e0) || !(x >> WARP_BIT & 0x3fff);
}

// The stamp of what happens now, if it joins that of others rather than replacing it.
static inline u64 joined(u64 s) {
    u64 x = s ^ now_stamp, more = 0;
    if (x >> LAUNCH_BIT) return now_stamp;
    if (s & BLOCKS || x >> BLOCK_BIT) more |= BLOCKS;
    if (!(x >> BARRIER_BIT)) {
        if (s & WARPS || x & 0x3e0) more |= WARPS;
        else if (!(x >> WARP_BIT & 0x3fff) && (s & LANES || x & 0x3ff)) more |= LANES;
    }
    return now_stamp | more;
}

static u32 region_of(u32 at, int is_shared);

static __attribute__((noinline)) void race(u32 kind, u64 s, u32 at, int is_shared, u32 site, u32 other_site) {
    found_of((Finding){.kind = kind, .thread = now_thread, .site = site, .other_site = other_site, .at = at,
                       .other_block = s & BLOCKS ? SEVERAL : (u32)(s >> BLOCK_BIT) & 0xfffff,
                       .other_thread = s & (LANES | WARPS | BLOCKS) ? SEVERAL : (u32)s & 0x3ff,
                       .region = region_of(at, is_shared)});
}

enum { READ, WRITE, UPDATE };  // UPDATE: an atomic operation
static inline void check_stamp(Shadow* s, u32 at, int is_shared, int how, u32 site) {
    int is_atomic = (s->read & ATOMIC) != 0;
    if (__builtin_expect(unordered(s->wrote), 0))
        race(how == READ ? RACE_WRITE_READ : RACE_WRITE_WRITE, s->wrote, at, is_shared, site, s->write_site);
    if (how == WRITE || is_atomic != (how == UPDATE)) {
        if (__builtin_expect(unordered(s->read), 0))
            race(how == READ ? RACE_WRITE_READ : is_atomic ? RACE_WRITE_WRITE : RACE_READ_WRITE, s->read, at, is_shared, site, s->read_site);
    }
    if (how == WRITE) {
        s->wrote = now_stamp;
        s->write_site = (u16)site;
    } else {
        s->read = joined(s->read) | (how == UPDATE ? ATOMIC : 0);
        s->read_site = (u16)site;
    }
}

static inline void check_shared(u32 at, u32 nbytes, int how, u32 site) {
    for (Shadow *s = shared_shadow + (at >> grain_bits), *end = shared_shadow + grains(at + nbytes); s < end; s++) {
        // What another block or launch left there is not written, and orders nothing.
        if (__builtin_expect((s->wrote ^ now_stamp) >> BLOCK_BIT, 0)) {
            s->wrote = 0;
            if (how != WRITE) found(UNWRITTEN, now_thread, 0, site, 0, region_of(at, 1), at);
        }
        if (__builtin_expect((s->read ^ now_stamp) >> BLOCK_BIT, 0)) s->read = 0;
        check_stamp(s, at, 1, how, site);
    }
}

enum { LOCKS = 1024 };
static u32* locks;  // of device_shadow, between processes
static void check_device(u32 at, u32 nbytes, int how, u32 site) {
    u32 region = region_of(at, 0);
    int is_input = region < buffer_count && buffers[region].is_input;
    if (is_input && how != READ) found(INPUT_WRITTEN, now_thread, 0, site, 0, region, at);
    for (u32 w = at >> grain_bits, end = grains(at + nbytes); w < end; w++) {
        if (how != WRITE && !is_written[w]) found(UNWRITTEN, now_thread, 0, site, 0, region, at);
        if (is_input && how == READ) continue;  // there is nobody to race with
        u32* lock = &locks[w % LOCKS];
        while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) {}
        check_stamp(&device_shadow[w], at, 0, how, site);
        __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
        if (how != READ) is_written[w] = 1;
    }
}

// ---- the hooks ---------------------------------------------------------------------------------------------------------------
static void to_scheduler(u32 state) {
    Fiber* mine = now;
    mine->state = state;
    fmha_switch(&mine->sp, scheduler_sp);
}

// An address of no memory that the thread may use. What is told is its first byte outside of what it was meant for.
static __attribute__((noinline)) void elsewhere(uintptr_t address, u32 nbytes, int is_write, u32 site) {
    if (address - (uintptr_t)(stacks + (size_t)now_thread * STACK) < STACK) return;  // the thread's own: registers, arrays
    if (!is_write && address - constants_first < constants_bytes) return;
    u64 o = address - (uintptr_t)fmha_dynamic;
    if (address < 1 << 16) {
        found(NULL_POINTER, now_thread, 0, site, 0, NOWHERE, address);
    } else if (o < DYNAMIC_ROOM) {
        found(BEYOND_SMEM, now_thread, 0, site, 0, NOWHERE, o < dynamic_bytes ? dynamic_bytes : o);
    } else {  // perhaps beside dynamic shared memory, or beside a static variable
        u32 region = NOWHERE, kind = -o <= RED_ZONE ? BEYOND_SMEM : OUT_OF_BOUNDS;
        int64_t nearest = RED_ZONE, at = (int64_t)(kind == BEYOND_SMEM ? o : address - (uintptr_t)arena);
        for (u32 i = 0; i < static_count; i++) {
            int64_t inside = (int64_t)(address - statics[i].address), size = statics[i].nbytes;
            int64_t away = inside < 0 ? -inside : inside + (int64_t)nbytes - size;
            if (away >= nearest) continue;
            nearest = away;
            kind = OUT_OF_BOUNDS;
            region = region_count - static_count + i;
            at = statics[i].at + (inside >= 0 && inside < size ? size : inside);
        }
        found(kind, now_thread, 0, site, 0, region, (u64)at);
    }
    is_broken = 1;  // the access itself might crash or do harm: this block ends here
    to_scheduler(DONE);
}

static inline void note(u32 at, u32 lg, u32 site, u32 is_shared) {
    Fiber* f = now;
    if (__builtin_expect(f->next == f->log + LOG, 0)) to_scheduler(LOG_FULL);
    f->next->at = at;
    f->next->what = site << 4 | lg << 1 | is_shared;
    f->next++;
}

static inline __attribute__((always_inline)) void touch(const void* address, u32 nbytes, u32 lg, int how, u32 site) {
    if (!(flags & TRACE)) return;
    here[3] = site;
    uintptr_t a = (uintptr_t)address;
    u64 o = a - (uintptr_t)fmha_dynamic;
    if (o < dynamic_bytes && o + nbytes <= dynamic_bytes) {
        if (flags & CHECK) check_shared((u32)o, nbytes, how, site);
        note((u32)o, lg, site, 1);
        return;
    }
    o = a - (uintptr_t)arena;
    if (o < arena_bytes) {
        u32 region = region_of((u32)o, 0), end = region == NOWHERE ? 0 : regions[region].first + regions[region].nbytes;
        if ((u32)o + nbytes > end) found(OUT_OF_BOUNDS, now_thread, 0, site, 0, region, region == NOWHERE ? o : end);
        else if (flags & CHECK) check_device((u32)o, nbytes, how, site);
        note((u32)o, lg, site, 0);
        return;
    }
    for (u32 i = 0; i < static_count; i++) {
        o = a - statics[i].address;
        if (o < statics[i].nbytes && o + nbytes <= statics[i].nbytes) {
            if (flags & CHECK) check_shared(statics[i].at + (u32)o, nbytes, how, site);
            note(statics[i].at + (u32)o, lg, site, 1);
            return;
        }
    }
    elsewhere(a, nbytes, how != READ, site);
}

// An access that the source makes in one piece: its address must be a multiple of its size, or a GPU stops there.
static __attribute__((noinline)) void misaligned(u32 nbytes, u32 site) {
    found(MISALIGNED, now_thread, nbytes, site, 0, NOWHERE, 0);
    here[3] = site;
    is_broken = 1;
    to_scheduler(DONE);
}
static inline __attribute__((always_inline)) void touch_whole(const void* address, u32 nbytes, u32 lg, int how, u32 site) {
    if (__builtin_expect((uintptr_t)address & (nbytes - 1), 0) && flags & TRACE) misaligned(nbytes, site);
    touch(address, nbytes, lg, how, site);
}

// The builder hands each of these one argument more than the compiler knows of: the site. Plain accesses of numbers are
// by far the most and have code of their own; the rest share one function, which keeps the compile time down.
static __attribute__((noinline)) void touch_rare(const void* address, u32 nbytes, u32 lg, int how, u32 site, int is_whole) {
    if (is_whole) touch_whole(address, nbytes, lg, how, site);
    else touch(address, nbytes, lg, how, site);
}
#define HOOKS(n, lg, way)                                                                                        \
    void __tsan_read##n(void* p, u32 site) { way(p, n, lg, READ, site); }                                        \
    void __tsan_write##n(void* p, u32 site) { way(p, n, lg, WRITE, site); }                                      \
    void __tsan_unaligned_read##n(void* p, u32 site) { touch_rare(p, n, lg, READ, site, 0); }                    \
    void __tsan_unaligned_write##n(void* p, u32 site) { touch_rare(p, n, lg, WRITE, site, 0); }                  \
    void __tsan_volatile_read##n(void* p, u32 site) { touch_rare(p, n, lg, READ, site, 1); }                     \
    void __tsan_volatile_write##n(void* p, u32 site) { touch_rare(p, n, lg, WRITE, site, 1); }                   \
    void __tsan_unaligned_volatile_read##n(void* p, u32 site) { touch_rare(p, n, lg, READ, site, 0); }           \
    void __tsan_unaligned_volatile_write##n(void* p, u32 site) { touch_rare(p, n, lg, WRITE, site, 0); }
#define RARE(p, n, lg, how, site) touch_rare(p, n, lg, how, site, 1)
HOOKS(1, 0, RARE)
HOOKS(2, 1, RARE)
HOOKS(4, 2, touch_whole)
HOOKS(8, 3, RARE)
HOOKS(16, 4, RARE)
static void each_word(const char* p, size_t nbytes, int how, u32 site) {
    for (; nbytes >= 4; p += 4, nbytes -= 4) touch_rare(p, 4, 2, how, site, 0);
    for (; nbytes; p++, nbytes--) touch_rare(p, 1, 0, how, site, 0);
}
void __tsan_read_range(void* p, size_t n, u32 site) { each_word(p, n, READ, site); }
void __tsan_write_range(void* p, size_t n, u32 site) { each_word(p, n, WRITE, site); }
// A copy has two sites, one after the other: where it reads, and where it writes.
void* __tsan_memcpy(void* to, const void* from, size_t n, u32 site) {
    each_word(from, n, READ, site);
    each_word(to, n, WRITE, site + 1);
    return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n, u32 site) {
    each_word(from, n, READ, site);
    each_word(to, n, WRITE, site + 1);
    return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n, u32 site) {
    each_word(to, n, WRITE, site);
    return memset(to, value, n);
}
void __tsan_init(void) {}
void __tsan_func_entry(void* p) { (void)p; }
void __tsan_func_exit(void) {}
// g++ asks at every call whether an array of a class type, such as `__shared__ __half tile[64]`, has been constructed.
u8 __tsan_atomic8_load(const volatile u8* p, int order) { return (void)order, *p; }
u64 __tsan_atomic64_load(const volatile u64* p, int order) { return (void)order, *p; }
int __cxa_guard_acquire(u64* guard) { return !*(u8*)guard; }
void __cxa_guard_release(u64* guard) { *(u8*)guard = 1; }

// Atomic operations do not race with one another, but with plain accesses. Each counts as one store.
static void atomic_access(void* p, u32 site) { touch_rare(p, 4, 2, UPDATE, site, 1); }
float fmha_atomic_add_f32(float* p, float value, u32 site) {
    atomic_access(p, site);
    u32 old = __atomic_load_n((u32*)p, __ATOMIC_RELAXED), new_bits;
    float f;
    do {
        memcpy(&f, &old, 4);
        float sum = f + value;
        memcpy(&new_bits, &sum, 4);
    } while (!__atomic_compare_exchange_n((u32*)p, &old, new_bits, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return f;
}
static int combined(int old, int value, int operation) {
    switch (operation) {
        case 0: return (int)((u32)old + (u32)value);
        case 1: return old > value ? old : value;
        case 2: return old < value ? old : value;
        case 3: return (u32)old > (u32)value ? old : value;
        case 4: return (u32)old < (u32)value ? old : value;
        case 5: return old & value;
        case 6: return old | value;
        case 7: return old ^ value;
        default: return value;
    }
}
int fmha_atomic_i32(int* p, int value, int operation, u32 site) {
    atomic_access(p, site);
    int old = __atomic_load_n(p, __ATOMIC_RELAXED), made;
    do made = combined(old, value, operation);
    while (!__atomic_compare_exchange_n(p, &old, made, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
int fmha_atomic_cas(int* p, int expected, int value, u32 site) {
    atomic_access(p, site);
    __atomic_compare_exchange_n(p, &expected, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

// ---- who and where a thread is, barriers, warps ------------------------------------------------------------------------------
uint3 fmha_thread_idx(void) { return (uint3){now_thread, 0, 0}; }
uint3 fmha_block_idx(void) { return (uint3){block_index, 0, 0}; }
uint3 fmha_block_dim(void) { return (uint3){threads, 1, 1}; }
uint3 fmha_grid_dim(void) { return (uint3){(u32)launch->grid, 1, 1}; }

unsigned long long fmha_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

int fmha_barrier_vote(int predicate, int operation, u32 line) {
    now->line = line;
    now->vote = (u32)predicate;
    now->operation = (u32)operation;
    to_scheduler(AT_BARRIER);
    return (int)now->result;
}
void fmha_barrier(u32 line) {
    now->line = line;
    to_scheduler(AT_BARRIER);
}
static u64 in_warp(u32 kind, u32 mask, u64 value, int source, u32 line) {
    now->warp_kind = kind;
    now->mask = mask;
    now->value = value;
    now->source = source;
    now->line = line;
    to_scheduler(IN_WARP);
    return now->result;
}
u64 fmha_exchange(u32 mask, u64 value, int source, u32 line) { return in_warp(EXCHANGE, mask, value, source, line); }
u32 fmha_ballot(u32 mask, int predicate, u32 line) { return (u32)in_warp(BALLOT, mask, predicate != 0, 0, line); }
void fmha_warp_do(void (*work)(void** lanes), void* lane, u32 line) {
    now->work = work;
    now->lane = lane;
    in_warp(TOGETHER, 0xffffffffu, 0, 0, line);
}

// ---- copies under way (cp.async) -------------------------------------------------------------------------------------------
// What such a copy brings is there once its thread has waited for it: until then the place holds what nobody wrote.
typedef struct {
    void* to;
    u64 value[2];
    u32 group;
} Copy;
static struct {
    Copy* copies;
    u32 count, room, group;
} under_way[MAX_THREADS];

void fmha_copy_later(void* to, const void* value) {
    u32 t = now_thread;
    if (under_way[t].count == under_way[t].room) {
        under_way[t].room = under_way[t].room ? 2 * under_way[t].room : 64;
        under_way[t].copies = (Copy*)realloc(under_way[t].copies, under_way[t].room * sizeof(Copy));
        if (!under_way[t].copies) _exit(8);
    }
    Copy* copy = &under_way[t].copies[under_way[t].count++];
    copy->to = to;
    copy->group = under_way[t].group;
    memcpy(copy->value, value, sizeof copy->value);
}
void fmha_copies_issued(void) { under_way[now_thread].group++; }
void fmha_copies_done(u32 left) {  // all groups that were issued but for the last `left`
    u32 t = now_thread, kept = 0;
    for (u32 i = 0; i < under_way[t].count; i++) {
        Copy* copy = &under_way[t].copies[i];
        if (copy->group + left < under_way[t].group) memcpy(copy->to, copy->value, sizeof copy->value);
        else under_way[t].copies[kept++] = *copy;
    }
    under_way[t].count = kept;
}

static void take_logs(u32 warp);

// Lets go all lanes whose warp operation all lanes of its mask have reached; whether there were any.
static int resolve(u32 warp) {
    Fiber* lane = fibers + warp * 32;
    u32 lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32;
    int any = 0, is_together = 1;
    for (u32 l = 0; l < lanes; l++) is_together &= lane[l].state == IN_WARP || lane[l].state == DONE;
    if (is_together && flags & TRACE) take_logs(warp);
    for (u32 l = 0; l < lanes; l++) {
        if (lane[l].state != IN_WARP) continue;
        u32 mask = lane[l].mask, here = 0;
        int is_complete = 1;
        for (u32 k = 0; k < lanes; k++) {
            if (!(mask >> k & 1) || lane[k].state == DONE) continue;
            if (lane[k].state != IN_WARP || lane[k].mask != mask || lane[k].warp_kind != lane[l].warp_kind) is_complete = 0;
            else here |= 1u << k;
        }
        if (!is_complete) continue;
        u64 ballot = 0;
        void* each[32] = {0};
        for (u32 k = 0; k < lanes; k++)
            if (here >> k & 1) {
                if (lane[k].value) ballot |= 1ull << k;
                each[k] = lane[k].lane;
            }
        if (lane[l].warp_kind == TOGETHER) lane[l].work(each);
        for (u32 k = 0; k < lanes; k++) {
            if (!(here >> k & 1)) continue;
            u32 source = (u32)lane[k].source & 31;
            // What comes from a lane that takes no part is undefined: NaN, so that it is noticed.
            lane[k].result = lane[k].warp_kind == BALLOT ? ballot : here >> source & 1 ? lane[source].value : ~0ull;
        }
        for (u32 k = 0; k < lanes; k++)
            if (here >> k & 1) lane[k].state = READY;
        warp_operations[warp]++;
        any = 1;
    }
    return any;
}

// ---- from lanes' accesses to requests, and their counts --------------------------------------------------------------------------
typedef struct {
    Row row;
    u32 next;  // of the same site, another region
} Count;
static Count* counts;  // of the interval at hand
static u32 count_used, count_room;
static int is_detailed;  // whether requests are to be written down lane by lane
static u32 first_of[MAX_SITES * 2];  // site, space -> its first count + 1
static u32 touched[MAX_SITES * 2], touched_count;

static u32 region_of(u32 at, int is_shared) {
    static u32 last[2];
    Region* r = &regions[last[is_shared]];
    u32 first = is_shared ? buffer_count : 0, end = is_shared ? region_count : buffer_count;
    if (last[is_shared] >= first && last[is_shared] < end && at - r->first < r->nbytes) return last[is_shared];
    for (u32 i = first; i < end; i++)
        if (at - regions[i].first < regions[i].nbytes) return last[is_shared] = i;
    return NOWHERE;
}

static Row* count_of(u32 site, int is_shared, u32 region) {
    u32 key = site * 2 + (u32)is_shared;
    for (u32 i = first_of[key]; i; i = counts[i - 1].next)
        if (counts[i - 1].row.region == region) return &counts[i - 1].row;
    if (count_used == count_room) {
        count_room = count_room ? 2 * count_room : 256;
        counts = realloc(counts, count_room * sizeof *counts);
        if (!counts) _exit(8);
    }
    if (!first_of[key]) touched[touched_count++] = key;
    Count* made = &counts[count_used++];
    memset(made, 0, sizeof *made);
    made->row = (Row){.launch = launch_index, .block = block_index, .interval = interval, .site = site, .region = region, .first = ~0ull};
    made->next = first_of[key];
    first_of[key] = count_used;
    return &made->row;
}

static u32 sorted_unique(u32* v, u32 n) {
    for (u32 i = 1; i < n; i++) {
        u32 x = v[i], j = i;
        for (; j && v[j - 1] > x; j--) v[j] = v[j - 1];
        v[j] = x;
    }
    u32 m = 0;
    for (u32 i = 0; i < n; i++)
        if (!m || v[i] != v[m - 1]) v[m++] = v[i];
    return m;
}

// Cycles that shared memory needs for these words: the most different words in one of the 32 banks.
static u32 wavefronts_of(u32* word, u32 n) {
    u8 in_bank[32] = {0};
    u32 most = 1;
    n = sorted_unique(word, n);
    for (u32 i = 0; i < n; i++)
        if (++in_bank[word[i] & 31] > most) most = in_bank[word[i] & 31];
    return most;
}

// Whether lanes `first` to `last` want the same in pairs, each active one as its neighbour or each as the one two lanes away: then
// two groups of a wide access go together (see banks.py).
static int in_pairs(const u32* of, u32 first, u32 last) {
    int ok[2] = {1, 1};
    for (u32 l = first; l <= last; l++)
        for (u32 k = 0; k < 2; k++) {
            u32 other = of[l ^ (1 + k)];
            if (of[l] != ~0u && other != ~0u && of[l] != other) ok[k] = 0;
        }
    return ok[0] || ok[1];
}

static void count_request(u32 what, const u32* at, const u8* lane, u32 n) {
    u32 site = what >> 4, nbytes = 1u << (what >> 1 & 7);
    int is_shared = what & 1;
    u32 region = region_of(at[0], is_shared);
    Row* row = count_of(site, is_shared, region);
    u32 step = n > 1 ? at[1] - at[0] : 0, uneven = 0, low = at[0], high = at[0];
    for (u32 i = 1; i < n; i++) {
        uneven |= (at[i] - at[i - 1]) ^ step;
        low = at[i] < low ? at[i] : low;
        high = at[i] > high ? at[i] : high;
    }
    row->requests++;
    row->lanes += n;
    row->nbytes += (u64)n * nbytes;
    if (low < row->first) row->first = low;
    if (high + nbytes > row->last) row->last = high + nbytes;
    if (!is_shared) {
        u32 sector[64], m = 0, sectors, ideal;
        if (!uneven && (step == 0 || step == nbytes)) {
            u32 end = high + nbytes - 1;
            sectors = (end >> 5) - (low >> 5) + 1;
            ideal = ((step ? n * nbytes : nbytes) + 31) / 32;
        } else {
            u32 unit[32];
            for (u32 i = 0; i < n; i++) {
                unit[i] = at[i] / nbytes;
                sector[m++] = at[i] >> 5;
                if ((at[i] + nbytes - 1) >> 5 != at[i] >> 5) sector[m++] = (at[i] + nbytes - 1) >> 5;
            }
            sectors = sorted_unique(sector, m);
            ideal = (sorted_unique(unit, n) * nbytes + 31) / 32;
        }
        row->sectors += sectors;
        row->ideal_sectors += ideal;
        if (sectors > row->widest) row->widest = sectors;
    } else {
        u32 word[96], wavefronts = 0, ideal = 0, part = nbytes <= 4 ? 32 : nbytes == 8 ? 16 : 8;
        if (!uneven && nbytes == 4 && !(step & 3)) {
            u32 apart = step >> 2, banks = apart ? 32u >> (__builtin_ctz(apart) > 5 ? 5 : __builtin_ctz(apart)) : 32;
            wavefronts = apart ? (n + banks - 1) / banks : 1;
            ideal = 1;
        } else {
            u32 of[32], span = part < 32 ? 2 * part : 32, is_paired = 0;
            if (part < 32) {
                memset(of, 0xff, sizeof of);
                for (u32 i = 0; i < n; i++) of[lane[i]] = at[i];
                for (u32 first = 0; first < 32; first += span)
                    is_paired |= (u32)in_pairs(of, first, first + span - 1) << (first / span);
            }
            for (u32 i = 0; i < n; ideal++) {  // wide accesses go out half a warp, or a quarter, at a time, or two of them
                u32 m = 0, size = is_paired >> (lane[i] / span) & 1 ? span : part, group = lane[i] / size;
                for (; i < n && lane[i] / size == group; i++)
                    for (u32 w = at[i] >> 2; w <= (at[i] + nbytes - 1) >> 2; w++) word[m++] = w;
                wavefronts += wavefronts_of(word, m);
            }
        }
        row->wavefronts += wavefronts;
        row->ideal_wavefronts += ideal;
        u32 ways = (wavefronts + ideal - 1) / ideal;
        if (ways > row->widest) row->widest = ways;
    }
    if (is_detailed) {
        Request request = {interval, site, region, 0, {0}};
        for (u32 i = 0; i < n; i++) {
            request.lanes |= 1u << lane[i];
            request.at[lane[i]] = at[i];
        }
        save(REQUESTS, &request, sizeof request);
    }
}

// Where a lane is: a site, and how often it has come back to the head of each loop around it since its warp was together.
// is_next: the site is that of its next access; otherwise of its last.
typedef struct {
    u32 rounds[MAX_DEPTH], site, is_next;
} Way;
static Way ways[MAX_THREADS];
static u32 together_at[MAX_THREADS / 32];  // of a warp: the last site of what was done when its logs were used up
static u8 is_underway[MAX_THREADS / 32];   // its logs were not used up: its ways go on

static void go_on(Way* way, u32 site) {
    const u16 *from = fmha_loops[way->site], *to = fmha_loops[site];
    u32 same = 0;
    while (same < MAX_DEPTH && from[same] && from[same] == to[same]) same++;
    for (u32 k = same; k < MAX_DEPTH; k++) way->rounds[k] = 0;
    if (site <= way->site && same) way->rounds[same - 1]++;
    way->site = site;
}

// Whether a lane is behind another: in an earlier round of a loop that both are in, or else at what stands first.
static int is_behind(const Way* a, const Way* b) {
    const u16 *x = fmha_loops[a->site], *y = fmha_loops[b->site];
    for (u32 k = 0; k < MAX_DEPTH && x[k] && x[k] == y[k]; k++)
        if (a->rounds[k] != b->rounds[k]) return a->rounds[k] < b->rounds[k];
    return a->site < b->site;
}

// The lanes of a warp wait: what they did becomes requests. The warp goes through its program as the hardware does: of
// the accesses that come next in each lane, the one that is furthest behind is done, by all lanes that are there. So
// lanes that took a branch catch up with those that did not, a round of a loop is ended by all before one begins the
// next, and a loop is left by all together.
// Logs are used up, unless one was full: what a lane did beyond the last access in it has to wait for the rest.
static void take_logs(u32 warp) {
    Fiber* lane = fibers + warp * 32;
    u32 lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32, n = 0, shortest = LOG, i = 0;
    const Access *next[32], *end[32];
    u32 at[32];
    u8 number[32], who[32];
    is_detailed = launch_index == job->detail_launch && block_index == job->detail_block && warp == job->detail_warp &&
                  interval >= job->detail_first && interval <= job->detail_last;
    for (u32 l = 0; l < lanes; l++) {
        u32 m = (u32)(lane[l].next - lane[l].log);
        if (!m) continue;
        next[n] = lane[l].log;
        end[n] = lane[l].next;
        number[n++] = (u8)l;
        shortest = m < shortest ? m : shortest;
    }
    if (!n) return;
    if (is_underway[warp]) shortest = 0;
    Way all = {{0}, together_at[warp], 0};
    for (; i < shortest; i++) {  // most often all lanes go the same way
        u32 what = next[0]->what, differs = 0;
        for (u32 l = 0; l < n; l++) {
            at[l] = next[l]->at;
            differs |= next[l]->what ^ what;
        }
        if (differs) break;
        count_request(what, at, number, n);
        for (u32 l = 0; l < n; l++) next[l]++;
        go_on(&all, what >> 4);
    }
    if (!is_underway[warp])
        for (u32 l = 0; l < lanes; l++) ways[warp * 32 + l] = all;
    Way* way[32];
    for (u32 l = 0; l < n; l++) {
        way[l] = &ways[warp * 32 + number[l]];
        if (next[l] == end[l] || way[l]->is_next) continue;
        go_on(way[l], next[l]->what >> 4);
        way[l]->is_next = 1;
    }
    together_at[warp] = all.site;
    for (int is_open = 1;;) {
        u32 first = ~0u, m = 0;
        for (u32 l = 0; l < n; l++) {
            if (next[l] < end[l]) first = first == ~0u || is_behind(way[l], way[first]) ? l : first;
            else if (lane[number[l]].state == LOG_FULL) is_open = 0;
        }
        if (!is_open || first == ~0u) break;
        u32 what = next[first]->what;
        Way here = *way[first];
        for (u32 l = 0; l < n; l++) {
            if (next[l] == end[l] || next[l]->what != what || is_behind(&here, way[l])) continue;
            at[m] = next[l]++->at;
            who[m++] = number[l];
            way[l]->is_next = next[l] < end[l];
            if (way[l]->is_next) go_on(way[l], next[l]->what >> 4);
        }
        count_request(what, at, who, m);
        together_at[warp] = what >> 4;
    }
    is_underway[warp] = 0;
    for (u32 l = 0; l < n; l++) {
        Fiber* f = &lane[number[l]];
        size_t rest = (size_t)(end[l] - next[l]);
        if (rest || f->state == LOG_FULL) is_underway[warp] = 1;
        if (rest && next[l] != f->log) memmove(f->log, next[l], rest * sizeof *f->log);
        f->next = f->log + rest;
    }
}

static void end_interval(u32 line) {
    for (u32 t = 0; t < touched_count; t++) first_of[touched[t]] = 0;
    touched_count = 0;
    for (u32 i = 0; i < count_used; i++) save(ROWS, &counts[i].row, sizeof(Row));
    count_used = 0;
    Interval ended = {launch_index, block_index, interval, line};
    save(INTERVALS, &ended, sizeof ended);
    for (u32 l = 0; l < fmha_flop_lines; l++) {
        u64 any = 0;
        for (int k = 0; k < FLOP_KINDS; k++) any |= fmha_flops[l][k];
        if (!any) continue;
        Flops f = {launch_index, block_index, interval, l, {0}};
        memcpy(f.count, fmha_flops[l], sizeof f.count);
        save(FLOPS, &f, sizeof f);
        memset(fmha_flops[l], 0, sizeof f.count);
    }
    const Span* saved = (const Span*)((char*)job + job->saved_at);
    for (u64 s = 0; s < job->saved; s++) save(SAVED, fmha_dynamic + saved[s].offset, saved[s].nbytes);
}

// ---- blocks and launches --------------------------------------------------------------------------------------------------------
static void* argument_pointers[64];
static u64 argument_values[64];
static void begin_fiber(void) {
    fmha_kernels[launch->function](argument_pointers);
    to_scheduler(DONE);
    abort();
}

static void run_lane(u32 thread) {
    now = &fibers[thread];
    now_thread = thread;
    now_stamp = stamp_of(thread);
    here[2] = thread;
    fmha_switch(&scheduler_sp, now->sp);
}

static void run_block(u32 block) {
    int is_reversed = (flags & REVERSED) != 0;
    block_index = block;
    here[1] = block;
    is_broken = 0;
    barriers = 0;
    memset(warp_operations, 0, sizeof warp_operations);
    memset(together_at, 0, sizeof together_at);
    memset(is_underway, 0, sizeof is_underway);
    for (u32 t = 0; t < threads; t++) {
        Fiber* f = &fibers[t];
        Access* log = f->log;
        memset(f, 0, sizeof *f);
        f->log = f->next = log;
        under_way[t].count = under_way[t].group = 0;
        // Staggered, so that the hot ends of the stacks do not fall into one set of the processor's cache.
        char* top = stacks + (size_t)(t + 1) * STACK - t % 61 * 192;
        f->sp = prepared((char*)((uintptr_t)top & ~(uintptr_t)63), begin_fiber);
    }
    for (interval = 0;; interval++) {
        for (u32 k = 0; k < warps; k++) {
            u32 warp = is_reversed ? warps - 1 - k : k, first = warp * 32, end = first + 32 < threads ? first + 32 : threads;
            for (;;) {
                for (u32 i = first; i < end && !is_broken; i++) {
                    u32 t = is_reversed ? end - 1 - (i - first) : i;
                    if (fibers[t].state == READY) run_lane(t);
                }
                int is_full = 0, is_waiting = 0;
                for (u32 t = first; t < end; t++) {
                    is_full |= fibers[t].state == LOG_FULL;
                    is_waiting |= fibers[t].state == IN_WARP;
                }
                if (is_broken) break;
                if (is_full) {
                    take_logs(warp);
                    for (u32 t = first; t < end; t++)
                        if (fibers[t].state == LOG_FULL && fibers[t].next < fibers[t].log + LOG) fibers[t].state = READY;
                } else if (!is_waiting) {
                    break;
                } else if (!resolve(warp)) {
                    u32 stuck = first, absent = first;
                    while (fibers[stuck].state != IN_WARP) stuck++;
                    const Fiber* f = &fibers[stuck];
                    while (!(f->mask >> (absent - first) & 1) || fibers[absent].state == DONE ||
                           (fibers[absent].state == IN_WARP && fibers[absent].mask == f->mask && fibers[absent].warp_kind == f->warp_kind))
                        absent++;
                    found(WARP_WAITS, stuck, absent, 0, 0, fibers[absent].line, f->line);
                    is_broken = 1;
                    break;
                }
            }
            if (is_broken) break;
            if (flags & TRACE) take_logs(warp);
        }
        if (is_broken) {
            for (u32 t = 0; t < threads; t++) fibers[t].next = fibers[t].log;
            end_interval(0);
            return;
        }
        u32 waiting = 0, line = 0, all = 1, any = 0, votes = 0, a_waiting = 0, a_done = threads;
        for (u32 t = 0; t < threads; t++) {
            Fiber* f = &fibers[t];
            if (f->state == DONE) {
                a_done = t;
                continue;
            }
            if (!waiting) a_waiting = t, line = f->line;
            else if (f->line != line) found(BARRIERS_DIFFER, t, a_waiting, 0, 0, f->line, line);
            waiting++;
            all &= f->vote;
            any |= f->vote;
            votes += f->vote;
        }
        end_interval(line);
        if (!waiting) return;
        if (a_done < threads) found(BARRIER_MISSED, a_done, a_waiting, 0, 0, 0, line);
        barriers++;
        for (u32 t = 0; t < threads; t++) {
            Fiber* f = &fibers[t];
            if (f->state != AT_BARRIER) continue;
            f->result = f->operation == 0 ? any : f->operation == 1 ? all : votes;
            f->state = READY;
        }
    }
}

static void add_region(u32 first, u32 nbytes) {
    if (region_count == MAX_REGIONS) _exit(9);
    regions[region_count++] = (Region){first, nbytes};
}

static void prepare(u32 index) {
    launch_index = index;
    launch = (const Launch*)((char*)job + job->launches_at) + index;
    here[0] = index;
    here[3] = 0;
    threads = (u32)launch->block;
    warps = (threads + 31) / 32;
    dynamic_bytes = (u32)launch->smem;
    region_count = buffer_count;
    const Span* slots = (const Span*)((char*)job + job->slots_at) + launch->first_slot;
    for (u64 s = 0; s < launch->slots; s++) add_region((u32)slots[s].offset, (u32)slots[s].nbytes);
    smem_bytes = (dynamic_bytes + 15) & ~15u;
    static_count = 0;
    for (const u64* s = fmha_statics; s[0]; s += 2) {
        statics[static_count].address = s[0];
        statics[static_count].nbytes = (u32)s[1];
        statics[static_count++].at = smem_bytes;
        add_region(smem_bytes, (u32)s[1]);
        smem_bytes += ((u32)s[1] + 127) & ~127u;
    }
    if (smem_bytes > SHADOWED) _exit(9);
    const Argument* arguments = (const Argument*)((char*)job + job->arguments_at) + launch->first_argument;
    for (u64 a = 0; a < launch->arguments; a++) {
        argument_values[a] = arguments[a].kind == 0 ? (u64)(uintptr_t)(arena + arguments[a].value) : arguments[a].kind == 1 ? 0 : arguments[a].value;
        argument_pointers[a] = &argument_values[a];
    }
}

static void* reserve(size_t nbytes, int how) {
    void* p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, how | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) _exit(8);
    return p;
}

static void open_files(const char* path, u32 process) {
    here = job->where[process];
    for (int k = 0; k < KINDS; k++) {
        char name[4096];
        snprintf(name, sizeof name, "%s.%s.%u", path, KIND_NAMES[k], process);
        files[k] = fopen(name, "ab");
        if (!files[k]) _exit(7);
        setvbuf(files[k], NULL, _IOFBF, 1 << 16);
    }
}

static void work(void) {
    const u64* chosen = (const u64*)((char*)job + job->blocks_at);
    u64 blocks = job->blocks ? job->blocks : launch->grid, b;
    while (!job->stop && (b = __atomic_fetch_add(&job->next_block, 1, __ATOMIC_RELAXED)) < blocks) {
        u64 block = job->blocks ? chosen[b] : b;
        if (block < launch->grid) run_block((u32)block);
    }
    here[2] = NOBODY;
    save(FINDINGS, findings, finding_count * sizeof(Finding));
    finding_count = 0;
    for (int k = 0; k < KINDS; k++)
        if (fflush(files[k])) _exit(7);
}

#ifdef __linux__
// Where the process begins if the builder linked without the C library's own beginnings, which a compiler from a package
// would have to build first. Otherwise theirs wins over this one.
int main(int count, char** words);
int __libc_start_main(int (*)(int, char**), int, char**, void (*)(int, char**, char**), void (*)(void), void (*)(void), void*);
extern void (*__init_array_start[])(int, char**, char**) __attribute__((weak, visibility("hidden")));
extern void (*__init_array_end[])(int, char**, char**) __attribute__((weak, visibility("hidden")));
static void initialize(int count, char** words, char** environment) {
    for (void (**f)(int, char**, char**) = __init_array_start; f < __init_array_end; f++) (*f)(count, words, environment);
}
__attribute__((used, visibility("hidden"))) void fmha_begin(u64* stack, void (*at_end)(void)) {
    __libc_start_main(main, (int)stack[0], (char**)(stack + 1), initialize, NULL, at_end, stack);
}
#ifdef __x86_64__
__asm__(".text\n.weak _start\n_start:\n"
        "  xorl %ebp, %ebp\n  movq %rsp, %rdi\n  movq %rdx, %rsi\n  andq $-16, %rsp\n  call fmha_begin\n  hlt\n");
#else
__asm__(".text\n.weak _start\n_start:\n"
        "  mov x29, xzr\n  mov x30, xzr\n  mov x1, x0\n  mov x0, sp\n  bl fmha_begin\n  brk #1\n");
#endif
#endif

int main(int count, char** words) {
    if (count < 2) return 2;
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    int file = open(words[1], O_RDWR);
    off_t size = file < 0 ? -1 : lseek(file, 0, SEEK_END);
    if (size < (off_t)sizeof(Job)) return 3;
    job = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (job == MAP_FAILED || job->magic != MAGIC) return 3;
    buffers = (Buffer*)((char*)job + job->buffers_at);
    arena = (char*)job + job->arena_at;
    arena_bytes = job->arena_bytes;
    flags = (u32)job->flags;
    buffer_count = (u32)job->buffers;
    for (u32 i = 0; i < buffer_count; i++) regions[i] = (Region){(u32)buffers[i].offset, (u32)buffers[i].nbytes};
    grain_bits = flags >> GRAIN_BIT;
    is_written = reserve(grains((u32)arena_bytes) + 64, MAP_SHARED);
    device_shadow = reserve((grains((u32)arena_bytes) + 64) * sizeof *device_shadow, MAP_SHARED);
    locks = reserve(LOCKS * sizeof *locks, MAP_SHARED);
    for (u32 i = 0; i < buffer_count; i++)
        if (buffers[i].is_input) memset(is_written + (buffers[i].offset >> grain_bits), 1, grains((u32)buffers[i].nbytes));
    shared_shadow = reserve(((size_t)SHADOWED >> grain_bits) * sizeof *shared_shadow, MAP_PRIVATE);
    stacks = reserve((size_t)STACK * (MAX_THREADS + 1), MAP_PRIVATE);
    stacks = (char*)(((uintptr_t)stacks + STACK - 1) & ~(uintptr_t)(STACK - 1));
    u32 most = 0;
    for (u32 l = 0; l < job->launches; l++) {
        u64 block = ((const Launch*)((char*)job + job->launches_at))[l].block;
        if (block > MAX_THREADS) return 9;
        most = block > most ? (u32)block : most;
    }
    for (u32 t = 0; t < most; t++) mprotect(stacks + (size_t)t * STACK, PAGE, PROT_NONE);  // an overflow is a crash
    Access* logs = reserve((size_t)MAX_THREADS * LOG * sizeof(Access), MAP_PRIVATE);
    for (u32 t = 0; t < MAX_THREADS; t++) fibers[t].log = logs + (size_t)t * LOG;
#ifdef __APPLE__
    unsigned long text_bytes = 0;
    constants_first = (uintptr_t)getsegmentdata(&_mh_execute_header, "__TEXT", &text_bytes);
    constants_bytes = text_bytes;
#else
    extern char __executable_start, __bss_start;
    constants_first = (uintptr_t)&__executable_start;
    constants_bytes = (uintptr_t)&__bss_start - constants_first;
#endif
    open_files(words[1], 0);
    pid_t children[MAX_PROCESSES] = {0};
    if (job->launches > MAX_LAUNCHES || job->processes > MAX_PROCESSES) return 9;
    for (u32 l = 0; l < job->launches && !job->stop; l++) {
        job->next_block = 0;
        prepare(l);
        u64 blocks = job->blocks ? job->blocks : launch->grid;
        u32 helpers = 0;
        fflush(NULL);
        while (helpers + 1 < job->processes && helpers + 1 < blocks) {
            pid_t child = fork();
            if (child < 0) break;
            children[++helpers] = child;
            if (child) continue;
            open_files(words[1], helpers);
            prepare(l);
            work();
            _exit(0);
        }
        work();
        for (u32 h = 0; h < helpers; h++) {
            int status;
            pid_t ended = wait(&status);
            if (ended < 0) return 6;
            if (status) {
                job->stop = 1;
                for (u32 k = 1; k <= helpers; k++)
                    if (children[k] == ended) job->culprit = k;
                if (WIFSIGNALED(status)) raise(WTERMSIG(status));
                return WEXITSTATUS(status);
            }
        }
    }
    return 0;
}
