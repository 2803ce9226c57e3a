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
extern char fmha_dynamic[];       // what `extern __shared__` names
enum { FLOP_KINDS = 5 };
extern u64 fmha_flops[][FLOP_KINDS];  // by line of the source
extern const u64 fmha_flop_lines;

// ---- the job file ------------------------------------------------------------------------------------------------------
enum { TRACE = 1, CHECK = 2, REVERSED = 4 };
enum { MAGIC = 0x464d4841, MAX_PROCESSES = 64 };
typedef struct {
    u64 magic, buffers, launches, arena_at, arena_bytes, processes, flags, buffers_at, launches_at, arguments_at, slots_at;
    u64 detail_launch, detail_block, detail_first, detail_last, detail_warp;  // which requests are written down lane by lane
    u64 saved, saved_at, blocks, blocks_at;                                   // slots saved at each barrier; blocks to run
    u64 next_block, stop;
    u64 where[MAX_PROCESSES][4];  // launch, block, thread, site that each process was at
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
    u32 kind, launch, block, thread, other_thread, site, other_site, region;
    u64 at, count;
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
    BARRIER_MISSED, BARRIERS_DIFFER, WARP_WAITS, NO_MEMORY
};

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
enum { MAX_REGIONS = 64, DYNAMIC_ROOM = 232448, SHADOWED = 1 << 19 };
#define NOWHERE 0xffffffffu
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
static u64* here;  // in the job file: launch, block, thread and site that this process is at

static void save(int kind, const void* what, size_t nbytes) {
    if (fwrite(what, 1, nbytes, files[kind]) != nbytes) _exit(7);
}

// ---- findings ----------------------------------------------------------------------------------------------------------------
enum { MAX_FINDINGS = 256 };
static Finding findings[MAX_FINDINGS];
static u32 finding_count;
static void found(u32 kind, u32 thread, u32 other, u32 site, u32 other_site, u32 region, u64 at) {
    for (u32 i = 0; i < finding_count; i++) {
        Finding* f = &findings[i];
        if (f->kind == kind && f->launch == launch_index && f->site == site && f->other_site == other_site && f->region == region) {
            f->count++;
            return;
        }
    }
    if (finding_count == MAX_FINDINGS) return;
    findings[finding_count++] = (Finding){kind, launch_index, block_index, thread, other, site, other_site, region, at, 1};
}

// ---- shadows: who wrote and read last, for races and for reads of what nothing wrote ---------------------------------------
// A stamp says when and by whom: epoch << 32 | warp's own epoch << 10 | thread. Epochs grow at every barrier and block.
#ifndef GRAIN
#define GRAIN 4  // bytes that one stamp stands for; the builder says 2 where a kernel has 16-bit types
#endif
enum { MANY_IN_WARP = 1u << 30, MANY = 1u << 31 };  // in a read stamp: lanes of one warp, or of several, have read it
typedef struct {
    u64 wrote, read;
    u16 write_site, read_site;
} Shadow;
static Shadow* shared_shadow;
static u32 epoch, first_epoch;  // now, and when this block began
static u32 warp_epoch[MAX_THREADS / 32];

static inline u64 stamp(u32 more) { return (u64)epoch << 32 | more | (u64)(warp_epoch[now_thread / 32] & 0xfffff) << 10 | now_thread; }
static inline u32 stamp_epoch(u64 s) { return (u32)(s >> 32); }
static inline u32 stamp_warp_epoch(u64 s) { return (u32)(s >> 10) & 0xfffff; }
static inline u32 stamp_thread(u64 s) { return (u32)s & 0x3ff; }

// Whether what that stamp says happened without a barrier, or a warp operation, before what this thread does now.
static inline int unordered(u64 s) {
    u32 thread = stamp_thread(s);
    if (stamp_epoch(s) != epoch) return 0;
    if (s & MANY) return 1;
    if (thread == now_thread && !(s & MANY_IN_WARP)) return 0;
    return thread / 32 != now_thread / 32 || stamp_warp_epoch(s) == (warp_epoch[now_thread / 32] & 0xfffff);
}

static u32 region_of(u32 at, int is_shared);

static __attribute__((noinline)) void shared_trouble(u32 kind, u64 s, u32 at, u32 site, u32 other_site) {
    u32 other = s & (MANY | MANY_IN_WARP) ? 0xffffffffu : stamp_thread(s);
    found(kind, now_thread, other, site, other_site, region_of(at, 1), at);
}

