// Runs blocks of threads on this machine's processor: fibers, how they meet, what a block is.
#include "machine.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace emulated {

extern const Entry *const tables[];

thread_local Fiber *current;
thread_local uint3 block, block_size, grid_size;
thread_local Machine *machine;
// Where a fiber that never runs again leaves its stack pointer.
static thread_local void *nowhere;

// ---- Switching stacks: callee-saved registers onto the old one, off the new one. ----

#if OWN_SWITCH
#define TEXT(x) #x
#define QUOTED(x) TEXT(x)
#define SWITCH QUOTED(__USER_LABEL_PREFIX__) "emulated_switch"
extern "C" void emulated_switch(void **save, void *to);
#if defined(__x86_64__)
asm(".text\n.p2align 4\n.globl " SWITCH "\n" SWITCH ":\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
static void *prepare_stack(char *top, void (*entry)(), unsigned) {
    void **at = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--at = nullptr;  // where entry would return to
    *--at = (void *)entry;
    return at - 6;
}
#else
asm(".text\n.p2align 4\n.globl " SWITCH "\n" SWITCH ":\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
static void *prepare_stack(char *top, void (*entry)(), unsigned) {
    void **at = (void **)((uintptr_t)top & ~(uintptr_t)15) - 20;
    at[10] = nullptr;
    at[11] = (void *)entry;
    return at;
}
#endif
static void switch_stack(void **save, void *to) { emulated_switch(save, to); }
#else
static void switch_stack(void **save, void *to) {
    if (save == &nowhere) setcontext((ucontext_t *)to);
    // A fiber begins with its stack pointer.
    unsigned mine = save == &machine->home ? MOST_THREADS : ((Fiber *)save)->stack;
    *save = &machine->contexts[mine];
    swapcontext(&machine->contexts[mine], (ucontext_t *)to);
}
static void *prepare_stack(char *top, void (*entry)(), unsigned stack) {
    ucontext_t *context = &machine->contexts[stack];
    getcontext(context);
    context->uc_stack.ss_sp = top - STACK / 2;
    context->uc_stack.ss_size = STACK / 2;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}
#endif

// ---- Choosing who goes on. ----

static uint32_t draw() {
    uint32_t &x = machine->random;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

static unsigned choose(unsigned ready, unsigned lane) {
    if (machine->launch->seed == 0) {
        unsigned above = ready & ~((2u << lane) - 1);
        return (unsigned)__builtin_ctz(above ? above : ready);
    }
    unsigned by = draw() & 31;
    unsigned turned = ready >> by | ready << ((32 - by) & 31);
    return ((unsigned)__builtin_ctz(turned) + by) & 31;
}

static void run_lanes();

static void give_stack(Fiber *fiber) {
    Machine &m = *machine;
    fiber->stack = m.spare[--m.spare_count];
    // The lowest of those never opened, if it is one of them.
    size_t stride = STACK + m.page;
    char *bottom = m.stacks + stride * fiber->stack + m.page;
    if (fiber->stack >= m.opened) {
        if (!open_pages(bottom, STACK)) abort();
        m.opened = fiber->stack + 1;
    }
    // Tops differ in their low bits: else all lanes would share the same few sets of the cache.
    fiber->stack_pointer = prepare_stack(bottom + STACK - fiber->stack % 29 * 192, run_lanes, fiber->stack);
}

static inline void go(void **save, Fiber *to) {
    if (!to->stack_pointer) give_stack(to);
    current = to;
    switch_stack(save, to->stack_pointer);
}

// The current fiber cannot go on: another of its warp does, or the block decides. In random order the block may decide
// before the whole warp waits.
static inline void leave(void **save) {
    Warp *warp = current->warp;
    bool stay = machine->launch->seed == 0 || draw() % 32;
    if (warp->ready && stay) go(save, &warp->lanes[choose(warp->ready, current->lane)]);
    else switch_stack(save, machine->home);
}

// The current fiber was the last to come to a meeting. In random order that gives it no right to go on first.
static inline void step_back() {
    Fiber *me = current;
    Warp *warp = me->warp;
    if (machine->launch->seed == 0) return;
    if (draw() % 4 == 0) return switch_stack(&me->stack_pointer, machine->home);
    Fiber *next = &warp->lanes[choose(warp->ready, me->lane)];
    if (next != me) go(&me->stack_pointer, next);
}

static void release_barrier() {
    Machine &m = *machine;
    m.waiting = 0;
    m.barrier_site = nullptr;
    m.last_votes = m.votes;
    m.votes = 0;
    unsigned warps = (block_size.x * block_size.y + 31) / 32;
    for (unsigned i = 0; i < warps; i++) m.warps[i].ready = m.warps[i].alive;
}

// A fiber's life: its lane, then on the same stack the lanes not yet begun, until one that waits elsewhere must go on.
static void run_lanes() {
    for (;;) {
        Machine &m = *machine;
        m.launch->entry->run(m.launch->args);
        Fiber *fiber = current;
        Warp *warp = fiber->warp;
        warp->alive &= ~(1u << fiber->lane);
        warp->ready &= ~(1u << fiber->lane);
        if (--m.alive && m.waiting == m.alive) release_barrier();
        Fiber *next = warp->ready ? &warp->lanes[choose(warp->ready, fiber->lane)] : nullptr;
        if (next && !next->stack_pointer) {
            next->stack = fiber->stack;
            next->stack_pointer = fiber;  // begun; set when it waits
            current = next;
            continue;
        }
        m.spare[m.spare_count++] = fiber->stack;
        if (next) go(&nowhere, next);
        switch_stack(&nowhere, m.home);
        __builtin_unreachable();
    }
}

// ---- Meetings. ----

void fail(const Site *site, const char *format, ...) {
    Machine &m = *machine;
    char text[200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    uint3 t = current->thread;
    snprintf(m.message, sizeof m.message, "block (%u, %u, %u), thread (%u, %u): %s (%s:%d)", block.x, block.y, block.z,
             t.x, t.y, text, site->file, site->line);
    m.failed = true;
    switch_stack(&nowhere, m.home);
    __builtin_unreachable();
}

const uint64_t *meet(unsigned mask, uint64_t value, const Site *site) {
    Fiber *me = current;
    Warp *warp = me->warp;
    unsigned bit = 1u << me->lane;
    if (!(mask & bit)) fail(site, "lane %u is not in the mask %08x it gives", me->lane, mask);
    if ((warp->alive & mask) != mask)
        fail(site, "the mask %08x names lanes that have ended (alive: %08x)", mask, warp->alive);
    Group &group = warp->groups[__builtin_ctz(mask)];
    if (!group.arrived) {
        group.mask = mask;
        group.site = site;
    } else if (group.mask != mask || group.site != site) {
        fail(site, "lanes of a warp meet in different places: mask %08x here, mask %08x at %s:%d", mask, group.mask,
             group.site->file, group.site->line);
    }
    uint64_t *values = group.values[group.turn & 1];
    values[me->lane] = value;
    group.arrived |= bit;
    if (group.arrived == mask) {
        group.arrived = 0;
        group.turn++;
        warp->ready |= mask;
        step_back();
    } else {
        warp->ready &= ~bit;
        me->site = site;
        leave(&me->stack_pointer);
    }
    return values;
}

unsigned barrier(bool vote, const Site *site) {
    Machine &m = *machine;
    Fiber *me = current;
    if (m.barrier_site && m.barrier_site != site)
        fail(site, "threads of a block wait at different barriers: the others at %s:%d", m.barrier_site->file,
             m.barrier_site->line);
    m.barrier_site = site;
    m.votes += vote;
    if (++m.waiting == m.alive) {
        release_barrier();
        step_back();
    } else {
        me->warp->ready &= ~(1u << me->lane);
        me->site = site;
        leave(&me->stack_pointer);
    }
    return m.last_votes;
}

void product(int (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const Site *site) {
    Warp *warp = current->warp;
    unsigned lane = current->lane;
    const Operands *all = warp->operands[warp->groups[0].turn & 1];
    Operands &mine = warp->operands[warp->groups[0].turn & 1][lane];
    memcpy(mine.a, a, sizeof a);
    memcpy(mine.b, b, sizeof b);
    meet(0xffffffffu, 0, site);
    for (int i = 0; i < 4; i++) {
        // Words i / 2 and i / 2 + 2 of A's row, both words of B's column.
        const Operands *row = all + (lane & ~3u), *column = all + 4 * (2 * (lane & 3) + (i & 1));
        for (int k = 0; k < 4; k++)
            d[i] = dp4a(row[k].a[i / 2 + 2], column[k].b[1], dp4a(row[k].a[i / 2], column[k].b[0], d[i]));
    }
}

void *shared_memory() { return machine->shared_end - round_up(machine->launch->shared, 16); }

void *static_shared(const Site *site, size_t bytes) {
    Machine &m = *machine;
    for (unsigned i = 0; i < m.variable_count; i++)
        if (m.variables[i].site == site) return m.variables[i].at;
    m.static_bytes += round_up(bytes, 16);
    if (m.static_bytes + m.launch->shared > MOST_SHARED || m.variable_count == 64)
        fail(site, "%zu bytes of static and %u of dynamic shared memory: there are %zu, for at most 64 variables",
             m.static_bytes, m.launch->shared, MOST_SHARED);
    char *at = m.static_end - m.static_bytes;
    memset(at, 0xff, round_up(bytes, 16));
    m.variables[m.variable_count++] = {site, at};
    return at;
}

// ---- Halves. ----

float half_to_float(unsigned short half) {
    unsigned sign = (unsigned)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) return __uint_as_float(fraction ? 0x7fffffffu : sign | 0x7f800000u);
    unsigned normal = (exponent + 112) << 23 | fraction << 13;
    float magnitude = exponent == 0 ? (float)fraction * 0x1p-24f : __uint_as_float(normal);
    return __uint_as_float(sign | __float_as_uint(magnitude));
}

unsigned short float_to_half(float value) {
    unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) return 0x7fff;
    // From 65520 on the nearest is infinity.
    if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00);
    // Below 2^-14 the last place is 2^-24: adding 0.5, whose last place is the same, rounds.
    if (magnitude < 0x38800000u)
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u));
    unsigned rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (unsigned short)(sign | (rounded - 0x38000000u) >> 13);
}

