// A driver and a run-time compiler without a card, for tests of what calls them.
//
// Memory of a device is memory of this process. Streams are queues whose work is done as late as possible: only when
// somebody waits for it, so that a buffer that is written again too early, or read before it was waited for, gives wrong bytes.
// Streams made after fake_eager(1) do theirs as early as what they wait for allows instead. Every call is checked: that a
// context is current, that streams and events are used in their own, that nothing is given back twice.
//
// With a library of kernels beside it (kernels.so, what kernels::Rebuilt makes) launches compute, on this processor; without,
// they leave a text. A process is told by variables of its environment, FAKE_.., what this is to be, and what happened stands
// in the file FAKE_REPORT when it ends.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, WRONG_CODE = 209, INVALID_HANDLE = 400, NOT_FOUND = 500,
    PEER_ENABLED = 704, LAUNCH_FAILED = 719,
};

// A kernel and a launch, as the emulator knows them (host/emulate.h, host/machine.h).
typedef struct { const char *file, *variant, *name, *kinds; unsigned threads, from; void (*run)(const uint64_t *); } Entry;
typedef struct {
    const Entry *entry; const char *label; uint32_t blocks[3], threads[2], shared, seed; const uint64_t *args;
} Launch;
typedef struct { char text[384]; const Entry *entry; } Function;

// `lost` is what every call returns once the device does not answer any more.
typedef struct Context { int device, alive, lost; struct Context *next; } Context;
typedef struct Stream Stream;
typedef struct { Context *context; Stream *stream; uint64_t place; int alive; } Event;
typedef struct Op {
    enum { COPY, FILL, RUN, WAIT } kind;
    void *to; const void *from; size_t bytes;
    char text[640];
    Launch launch; uint64_t args[64];
    Stream *other; uint64_t place;
    struct Op *next;
} Op;
struct Stream { Context *context; Op *first, *last; uint64_t asked, done; int eager, busy; Stream *next; };
typedef struct Block { Context *context; size_t bytes; int host; struct Block *next; void *at; } Block;

static Context *contexts;
static Stream *streams;
static Block *blocks;
static _Thread_local Context *current;
static int devices = 2, architectures[2] = {37, 37}, eager_next, peers_allowed, peers_wrong;
static int contexts_alive, streams_alive, events_alive, modules_alive, allocations, launches, passed_directly, compilations;
static size_t memory_size = (size_t)1 << 30, memory_used[2];
static char failing[64], ran[4096], kinds[64], complaint[512];
// The code of a call that fails, how many succeed before, and the only device on which it does, if there is one.
static int failing_code, failing_after, failing_on = -1;

// The emulator's functions, if there are any.
static const Entry *(*find_kernel)(const char *file, const char *variant, const char *name);
static const char *(*run_block)(const Launch *, uint64_t);
static void (*end_thread)(void);
static pthread_key_t at_end_of_thread;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void unlock(int *held) { pthread_mutex_unlock(&lock); }

#define EXPORT __attribute__((visibility("default")))

static Result complain(const char *what, Result code) {
    if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s", what);
    return code;
}

// Codes of the seven hundreds are those of a device that answers no more.
static int fails(const char *call) {
    int on = current ? current->device : -1;
    if (strcmp(failing, call) || (failing_on >= 0 && failing_on != on) || failing_after-- > 0) return 0;
    failing_after = 0;
    if (failing_code / 100 == 7 && current) current->lost = failing_code;
    return 1;
}
#define ENTER(call) __attribute__((cleanup(unlock))) int held = pthread_mutex_lock(&lock); if (fails(call)) return failing_code
#define IN_CONTEXT(call) ENTER(call); \
    if (!current || !current->alive) return complain(call ": no context", INVALID_CONTEXT); \
    if (current->lost) return current->lost

// What tests ask and say.
EXPORT void fake_fail(const char *call, int code) {
    snprintf(failing, sizeof failing, "%s", call);
    failing_code = code, failing_after = 0;
    for (Context *c = contexts; c; c = c->next) c->lost = 0;
}
EXPORT void fake_eager(int eager) { eager_next = eager; }
EXPORT void fake_peers(int allowed) { peers_allowed = allowed; }
EXPORT void fake_wrong_peers(int wrong) { peers_wrong = wrong; }
EXPORT void fake_memory(size_t bytes) { memory_size = bytes; }
EXPORT void fake_kinds(const char *text) { snprintf(kinds, sizeof kinds, "%s", text); }
EXPORT const char *fake_ran(void) { return ran; }
EXPORT const char *fake_complaint(void) { return complaint; }
EXPORT int fake_compilations(void) { return compilations; }
EXPORT int fake_allocations(void) { return allocations; }
EXPORT int fake_alive(void) {
    int blocks_alive = 0;
    for (Block *b = blocks; b; b = b->next) blocks_alive++;
    return contexts_alive + streams_alive + modules_alive + blocks_alive;
}

