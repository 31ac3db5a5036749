// Memory between inaccessible pages, and what is said when a kernel touches them.
#include "machine.h"

namespace emulated {

struct Known {
    char *begin;
    size_t bytes;
};
// What the fault handler looks through; memory beyond this many allocations is guarded all the same.
static Known known[4096];

static void remember(char *begin, size_t bytes) {
    for (Known &slot : known) {
        char *none = nullptr;
        if (__atomic_compare_exchange_n(&slot.begin, &none, begin, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            slot.bytes = bytes;
            return;
        }
    }
}

static void forget(char *begin) {
    for (Known &slot : known) {
        char *it = begin;
        if (__atomic_compare_exchange_n(&slot.begin, &it, (char *)nullptr, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return;
    }
}

// A line for stderr, made without the library, for use in a signal handler.
struct Line {
    char text[512];
    size_t length = 0;
    void put(const char *s) {
        while (*s && length < sizeof text) text[length++] = *s++;
    }
    void put(uint64_t number, unsigned base = 10) {
        char digits[24];
        int n = 23;
        digits[n] = 0;
        do digits[--n] = "0123456789abcdef"[number % base];
        while ((number /= base) != 0);
        put(digits + n);
    }
};

static void place(Line &line, char *at) {
    Machine &m = *machine;
    if (at >= m.stacks && at < m.stacks + (STACK + m.page) * MOST_THREADS)
        return line.put("a thread's local memory, 64 KiB here, is full");
    for (char *end : {m.shared_end, m.static_end}) {
        if (at < end || at >= end + m.page) continue;
        line.put((uint64_t)(at - end));
        return line.put(" bytes behind the end of shared memory");
    }
    for (const Known &slot : known) {
        char *begin = slot.begin;
        if (!begin || at + 65536 < begin || at > begin + slot.bytes + 65536) continue;
        bool before = at < begin;
        line.put(before ? (uint64_t)(begin - at) : (uint64_t)(at - begin - slot.bytes));
        line.put(before ? " bytes before an allocation of " : " bytes behind the end of an allocation of ");
        line.put(slot.bytes);
        return line.put(" bytes");
    }
    line.put("no allocation is near");
}

static struct sigaction old_actions[3];
static const int fault_signals[3] = {SIGSEGV, SIGBUS, SIGFPE};

static void on_fault(int signal, siginfo_t *info, void *context) {
    for (int i = 0; i < 3; i++) {
        if (fault_signals[i] != signal || (machine && current)) continue;
        const struct sigaction &old = old_actions[i];
        if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(signal, info, context);
        if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(signal);
    }
    if (machine && current) {
        Line line;
        line.put("emulated device: kernel ");
        line.put(machine->launch->label);
        line.put(", block (");
        line.put(block.x);
        line.put(", ");
        line.put(block.y);
        line.put(", ");
        line.put(block.z);
        line.put("), thread (");
        line.put(current->thread.x);
        line.put(", ");
        line.put(current->thread.y);
        if (signal == SIGFPE) {
            line.put(") divides an integer by zero");
        } else {
            line.put(") reads or writes out of bounds at 0x");
            line.put((uint64_t)(uintptr_t)info->si_addr, 16);
            line.put(": ");
            place(line, (char *)info->si_addr);
        }
        line.put("\n");
        if (write(2, line.text, line.length) < 0) _exit(134);
    }
    // The instruction runs once more and ends the process as the signal's default.
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
}

}  // namespace emulated

using namespace emulated;

// Memory whose last byte, rounded up to 256, is followed by an inaccessible page, and whose first page follows another;
// all bytes, those before the beginning too, are 0xff. Null if there is none. `front` gets how many bytes lie before.
extern "C" char *emulated_map(size_t bytes, size_t *front) {
    size_t page = page_size(), body = round_up(bytes, page);
    char *all = reserve(body + 2 * page);
    if (!all) return nullptr;
    if (!open_pages(all + page, body)) {
        munmap(all, body + 2 * page);
        return nullptr;
    }
    memset(all + page, 0xff, body);
    *front = body - round_up(bytes, 256);
    remember(all + page + *front, bytes);
    return all + page + *front;
}

extern "C" void emulated_unmap(char *begin, size_t bytes) {
    forget(begin);
    size_t page = page_size(), body = round_up(bytes, page);
    munmap(begin + round_up(bytes, 256) - body - page, body + 2 * page);
}

// From now on a fault inside a kernel says which.
extern "C" void emulated_catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 3; i++) sigaction(fault_signals[i], &action, &old_actions[i]);
}