// ---- A block. ----

static void spare_all(Machine &m) {
    m.spare_count = MOST_THREADS;
    for (unsigned i = 0; i < MOST_THREADS; i++) m.spare[i] = MOST_THREADS - 1 - i;
}

static Machine *own_machine() {
    if (machine) return machine;
    size_t page = page_size();
    char *at = reserve(round_up(sizeof(Machine), page));
    if (!at || !open_pages(at, round_up(sizeof(Machine), page))) return nullptr;
    Machine *m = (Machine *)at;
    m->page = page;
    m->stacks = reserve((STACK + page) * MOST_THREADS);
    size_t shared = round_up(MOST_SHARED, page);
    char *dynamic_shared = reserve(2 * (shared + page)), *static_shared = dynamic_shared + shared + page;
    m->signal_stack = reserve(SIGNAL_STACK);
    if (!m->stacks || !dynamic_shared || !m->signal_stack || !open_pages(dynamic_shared, shared) ||
        !open_pages(static_shared, shared) || !open_pages(m->signal_stack, SIGNAL_STACK))
        return nullptr;
    m->shared_end = dynamic_shared + shared;
    m->static_end = static_shared + shared;
    stack_t alternate = {};
    alternate.ss_sp = m->signal_stack;
    alternate.ss_size = SIGNAL_STACK;
    sigaltstack(&alternate, &m->old_signal_stack);
    spare_all(*m);
    return machine = m;
}