static void end_of_thread(void *used) { end_thread(); }

// Runs a kernel; one that fails loses the device.
static void compute(Op *op, Context *context) {
    pthread_setspecific(at_end_of_thread, op);
    launches++;
    int told = !strcmp(failing, "kernel") && (failing_on < 0 || failing_on == context->device) && failing_after-- <= 0;
    if (told) context->lost = LAUNCH_FAILED;
    uint64_t blocks = (uint64_t)op->launch.blocks[0] * op->launch.blocks[1] * op->launch.blocks[2];
    for (uint64_t i = 0; i < blocks && !context->lost; i++) {
        const char *message = run_block(&op->launch, i);
        if (message) context->lost = complain(message, LAUNCH_FAILED);
    }
}

static void perform(Op *op, Context *context) {
    if (context->lost) return;
    if (op->kind == COPY) memcpy(op->to, op->from, op->bytes);
    if (op->kind == FILL) memset(op->to, 0, op->bytes);
    if (op->kind == RUN && op->launch.entry) compute(op, context);
    else if (op->kind == RUN) strncat(ran, op->text, sizeof ran - strlen(ran) - 1);
}

static void take(Stream *s) {
    Op *op = s->first;
    perform(op, s->context);
    s->first = op->next;
    if (!s->first) s->last = NULL;
    s->done++;
    free(op);
}

// Eager streams go on as far as they can without anybody else's work.
static void poke(void) {
    for (int moved = 1; moved;) {
        moved = 0;
        for (Stream *s = streams; s; s = s->next) {
            while (s->eager && !s->busy && s->first) {
                if (s->first->kind == WAIT && s->first->other->done < s->first->place) break;
                take(s);
                moved = 1;
            }
        }
    }
}

static void run(Stream *s, uint64_t place) {
    while (s->done < place) {
        if (s->busy) {
            fprintf(stderr, "streams wait for each other\n");
            abort();
        }
        if (s->first->kind == WAIT) {
            s->busy = 1;
            run(s->first->other, s->first->place);
            s->busy = 0;
        }
        if (s->done < place) take(s);
        poke();
    }
}

static Op *ask(Stream *s, int kind) {
    Op *op = calloc(1, sizeof *op);
    op->kind = kind;
    if (s->last) s->last->next = op; else s->first = op;
    s->last = op;
    s->asked++;
    return op;
}

static Block *block_of(const void *at, size_t bytes) {
    for (Block *b = blocks; b; b = b->next)
        if ((char *)at >= (char *)b->at && (char *)at + bytes <= (char *)b->at + b->bytes) return b;
    return NULL;
}

static Result allocate(void **at, size_t bytes, int host) {
    Block *b = calloc(1, sizeof *b);
    b->context = current, b->bytes = bytes, b->host = host, b->next = blocks;
    b->at = aligned_alloc(512, (bytes + 511) / 512 * 512);
    memset(b->at, 0xcd, bytes);
    blocks = b;
    *at = b->at;
    if (!host) memory_used[current->device] += bytes;
    allocations++;
    return OK;
}

static int needs(const Op *op, const Block *block) {
    if (op->kind == COPY || op->kind == FILL)
        return block_of(op->to, 1) == block || (op->from && block_of(op->from, 1) == block);
    for (int i = 0; op->launch.entry && op->launch.entry->kinds[i]; i++)
        if (op->launch.entry->kinds[i] == 'p' && block_of((void *)op->args[i], 1) == block) return 1;
    return 0;
}