static inline void check_shared(u32 at, u32 nbytes, int is_write, u32 site) {
    for (Shadow *s = shared_shadow + at / GRAIN, *end = shared_shadow + (at + nbytes + GRAIN - 1) / GRAIN; s < end; s++) {
        if (is_write) {
            if (__builtin_expect(unordered(s->wrote), 0)) shared_trouble(RACE_WRITE_WRITE, s->wrote, at, site, s->write_site);
            if (__builtin_expect(unordered(s->read), 0)) shared_trouble(RACE_READ_WRITE, s->read, at, site, s->read_site);
            s->wrote = stamp(0);
            s->write_site = (u16)site;
            continue;
        }
        if (__builtin_expect(stamp_epoch(s->wrote) < first_epoch, 0)) shared_trouble(UNWRITTEN, 0, at, site, 0);
        else if (__builtin_expect(unordered(s->wrote), 0)) shared_trouble(RACE_WRITE_READ, s->wrote, at, site, s->write_site);
        u32 more = 0;
        if (stamp_epoch(s->read) == epoch) {
            if (s->read & MANY || stamp_thread(s->read) / 32 != now_thread / 32) more = MANY;
            else if (stamp_warp_epoch(s->read) == (warp_epoch[now_thread / 32] & 0xfffff) && (s->read & MANY_IN_WARP || stamp_thread(s->read) != now_thread))
                more = MANY_IN_WARP;
        }
        s->read = stamp(more);
        s->read_site = (u16)site;
    }
}

// Device memory: blocks are never ordered within a launch. The stamps are shared by all processes.
typedef struct {
    u64 wrote, read;  // launch + 1 in 4 bits, block in 26, epoch within the block in 24, thread in 10; 0: never
} DeviceShadow;
static DeviceShadow* device_shadow;
static u8* is_written;  // one byte for each GRAIN bytes
static u16* device_site;

static inline u64 device_stamp(void) {
    return (u64)(launch_index + 1) << 60 | (u64)(block_index & 0x3ffffff) << 34 | (u64)((epoch - first_epoch) & 0xffffff) << 10 | now_thread;
}
static inline int device_unordered(u64 s, u64 mine) {
    if (s >> 60 != mine >> 60) return 0;          // another launch, or never
    if (s >> 34 != mine >> 34) return 1;          // another block
    return s >> 10 == mine >> 10 && s != mine;    // another thread, no barrier in between
}

static void check_device(u32 at, u32 nbytes, int is_write, u32 site) {
    u64 mine = device_stamp();
    u32 region = region_of(at, 0);
    for (u32 w = at / GRAIN, end = (at + nbytes + GRAIN - 1) / GRAIN; w < end; w++) {
        DeviceShadow* s = &device_shadow[w];
        if (!is_write) {
            if (!is_written[w]) found(UNWRITTEN, now_thread, 0, site, 0, region, at);
            u64 wrote = __atomic_load_n(&s->wrote, __ATOMIC_RELAXED);
            if (wrote && device_unordered(wrote, mine)) found(RACE_WRITE_READ, now_thread, (u32)wrote & 0x3ff, site, device_site[w], region, at);
            if (region < buffer_count && !buffers[region].is_input) __atomic_store_n(&s->read, mine, __ATOMIC_RELAXED);
            continue;
        }
        if (region < buffer_count && buffers[region].is_input) found(INPUT_WRITTEN, now_thread, 0, site, 0, region, at);
        u64 wrote = __atomic_exchange_n(&s->wrote, mine, __ATOMIC_RELAXED), read = __atomic_load_n(&s->read, __ATOMIC_RELAXED);
        if (wrote && device_unordered(wrote, mine)) found(RACE_WRITE_WRITE, now_thread, (u32)wrote & 0x3ff, site, device_site[w], region, at);
        if (read && device_unordered(read, mine)) found(RACE_READ_WRITE, now_thread, (u32)read & 0x3ff, site, 0, region, at);
        is_written[w] = 1;
        device_site[w] = (u16)site;
    }
}

// ---- the hooks ---------------------------------------------------------------------------------------------------------------
static void to_scheduler(u32 state) {
    Fiber* mine = now;
    mine->state = state;
    fmha_switch(&mine->sp, scheduler_sp);
}