static void begin_block(Machine &m, const Launch &launch, uint64_t index) {
    unsigned threads = launch.threads[0] * launch.threads[1];
    block_size = {launch.threads[0], launch.threads[1], 1};
    grid_size = {launch.blocks[0], launch.blocks[1], launch.blocks[2]};
    uint64_t plane = (uint64_t)grid_size.x * grid_size.y;
    block = {(unsigned)(index % grid_size.x), (unsigned)(index % plane / grid_size.x), (unsigned)(index / plane)};
    m.launch = &launch;
    m.random = launch.seed * 2654435761u ^ (uint32_t)index * 2246822519u ^ 0x9e3779b9u;
    if (m.random == 0) m.random = 1;
    if (launch.shared) memset(shared_memory(), 0xff, round_up(launch.shared, 16));
    for (unsigned i = 0; i < threads; i++)
        m.fibers[i] = {nullptr, {i % block_size.x, i / block_size.x, 0}, i % 32, 0, &m.warps[i / 32], nullptr};
    for (unsigned i = 0; 32 * i < threads; i++) {
        unsigned lanes = threads - 32 * i;
        m.warps[i].alive = m.warps[i].ready = lanes >= 32 ? ~0u : (1u << lanes) - 1;
        m.warps[i].lanes = &m.fibers[32 * i];
    }
    m.alive = threads;
    m.waiting = m.votes = 0;
    m.barrier_site = nullptr;
    m.variable_count = 0;
    m.static_bytes = 0;
    m.failed = false;
}