static Result give(void *at, int host) {
    for (Block **b = &blocks; *b; b = &(*b)->next) {
        if ((*b)->at != at || (*b)->host != host) continue;
        Block *gone = *b;
        if (!host && gone->context != current) return complain("memory given back in another context", INVALID_CONTEXT);
        // What a lost device was asked for, it does not do any more.
        for (Stream *s = streams; s; s = s->next)
            for (Op *op = s->context && !s->context->lost ? s->first : NULL; op; op = op->next)
                if (needs(op, gone)) complain("memory given back while something needs it", 0);
        *b = gone->next;
        if (!host) memory_used[current->device] -= gone->bytes;
        free(gone->at);
        free(gone);
        return OK;
    }
    return complain("memory given back that is none", INVALID_VALUE);
}

static Result copy(const char *call, Stream *s, void *to, Context *to_context, const void *from, Context *from_context, size_t bytes) {
    Block *a = block_of(to, bytes), *b = block_of(from, bytes);
    if (s->context != current) return complain(call, INVALID_CONTEXT);
    if (!a || !b || a->host != !to_context || b->host != !from_context) return complain(call, INVALID_VALUE);
    if ((to_context && a->context != to_context) || (from_context && b->context != from_context))
        return complain(call, INVALID_CONTEXT);
    Op *op = ask(s, COPY);
    op->to = to, op->from = from, op->bytes = bytes;
    poke();
    return OK;
}