static __attribute__((noinline)) void elsewhere(uintptr_t address, int is_write, u32 site) {
    if (address - (uintptr_t)(stacks + (size_t)now_thread * STACK) < STACK) return;  // the thread's own: registers, arrays
    if (!is_write && address - constants_first < constants_bytes) return;
    u64 o = address - (uintptr_t)fmha_dynamic;
    if (o < DYNAMIC_ROOM) found(BEYOND_SMEM, now_thread, 0, site, 0, NOWHERE, o);
    else found(OUT_OF_BOUNDS, now_thread, 0, site, 0, NOWHERE, address - (uintptr_t)arena);
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

static inline __attribute__((always_inline)) void touch(const void* address, u32 nbytes, u32 lg, int is_write, u32 site) {
    if (!(flags & TRACE)) return;
    here[3] = site;
    uintptr_t a = (uintptr_t)address;
    u64 o = a - (uintptr_t)fmha_dynamic;
    if (o < dynamic_bytes && o + nbytes <= dynamic_bytes) {
        if (flags & CHECK) check_shared((u32)o, nbytes, is_write, site);
        note((u32)o, lg, site, 1);
        return;
    }
    o = a - (uintptr_t)arena;
    if (o < arena_bytes) {
        u32 region = region_of((u32)o, 0);
        if (region == NOWHERE || (u32)o + nbytes > regions[region].first + regions[region].nbytes) found(OUT_OF_BOUNDS, now_thread, 0, site, 0, NOWHERE, o);
        else if (flags & CHECK) check_device((u32)o, nbytes, is_write, site);
        note((u32)o, lg, site, 0);
        return;
    }
    for (u32 i = 0; i < static_count; i++) {
        o = a - statics[i].address;
        if (o < statics[i].nbytes && o + nbytes <= statics[i].nbytes) {
            if (flags & CHECK) check_shared(statics[i].at + (u32)o, nbytes, is_write, site);
            note(statics[i].at + (u32)o, lg, site, 1);
            return;
        }
    }
    elsewhere(a, is_write, site);
}

// The builder hands each of these one argument more than the compiler knows of: the site.
#define HOOKS(n, lg)                                                                          \
    void __tsan_read##n(void* p, u32 site) { touch(p, n, lg, 0, site); }                     \
    void __tsan_write##n(void* p, u32 site) { touch(p, n, lg, 1, site); }                    \
    void __tsan_unaligned_read##n(void* p, u32 site) { touch(p, n, lg, 0, site); }           \
    void __tsan_unaligned_write##n(void* p, u32 site) { touch(p, n, lg, 1, site); }          \
    void __tsan_volatile_read##n(void* p, u32 site) { touch(p, n, lg, 0, site); }            \
    void __tsan_volatile_write##n(void* p, u32 site) { touch(p, n, lg, 1, site); }           \
    void __tsan_unaligned_volatile_read##n(void* p, u32 site) { touch(p, n, lg, 0, site); }  \
    void __tsan_unaligned_volatile_write##n(void* p, u32 site) { touch(p, n, lg, 1, site); }
HOOKS(1, 0)
HOOKS(2, 1)
HOOKS(4, 2)
HOOKS(8, 3)
HOOKS(16, 4)
static void each_word(const char* p, size_t nbytes, int is_write, u32 site) {
    for (; nbytes >= 4; p += 4, nbytes -= 4) touch(p, 4, 2, is_write, site);
    for (; nbytes; p++, nbytes--) touch(p, 1, 0, is_write, site);
}
void __tsan_read_range(void* p, size_t n, u32 site) { each_word(p, n, 0, site); }
void __tsan_write_range(void* p, size_t n, u32 site) { each_word(p, n, 1, site); }
void* __tsan_memcpy(void* to, const void* from, size_t n, u32 site) {
    each_word(from, n, 0, site);
    each_word(to, n, 1, site);
    return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n, u32 site) {
    each_word(from, n, 0, site);
    each_word(to, n, 1, site);
    return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n, u32 site) {
    each_word(to, n, 1, site);
    return memset(to, value, n);
}
void __tsan_init(void) {}
void __tsan_func_entry(void* p) { (void)p; }
void __tsan_func_exit(void) {}

void fmha_vector_copy(void* to, const void* from, size_t n, u32 site) {
    touch(from, (u32)n, n == 16 ? 4 : 3, 0, site);
    touch(to, (u32)n, n == 16 ? 4 : 3, 1, site);
    memcpy(to, from, n);
}
// Atomics are ordered: they are counted, but are no race and may find what nothing wrote only if nothing did.
static void atomic_access(void* p, u32 site) {
    u32 kept = flags;
    flags &= ~(u32)CHECK;
    touch(p, 4, 2, 1, site);
    flags = kept;
}
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
int fmha_atomic_i32(int* p, int value, int operation, u32 site) {
    atomic_access(p, site);
    int old = __atomic_load_n(p, __ATOMIC_RELAXED), made;
    do made = operation == 0 ? old + value : old > value ? old : value;
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

// Lets go all lanes whose warp operation all lanes of its mask have reached; whether there were any.
static int resolve(u32 warp) {
    Fiber* lane = fibers + warp * 32;
    u32 lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32;
    int any = 0;
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
            lane[k].result = lane[k].warp_kind == BALLOT ? ballot : here >> source & 1 ? lane[source].value : lane[k].value;
        }
        for (u32 k = 0; k < lanes; k++)
            if (here >> k & 1) lane[k].state = READY;
        warp_epoch[warp]++;
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
        u32 word[64], wavefronts = 0, ideal = 0, part = nbytes <= 4 ? 32 : nbytes == 8 ? 16 : 8;
        if (!uneven && nbytes == 4 && !(step & 3)) {
            u32 apart = step >> 2, banks = apart ? 32u >> (__builtin_ctz(apart) > 5 ? 5 : __builtin_ctz(apart)) : 32;
            wavefronts = apart ? (n + banks - 1) / banks : 1;
            ideal = 1;
        } else if (!uneven && !step) {
            wavefronts = ideal = 1;
        } else {
            for (u32 i = 0; i < n; i += part, ideal++) {  // wide accesses go out half a warp, or a quarter, at a time
                u32 m = 0;
                for (u32 k = i; k < n && k < i + part; k++)
                    for (u32 w = at[k] >> 2; w <= (at[k] + nbytes - 1) >> 2; w++) word[m++] = w;
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

// The lanes of a warp wait: what they did becomes requests. Lanes that went the same way have equal logs, entry by entry;
// where they did not, the k-th time of one site goes with the k-th time of the same site in other lanes.
static void take_logs(u32 warp) {
    Fiber* lane = fibers + warp * 32;
    u32 lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32, n = 0, shortest = LOG, longest = 0;
    const Access* log[32];
    u32 length[32];
    u8 number[32];
    is_detailed = launch_index == job->detail_launch && block_index == job->detail_block && warp == job->detail_warp &&
                  interval >= job->detail_first && interval <= job->detail_last;
    for (u32 l = 0; l < lanes; l++) {
        u32 m = (u32)(lane[l].next - lane[l].log);
        if (!m) continue;
        log[n] = lane[l].log;
        length[n] = m;
        number[n++] = (u8)l;
        shortest = m < shortest ? m : shortest;
        longest = m > longest ? m : longest;
    }
    if (!n) return;
    u32 at[32], i = 0;
    for (; i < shortest; i++) {
        u32 what = log[0][i].what, differs = 0;
        for (u32 l = 0; l < n; l++) {
            at[l] = log[l][i].at;
            differs |= log[l][i].what ^ what;
        }
        if (differs) break;
        count_request(what, at, number, n);
    }
    if (i < longest) {
        // Entry e of lane l is the rank-th of its site; requests of one (site, rank) are gathered by sorting their keys.
        static struct {
            u32 what, rank, lane, at;
        }* rest;
        static u32 room;
        static u32 seen[MAX_SITES * 2], seen_by[MAX_SITES * 2], turn;
        u32 m = 0, total = 0;
        for (u32 l = 0; l < n; l++) total += length[l] > i ? length[l] - i : 0;
        if (total > room) {
            rest = realloc(rest, (room = 2 * total) * sizeof *rest);
            if (!rest) _exit(8);
        }
        for (u32 l = 0; l < n; l++) {
            turn++;
            for (u32 e = i; e < length[l]; e++) {
                u32 what = log[l][e].what, key = (what >> 4) * 2 + (what & 1);
                if (seen_by[key] != turn) seen_by[key] = turn, seen[key] = 0;
                rest[m].what = what;
                rest[m].rank = seen[key]++;
                rest[m].lane = l;
                rest[m++].at = log[l][e].at;
            }
        }
        // Buckets by (site, rank): a counting sort over first appearances keeps this linear.
        static u32 *bucket_of, *bucket_size, bucket_room;
        if (total + 1 > bucket_room) {
            bucket_room = 2 * (total + 1);
            bucket_of = realloc(bucket_of, bucket_room * sizeof *bucket_of);
            bucket_size = realloc(bucket_size, bucket_room * sizeof *bucket_size);
            if (!bucket_of || !bucket_size) _exit(8);
        }
        static u32 base[MAX_SITES * 2], base_turn[MAX_SITES * 2], base_most[MAX_SITES * 2], bases[MAX_SITES * 2];
        u32 base_count = 0;
        turn++;
        for (u32 e = 0; e < m; e++) {
            u32 key = (rest[e].what >> 4) * 2 + (rest[e].what & 1);
            if (base_turn[key] != turn) base_turn[key] = turn, base_most[key] = 0, bases[base_count++] = key;
            if (rest[e].rank + 1 > base_most[key]) base_most[key] = rest[e].rank + 1;
        }
        u32 buckets = 0;
        for (u32 b = 0; b < base_count; b++) base[bases[b]] = buckets, buckets += base_most[bases[b]];
        memset(bucket_size, 0, buckets * sizeof *bucket_size);
        static u32 *gathered, gathered_room;
        if (buckets * 32 > gathered_room) {
            gathered = realloc(gathered, (gathered_room = buckets * 64) * 2 * sizeof *gathered);
            if (!gathered) _exit(8);
        }
        for (u32 e = 0; e < m; e++) {
            u32 key = (rest[e].what >> 4) * 2 + (rest[e].what & 1), b = base[key] + rest[e].rank;
            bucket_of[b] = rest[e].what;
            u32 place = b * 32 + bucket_size[b]++;
            gathered[2 * place] = rest[e].at;
            gathered[2 * place + 1] = number[rest[e].lane];
        }
        for (u32 b = 0; b < buckets; b++) {
            u8 who[32];
            for (u32 k = 0; k < bucket_size[b]; k++) at[k] = gathered[2 * (b * 32 + k)], who[k] = (u8)gathered[2 * (b * 32 + k) + 1];
            if (bucket_size[b]) count_request(bucket_of[b], at, who, bucket_size[b]);
        }
    }
    for (u32 l = 0; l < lanes; l++) lane[l].next = lane[l].log;
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
    here[2] = thread;
    fmha_switch(&scheduler_sp, now->sp);
}

static void run_block(u32 block) {
    int is_reversed = (flags & REVERSED) != 0;
    block_index = block;
    here[1] = block;
    is_broken = 0;
    first_epoch = ++epoch;
    for (u32 t = 0; t < threads; t++) {
        Fiber* f = &fibers[t];
        Access* log = f->log;
        memset(f, 0, sizeof *f);
        f->log = f->next = log;
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
                        if (fibers[t].state == LOG_FULL) fibers[t].state = READY;
                } else if (!is_waiting) {
                    break;
                } else if (!resolve(warp)) {
                    u32 stuck = first;
                    while (fibers[stuck].state != IN_WARP) stuck++;
                    found(WARP_WAITS, stuck, 0, 0, 0, 0, fibers[stuck].line);
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
            if (!waiting) a_waiting = t;
            else if (f->line != line) found(BARRIERS_DIFFER, t, a_waiting, 0, 0, f->line, line);
            waiting++;
            line = f->line;
            all &= f->vote;
            any |= f->vote;
            votes += f->vote;
        }
        end_interval(line);
        if (!waiting) return;
        if (a_done < threads) found(BARRIER_MISSED, a_done, a_waiting, 0, 0, 0, line);
        epoch++;
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
    save(FINDINGS, findings, finding_count * sizeof(Finding));
    finding_count = 0;
    for (int k = 0; k < KINDS; k++)
        if (fflush(files[k])) _exit(7);
}

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
    is_written = reserve(arena_bytes / GRAIN + 64, MAP_SHARED);
    device_shadow = reserve((arena_bytes / GRAIN + 64) * sizeof *device_shadow, MAP_SHARED);
    device_site = reserve((arena_bytes / GRAIN + 64) * sizeof *device_site, MAP_SHARED);
    for (u32 i = 0; i < buffer_count; i++)
        if (buffers[i].is_input) memset(is_written + buffers[i].offset / GRAIN, 1, (buffers[i].nbytes + GRAIN - 1) / GRAIN);
    shared_shadow = reserve((size_t)SHADOWED / GRAIN * sizeof *shared_shadow, MAP_PRIVATE);
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
    for (u32 l = 0; l < job->launches && !job->stop; l++) {
        job->next_block = 0;
        prepare(l);
        u64 blocks = job->blocks ? job->blocks : launch->grid;
        u32 helpers = 0;
        fflush(NULL);
        while (helpers + 1 < job->processes && helpers + 1 < blocks) {
            pid_t child = fork();
            if (child < 0) break;
            helpers++;
            if (child) continue;
            open_files(words[1], helpers);
            prepare(l);
            work();
            _exit(0);
        }
        work();
        for (u32 h = 0; h < helpers; h++) {
            int status;
            if (wait(&status) < 0) return 6;
            if (status) {
                job->stop = 1;
                if (WIFSIGNALED(status)) raise(WTERMSIG(status));
                return WEXITSTATUS(status);
            }
        }
    }
    return 0;
}