static void say_stuck(Machine &m) {
    unsigned threads = block_size.x * block_size.y, first = 0;
    while (first + 1 < threads && !(m.fibers[first].warp->alive >> m.fibers[first].lane & 1)) first++;
    const Fiber &fiber = m.fibers[first];
    snprintf(m.message, sizeof m.message,
             "block (%u, %u, %u), thread (%u, %u): waits for ever at %s:%d; of %u threads that have not "
             "ended %u wait at a barrier",
             block.x, block.y, block.z, fiber.thread.x, fiber.thread.y, fiber.site->file, fiber.site->line, m.alive,
             m.waiting);
    m.failed = true;
}

static void run_block(Machine &m) {
    unsigned warps = (block_size.x * block_size.y + 31) / 32;
    while (m.alive && !m.failed) {
        bool ran = false;
        unsigned first = m.launch->seed ? draw() % warps : 0;
        for (unsigned i = 0; i < warps && !m.failed; i++) {
            Warp &warp = m.warps[(first + i) % warps];
            if (!warp.ready) continue;
            ran = true;
            go(&m.home, &warp.lanes[choose(warp.ready, 31)]);
            if (m.launch->seed) break;
        }
        if (!ran) say_stuck(m);
    }
    current = nullptr;
    if (!m.failed) return;
    // The fibers left behind never run again.
    spare_all(m);
    for (Warp &warp : m.warps)
        for (Group &group : warp.groups) group.arrived = 0;
}

}  // namespace emulated

using namespace emulated;

// The kernel of that name, or null.
extern "C" const Entry *emulated_find(const char *file, const char *variant, const char *name) {
    for (const Entry *const *table = tables; *table; table++)
        for (const Entry *entry = *table; entry->file; entry++)
            if (!strcmp(entry->file, file) && !strcmp(entry->variant, variant) && !strcmp(entry->name, name))
                return entry;
    return nullptr;
}

// Runs one block; a message, valid until this thread's next block, if it fails.
extern "C" const char *emulated_block(const Launch *launch, uint64_t index) {
    Machine *m = own_machine();
    if (!m) return "this process got no memory for threads of a block";
    begin_block(*m, *launch, index);
    run_block(*m);
    return m->failed ? m->message : nullptr;
}

// Gives back what this host thread keeps for running blocks.
extern "C" void emulated_end_thread() {
    Machine *m = machine;
    if (!m) return;
    machine = nullptr;
    sigaltstack(&m->old_signal_stack, nullptr);
    size_t page = m->page, shared = round_up(MOST_SHARED, page);
    munmap(m->stacks, (STACK + page) * MOST_THREADS);
    munmap(m->shared_end - shared, 2 * (shared + page));
    munmap(m->signal_stack, SIGNAL_STACK);
    munmap(m, round_up(sizeof(Machine), page));
}