EXPORT Result cuGetErrorName(Result code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
        : code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
        : code == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" : NULL;
    return *name ? OK : INVALID_VALUE;
}
EXPORT Result cuDriverGetVersion(int *version) { *version = fails("version") ? failing_code : 11040; return OK; }
EXPORT Result cuInit(unsigned flags) { ENTER("cuInit"); return flags ? INVALID_VALUE : OK; }
EXPORT Result cuDeviceGetCount(int *count) { *count = devices; return OK; }
EXPORT Result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < devices ? OK : 101; }
EXPORT Result cuDeviceGetName(char *name, int len, int device) { snprintf(name, len, architectures[device] == 37 ? "Tesla K80" : "Some Card"); return OK; }
EXPORT Result cuDeviceGetAttribute(int *value, int which, int device) { *value = which == 75 ? architectures[device] / 10 : which == 76 ? architectures[device] % 10 : 0; return OK; }
EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = memory_size; return OK; }
EXPORT Result cuDeviceGetPCIBusId(char *bus, int len, int device) { snprintf(bus, len, "0000:%02X:00.0", 10 + device); return OK; }
EXPORT Result cuDeviceCanAccessPeer(int *can, int a, int b) { *can = peers_allowed && a != b; return OK; }
EXPORT Result cuCtxEnablePeerAccess(Context *other, unsigned flags) {
    IN_CONTEXT("cuCtxEnablePeerAccess");
    return other->device == current->device ? INVALID_VALUE : peers_allowed > 1 ? PEER_ENABLED : OK;
}
EXPORT Result cuCtxCreate_v2(Context **made, unsigned flags, int device) {
    ENTER("cuCtxCreate");
    *made = calloc(1, sizeof **made);
    (*made)->device = device, (*made)->alive = 1;
    (*made)->next = contexts;
    contexts = current = *made;
    contexts_alive++;
    return OK;
}
EXPORT Result cuCtxSetCurrent(Context *c) {
    ENTER("cuCtxSetCurrent");
    if (!c->alive) return complain("a context that is gone", INVALID_CONTEXT);
    current = c;
    return OK;
}
EXPORT Result cuCtxDestroy_v2(Context *c) {
    ENTER("cuCtxDestroy");
    if (!c->alive) return complain("a context destroyed twice", INVALID_CONTEXT);
    c->alive = 0;
    contexts_alive--;
    if (current == c) current = NULL;
    return OK;
}
EXPORT Result cuCtxSynchronize(void) {
    IN_CONTEXT("cuCtxSynchronize");
    for (Stream *s = streams; s; s = s->next)
        if (s->context == current) run(s, s->asked);
    return current->lost;
}
EXPORT Result cuStreamCreate(Stream **made, unsigned flags) {
    IN_CONTEXT("cuStreamCreate");
    if (flags != 1) return complain("a stream that waits for others by itself", INVALID_VALUE);
    Stream *s = calloc(1, sizeof *s);
    s->context = current, s->eager = eager_next, s->next = streams;
    streams = *made = s;
    streams_alive++;
    return OK;
}
EXPORT Result cuStreamDestroy_v2(Stream *s) {
    IN_CONTEXT("cuStreamDestroy");
    run(s, s->asked);
    s->context = NULL;
    streams_alive--;
    return OK;
}
EXPORT Result cuStreamSynchronize(Stream *s) {
    IN_CONTEXT("cuStreamSynchronize");
    if (s->context != current) return complain("cuStreamSynchronize", INVALID_CONTEXT);
    run(s, s->asked);
    return current->lost;
}
EXPORT Result cuEventCreate(Event **made, unsigned flags) {
    IN_CONTEXT("cuEventCreate");
    *made = calloc(1, sizeof **made);
    (*made)->context = current, (*made)->alive = 1;
    events_alive++;
    return OK;
}
EXPORT Result cuEventRecord(Event *e, Stream *s) {
    IN_CONTEXT("cuEventRecord");
    if (e->context != s->context || s->context != current) return complain("cuEventRecord", INVALID_HANDLE);
    e->stream = s, e->place = s->asked;
    return OK;
}
EXPORT Result cuEventSynchronize(Event *e) {
    IN_CONTEXT("cuEventSynchronize");
    if (e->stream) run(e->stream, e->place);
    return current->lost;
}
EXPORT Result cuEventElapsedTime(float *ms, Event *a, Event *b) {
    IN_CONTEXT("cuEventElapsedTime");
    *ms = (float)(b->place - a->place);
    return OK;
}
EXPORT Result cuStreamWaitEvent(Stream *s, Event *e, unsigned flags) {
    IN_CONTEXT("cuStreamWaitEvent");
    if (s->context != current || !e->stream) return complain("cuStreamWaitEvent", INVALID_HANDLE);
    if (e->stream == s) return OK;
    Op *op = ask(s, WAIT);
    op->other = e->stream, op->place = e->place;
    poke();
    return OK;
}
EXPORT Result cuMemAlloc_v2(uint64_t *at, size_t bytes) {
    IN_CONTEXT("cuMemAlloc");
    if (memory_used[current->device] + bytes > memory_size) return OUT_OF_MEMORY;
    return allocate((void **)at, bytes, 0);
}
EXPORT Result cuMemFree_v2(uint64_t at) { IN_CONTEXT("cuMemFree"); return give((void *)at, 0); }
EXPORT Result cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    IN_CONTEXT("cuMemHostAlloc");
    return flags == 1 ? allocate(at, bytes, 1) : INVALID_VALUE;
}
EXPORT Result cuMemFreeHost(void *at) { IN_CONTEXT("cuMemFreeHost"); return give(at, 1); }
EXPORT Result cuMemGetInfo_v2(size_t *left, size_t *total) {
    IN_CONTEXT("cuMemGetInfo");
    *left = memory_size - memory_used[current->device], *total = memory_size;
    return OK;
}
EXPORT Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *s) {
    IN_CONTEXT("cuMemcpyHtoDAsync");
    return copy("cuMemcpyHtoDAsync", s, (void *)to, current, from, NULL, bytes);
}
EXPORT Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *s) {
    IN_CONTEXT("cuMemcpyDtoHAsync");
    return copy("cuMemcpyDtoHAsync", s, to, NULL, (void *)from, current, bytes);
}
EXPORT Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *s) {
    IN_CONTEXT("cuMemcpyDtoDAsync");
    return copy("cuMemcpyDtoDAsync", s, (void *)to, current, (void *)from, current, bytes);
}
EXPORT Result cuMemcpyPeerAsync(uint64_t to, Context *here, uint64_t from, Context *there, size_t bytes, Stream *s) {
    IN_CONTEXT("cuMemcpyPeerAsync");
    if (here->device != there->device) passed_directly++;
    // A driver would find a way, a slow one that this program has better ones for.
    if (here->device != there->device && !peers_allowed) return complain("cuMemcpyPeerAsync", INVALID_VALUE);
    // Bytes that get lost between cards.
    if (peers_wrong && here->device != there->device) bytes /= 2;
    return copy("cuMemcpyPeerAsync", s, (void *)to, here, (void *)from, there, bytes);
}
EXPORT Result cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, Stream *s) {
    IN_CONTEXT("cuMemsetD8Async");
    if (s->context != current || !block_of((void *)at, bytes) || value) return complain("cuMemsetD8Async", INVALID_VALUE);
    Op *op = ask(s, FILL);
    op->to = (void *)at, op->bytes = bytes;
    poke();
    return OK;
}
EXPORT Result cuModuleLoadDataEx(char **module, const char *image, unsigned count, int *options, void **values) {
    IN_CONTEXT("cuModuleLoadDataEx");
    if (count == 2 && options[0] == 5 && fails("load")) {
        snprintf(values[0], (size_t)values[1], "what the log says");
        return failing_code;
    }
    int architecture = architectures[current->device];
    // Machine code runs on its own architecture, portable code on that and later ones.
    const char *machine = strstr(image, "--gpu-architecture=sm_"), *portable = strstr(image, "--gpu-architecture=compute_");
    if (machine ? atoi(machine + 22) != architecture : !portable || atoi(portable + 27) > architecture)
        return complain("cuModuleLoadDataEx: code of another architecture", WRONG_CODE);
    *module = strdup(image);
    modules_alive++;
    return OK;
}
EXPORT Result cuModuleUnload(char *module) { IN_CONTEXT("cuModuleUnload"); free(module); modules_alive--; return OK; }
EXPORT Result cuModuleGetFunction(Function **function, const char *module, const char *name) {
    IN_CONTEXT("cuModuleGetFunction");
    Function *f = *function = calloc(1, sizeof **function);
    snprintf(f->text, sizeof f->text, "%s: %s", module, name);
    if (!find_kernel) return OK;
    // `rows.cu --gpu-architecture=..`, perhaps with `--define-macro=VARIANT=..`.
    char file[64] = "", variant[64] = "";
    sscanf(module, "%63[^.]", file);
    const char *defined = strstr(module, "VARIANT=");
    if (defined) sscanf(defined, "VARIANT=%63s", variant);
    f->entry = find_kernel(file, variant, name);
    return f->entry ? OK : complain(f->text, NOT_FOUND);
}
// What is wrong with a launch, if anything.
static const char *wrong(const Launch *l) {
    uint64_t threads = (uint64_t)l->threads[0] * l->threads[1];
    if (l->entry->from > architectures[current->device]) return "a kernel for later architectures";
    if (!threads || threads > l->entry->threads) return "threads of a block";
    if (!l->blocks[0] || !l->blocks[1] || !l->blocks[2] || l->blocks[1] > 65535 || l->blocks[2] > 65535) return "blocks";
    if (l->shared > 48 << 10) return "shared memory";
    for (int i = 0; l->entry->kinds[i]; i++) {
        Block *b = l->entry->kinds[i] == 'p' && l->args[i] ? block_of((void *)l->args[i], 1) : NULL;
        if (l->entry->kinds[i] == 'p' && l->args[i] && (!b || b->host || b->context != current)) return "an address of no memory here";
    }
    return NULL;
}
EXPORT Result cuLaunchKernel(const Function *f, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                             unsigned shared, Stream *s, void **arguments, void **extra) {
    IN_CONTEXT("cuLaunchKernel");
    if (s->context != current || tz != 1) return complain("cuLaunchKernel", INVALID_CONTEXT);
    Op *op = ask(s, RUN);
    op->launch = (Launch){f->entry, op->text, {x, y, z}, {tx, ty}, shared, 0, op->args};
    int n = snprintf(op->text, sizeof op->text, "%s %ux%ux%u of %ux%ux%u with %u:", f->text, x, y, z, tx, ty, tz, shared);
    const char *parameters = f->entry ? f->entry->kinds : kinds;
    for (int i = 0; parameters[i]; i++) {
        char *rest = op->text + n;
        size_t left = n < sizeof op->text ? sizeof op->text - n : 0;
        op->args[i] = parameters[i] == 'p' ? *(uint64_t *)arguments[i] : *(uint32_t *)arguments[i];
        if (f->entry) continue;
        if (parameters[i] == 'p') n += snprintf(rest, left, " %llu", (unsigned long long)op->args[i]);
        if (parameters[i] == 'i') n += snprintf(rest, left, " %d", *(int *)arguments[i]);
        if (parameters[i] == 'f') n += snprintf(rest, left, " %g", *(float *)arguments[i]);
    }
    if (!f->entry) snprintf(op->text + n, sizeof op->text - n, "\n");
    const char *why = f->entry ? wrong(&op->launch) : NULL;
    if (why) {
        char told[1024];
        snprintf(told, sizeof told, "%s: %s", op->text, why);
        op->launch.entry = NULL, op->text[0] = 0;
        return complain(told, INVALID_VALUE);
    }
    poke();
    return OK;
}

