// What the emulator's own files share: a launch, what a host thread keeps, pages of memory.
#pragma once
#include "emulate.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#include <csignal>
#include <sys/mman.h>
#include <unistd.h>
#ifndef OWN_SWITCH
#if defined(__x86_64__) || defined(__aarch64__)
#define OWN_SWITCH 1
#else
#define OWN_SWITCH 0
#endif
#endif
#if !OWN_SWITCH
#include <ucontext.h>
#endif

namespace emulated {

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t MOST_SHARED = 48 * 1024;
constexpr size_t STACK = 64 * 1024;
constexpr size_t SIGNAL_STACK = 64 * 1024;

// What is run; `label` names it for people.
struct Launch {
    const Entry *entry;
    const char *label;
    uint32_t blocks[3], threads[2], shared;
    // 0: lanes and warps in order; else in an order of its own for each block.
    uint32_t seed;
    const uint64_t *args;
};

// A variable in static shared memory.
struct Variable {
    const Site *site;
    char *at;
};

// What one host thread needs to run blocks.
struct Machine {
    Fiber fibers[MOST_THREADS];
    Warp warps[MOST_THREADS / 32];
    // Dynamic and static shared memory end before a guard page each.
    char *stacks, *shared_end, *static_end, *signal_stack;
    Variable variables[64];
    unsigned variable_count;
    size_t static_bytes;
    size_t page;
    // Stacks that are accessible; those not in use.
    unsigned opened, spare_count, spare[MOST_THREADS];
    void *home;
    const Launch *launch;
    unsigned alive, waiting, votes, last_votes;
    const Site *barrier_site;
    uint32_t random;
    bool failed;
    char message[320];
    stack_t old_signal_stack;
#if !OWN_SWITCH
    ucontext_t contexts[MOST_THREADS + 1];
#endif
};

extern thread_local Machine *machine;

inline size_t page_size() { return (size_t)sysconf(_SC_PAGESIZE); }
inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

inline char *reserve(size_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : (char *)at;
}
inline bool open_pages(char *at, size_t bytes) { return mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0; }

}  // namespace emulated