// The compiler: its code names the file, the target and the variant.
typedef struct { char name[64], code[256]; } Program;
static const int known[] = {35, 37, 61, 80};
EXPORT const char *nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR"; }
EXPORT int nvrtcVersion(int *major, int *minor) { *major = 11, *minor = 8; return 0; }
EXPORT int nvrtcGetNumSupportedArchs(int *count) { *count = 4; return 0; }
EXPORT int nvrtcGetSupportedArchs(int *list) { memcpy(list, known, sizeof known); return 0; }
EXPORT int nvrtcCreateProgram(Program **p, const char *text, const char *name, int count, const char **texts, const char **names) {
    *p = calloc(1, sizeof **p);
    snprintf((*p)->name, 64, "%s", name);
    return 0;
}
EXPORT int nvrtcCompileProgram(Program *p, int count, const char **options) {
    if (fails("compile")) return 6;
    int n = snprintf(p->code, sizeof p->code, "%s", p->name), exact = 0;
    for (int i = 0; i < count; i++) {
        n += snprintf(p->code + n, sizeof p->code - n, " %s", options[i]);
        exact += !strcmp(options[i], "--fmad=false");
        // What else there is changes bits, or might.
        const char *others[] = {"--gpu-architecture=", "--std=c++17", "--fmad=false", "--define-macro=VARIANT="};
        int expected = 0;
        for (int k = 0; k < 4; k++) expected += !strncmp(options[i], others[k], strlen(others[k]));
        if (!expected) complain(options[i], 0);
    }
    if (exact != 1) complain("products and sums may be fused", 0);
    __atomic_add_fetch(&compilations, 1, __ATOMIC_SEQ_CST);
    return 0;
}
EXPORT int nvrtcDestroyProgram(Program **p) { free(*p); *p = NULL; return 0; }
static const char LOG[] = "line 1: what is wrong";
EXPORT int nvrtcGetProgramLogSize(Program *p, size_t *size) { *size = sizeof LOG; return 0; }
EXPORT int nvrtcGetProgramLog(Program *p, char *log) { memcpy(log, LOG, sizeof LOG); return 0; }
EXPORT int nvrtcGetCUBINSize(Program *p, size_t *size) { *size = strlen(p->code) + 1; return 0; }
EXPORT int nvrtcGetCUBIN(Program *p, char *code) { strcpy(code, p->code); return 0; }
EXPORT int nvrtcGetPTXSize(Program *p, size_t *size) { return nvrtcGetCUBINSize(p, size); }
EXPORT int nvrtcGetPTX(Program *p, char *code) { return nvrtcGetCUBIN(p, code); }

// What a process is told, and what it leaves.
static int setting(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

__attribute__((constructor)) static void begin(void) {
    // One number, or one for each.
    const char *text = getenv("FAKE_ARCHITECTURE");
    if (text && sscanf(text, "%d,%d", &architectures[0], &architectures[1]) == 1) architectures[1] = architectures[0];
    eager_next = setting("FAKE_EAGER", 0);
    peers_allowed = setting("FAKE_PEERS", 0);
    memory_size = (size_t)setting("FAKE_MEMORY", 1024) << 20;
    // cuLaunchKernel:719:1000:1 loses the second device at the launch after its thousandth.
    if (getenv("FAKE_FAIL")) sscanf(getenv("FAKE_FAIL"), "%63[^:]:%d:%d:%d", failing, &failing_code, &failing_after, &failing_on);
    Dl_info here;
    char path[4096];
    if (!dladdr(&lock, &here) || !strrchr(here.dli_fname, '/')) return;
    snprintf(path, sizeof path, "%.*s/kernels.so", (int)(strrchr(here.dli_fname, '/') - here.dli_fname), here.dli_fname);
    void *kernels = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!kernels) return;
    *(void **)&find_kernel = dlsym(kernels, "emulated_find");
    *(void **)&run_block = dlsym(kernels, "emulated_block");
    *(void **)&end_thread = dlsym(kernels, "emulated_end_thread");
    pthread_key_create(&at_end_of_thread, end_of_thread);
}

__attribute__((destructor)) static void end(void) {
    FILE *report = getenv("FAKE_REPORT") ? fopen(getenv("FAKE_REPORT"), "w") : NULL;
    if (!report) return;
    fprintf(report, "complaint %s\nalive %d\nlaunches %d\npassed directly %d\n", complaint, fake_alive(), launches, passed_directly);
    fclose(report);
}
