/* A stand-in for libnvidia-ml.so.1. It implements the NVML calls that gpuwidget makes, and returns the values
 * that a scenario sets.
 *
 * The variable NVML_STANDIN names the scenario, a file of key=value lines that is read again whenever it
 * changes. NVML_STANDIN_CALLS names a file that counts the calls of each function over all processes.
 * NVML_STANDIN_SERVED names a file that contains the newest values returned, over all processes.
 * __init__.py describes the keys.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10
};
enum { MAX_GPUS = 16, MAX_SLICES = 7, MAX_LINES = 2048, MAX_TEXT = 1 << 16, MAX_VALUE = 1024, SAMPLES = 70 };
enum { STARTS = 8, MAX_SERVED = 1 << 16 };

typedef int result;

typedef struct {
    int gpu, slice; /* slice is -1 for a whole GPU */
    int start;      /* the driver's start, modulo STARTS, for which the handle is valid */
} device;

typedef struct {
    device *of;
    int busy;
} sample;

/* Median microseconds of a call on one H200, measured under load where that is known. pynvml calls
 * nvmlDeviceGetSamples twice, so its value is half of what both calls take. A call that is not in this table
 * takes about 1 us. */
static const struct {
    const char *name;
    double us;
} H200[] = {
    {"nvmlDeviceGetUtilizationRates", 0.8},
    {"nvmlDeviceGetMemoryInfo", 4.4},
    {"nvmlDeviceGetMemoryInfo_v2", 4.4},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 26},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", 6},
    {"nvmlDeviceGetTotalEnergyConsumption", 3450},
    {"nvmlDeviceGetSamples", 1000},
    {"nvmlDeviceGetMaxMigDeviceCount", 144},
    {"nvmlGpmSampleGet", 190},
    {"nvmlGpmMigSampleGet", 190},
};
static const double OTHER_US = 1.2;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device devices[STARTS][MAX_GPUS][MAX_SLICES + 1];
static int initialized, start;

/* -- the scenario (callers hold the lock) -------------------------------------------------------------- */

static char text[MAX_TEXT];
static struct {
    uint32_t hash;
    const char *key, *value;
} lines[MAX_LINES];
static int line_count, effects;
static struct stat loaded;
static double joules[MAX_GPUS], joules_at;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static uint32_t hash_of(const char *key) {
    uint32_t hash = 2166136261u;
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static const char *find(const char *key) {
    uint32_t hash = hash_of(key);
    for (int i = line_count - 1; i >= 0; i--)
        if (lines[i].hash == hash && !strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

static const char *find_for(const device *of, const char *name) {
    char key[160];
    const char *value = NULL;
    if (of && of->slice >= 0) {
        snprintf(key, sizeof key, "gpu.%d.mig.%d.%s", of->gpu, of->slice, name);
        value = find(key);
    }
    if (of && !value) {
        snprintf(key, sizeof key, "gpu.%d.%s", of->gpu, name);
        value = find(key);
    }
    if (of && !value) {
        snprintf(key, sizeof key, "gpu.*.%s", name);
        value = find(key);
    }
    return value ? value : of ? NULL : find(name);
}

static double number(const device *of, const char *name, double otherwise) {
    const char *value = find_for(of, name);
    return value ? strtod(value, NULL) : otherwise;
}

static double power(int gpu) {
    device of = {gpu, -1, 0};
    return number(&of, "power", 76);
}

static void integrate_energy(void) {
    double now = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < MAX_GPUS && joules_at; i++) joules[i] += power(i) * (now - joules_at);
    joules_at = now;
}

static void refresh(void) {
    const char *path = getenv("NVML_STANDIN");
    struct stat now;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == loaded.st_ino && now.st_size == loaded.st_size &&
        now.st_mtim.tv_sec == loaded.st_mtim.tv_sec && now.st_mtim.tv_nsec == loaded.st_mtim.tv_nsec)
        return;
    int file = open(path, O_RDONLY);
    if (file < 0) return;
    integrate_energy();
    ssize_t size = read(file, text, MAX_TEXT - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    loaded = now;
    line_count = effects = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line && line_count < MAX_LINES;
         line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (!equals || *line == '#') continue;
        *equals = 0;
        lines[line_count].hash = hash_of(line);
        lines[line_count].key = line;
        lines[line_count++].value = equals + 1;
        effects |= !strncmp(equals + 1, "error ", 6) || !strncmp(equals + 1, "slow ", 5) ||
                   !strcmp(equals + 1, "hang");
    }
    int restarts = (int)number(NULL, "restarts", 0) % STARTS;
    if (restarts != start) initialized = 0;
    start = restarts;
}

static const char *effect_on(const device *of, const char *function) {
    const char *value = NULL;
    char key[160];
    if (!effects) return "";
    if (of && of->slice >= 0) {
        snprintf(key, sizeof key, "gpu.%d.mig.%d.%s", of->gpu, of->slice, function);
        if (!(value = find(key))) {
            snprintf(key, sizeof key, "gpu.%d.mig.%d.*", of->gpu, of->slice);
            value = find(key);
        }
    }
    if (of && !value) {
        snprintf(key, sizeof key, "gpu.%d.%s", of->gpu, function);
        if (!(value = find(key))) {
            snprintf(key, sizeof key, "gpu.%d.*", of->gpu);
            value = find(key);
        }
        if (!value) {
            snprintf(key, sizeof key, "gpu.*.%s", function);
            value = find(key);
        }
    }
    if (!value && !(value = find(function))) value = find("*");
    return value ? value : "";
}

static result error_in(const char *value) {
    return value && !strncmp(value, "error ", 6) ? atoi(value + 6) : SUCCESS;
}

/* -- the values returned ------------------------------------------------------------------------------- */

struct served {
    double time; /* CLOCK_MONOTONIC */
    double value;
    int pid;
    short gpu, slice;
    char what[8];
};

static struct {
    uint64_t count;
    struct served ring[MAX_SERVED];
} *served;

/* Record a value that a call returns. Does nothing without NVML_STANDIN_SERVED. */
static void serve(const device *of, const char *what, double value) {
    static int opened;
    if (!opened) {
        opened = 1;
        const char *path = getenv("NVML_STANDIN_SERVED");
        int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
        if (file >= 0 && !ftruncate(file, sizeof *served)) {
            served = mmap(NULL, sizeof *served, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (served == MAP_FAILED) served = NULL;
        }
        if (file >= 0) close(file);
    }
    if (!served) return;
    uint64_t at = __atomic_fetch_add(&served->count, 1, __ATOMIC_RELAXED);
    struct served *entry = served->ring + at % MAX_SERVED;
    *entry = (struct served){seconds(CLOCK_MONOTONIC), value, getpid(), (short)of->gpu, (short)of->slice, ""};
    for (size_t i = 0; i < sizeof entry->what && what[i]; i++) entry->what[i] = what[i];
}

/* -- the start of every call --------------------------------------------------------------------------- */

static struct counter {
    char name[56];
    uint64_t count;
} *counters;
enum { MAX_COUNTERS = 128 };

static struct counter *counter_of(const char *name) {
    static struct counter private[MAX_COUNTERS];
    if (!counters) {
        const char *path = getenv("NVML_STANDIN_CALLS");
        int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
        counters = private;
        if (file >= 0 && !ftruncate(file, sizeof private)) {
            void *shared = mmap(NULL, sizeof private, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (shared != MAP_FAILED) counters = shared;
        }
        if (file >= 0) close(file);
    }
    for (struct counter *each = counters; each < counters + MAX_COUNTERS - 1; each++) {
        if (!each->name[0]) strncpy(each->name, name, sizeof each->name - 1);
        if (!strcmp(each->name, name)) return each;
    }
    return counters + MAX_COUNTERS - 1;
}

static void pass_time(const char *function, double began) {
    double us = OTHER_US;
    for (size_t i = 0; i < sizeof H200 / sizeof *H200; i++)
        if (!strcmp(H200[i].name, function)) us = H200[i].us;
    if (us >= 1000) usleep((useconds_t)us); /* a real driver sleeps while the GPU works */
    while (seconds(CLOCK_MONOTONIC) < began + us * 1e-6) {
    }
}

static result begin(struct counter **counter, const char *function, const device *of, int needs_init) {
    double began = seconds(CLOCK_MONOTONIC);
    pthread_mutex_lock(&lock);
    if (!*counter) *counter = counter_of(function);
    __atomic_add_fetch(&(*counter)->count, 1, __ATOMIC_RELAXED);
    refresh();
    const char *effect;
    while (effect = effect_on(of, function), !strcmp(effect, "hang")) {
        pthread_mutex_unlock(&lock);
        usleep(2000);
        pthread_mutex_lock(&lock);
        refresh();
    }
    result outcome = error_in(effect);
    if (!strncmp(effect, "slow ", 5)) {
        useconds_t us = (useconds_t)(atoi(effect + 5) * 1000);
        pthread_mutex_unlock(&lock);
        usleep(us);
        pthread_mutex_lock(&lock);
        refresh();
    }
    if (!outcome && needs_init && !initialized) outcome = UNINITIALIZED;
    if (!outcome && of && of->start != start) outcome = INVALID_ARGUMENT;
    const char *latency = find("latency");
    int slow = latency && !strcmp(latency, "h200");
    pthread_mutex_unlock(&lock);
    if (slow) pass_time(function, began);
    return outcome;
}

#define BEGIN(of)                                                    \
    static struct counter *counter;                                  \
    {                                                                \
        result outcome = begin(&counter, __func__, of, 1);           \
        if (outcome) return outcome;                                 \
    }
#define LOCKED(statement)            \
    do {                             \
        pthread_mutex_lock(&lock);   \
        statement;                   \
        pthread_mutex_unlock(&lock); \
    } while (0)
#define WHOLE_GPU_ONLY(of) \
    if (of->slice >= 0) return INVALID_ARGUMENT
#define NUMBER(name, of, type, what, otherwise, factor)                       \
    result name(device *of, type *out) {                                      \
        BEGIN(of);                                                            \
        WHOLE_GPU_ONLY(of);                                                   \
        LOCKED(*out = (type)llround(number(of, what, otherwise) * (factor))); \
        serve(of, what, (double)*out / (factor));                             \
        return SUCCESS;                                                       \
    }

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void set_up(void) {
    for (int each = 0; each < STARTS; each++)
        for (int gpu = 0; gpu < MAX_GPUS; gpu++)
            for (int slice = -1; slice < MAX_SLICES; slice++)
                devices[each][gpu][slice + 1] = (device){gpu, slice, each};
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* -- initialization, versions and the number of GPUs --------------------------------------------------- */

result nvmlInitWithFlags(unsigned flags) {
    static struct counter *counter;
    (void)flags;
    result outcome = begin(&counter, __func__, NULL, 0);
    if (!outcome) LOCKED(initialized++);
    return outcome;
}

result nvmlShutdown(void) {
    BEGIN(NULL);
    LOCKED(initialized--);
    return SUCCESS;
}

const char *nvmlErrorString(result code) { return code == 20 ? "Insufficient Memory" : "Some Other Error"; }

static result copy(const device *of, const char *name, const char *otherwise, char *out, unsigned size) {
    pthread_mutex_lock(&lock);
    const char *value = find_for(of, name);
    snprintf(out, size, "%s", value ? value : otherwise);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

result nvmlSystemGetDriverVersion(char *out, unsigned size) {
    BEGIN(NULL);
    return copy(NULL, "driver", "580.159.04", out, size);
}

result nvmlSystemGetCudaDriverVersion_v2(int *out) {
    BEGIN(NULL);
    LOCKED(*out = (int)number(NULL, "cuda", 13000));
    return SUCCESS;
}

result nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN(NULL);
    LOCKED(*out = (unsigned)number(NULL, "gpus", 1));
    return SUCCESS;
}

/* -- identity of a GPU --------------------------------------------------------------------------------- */

result nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    if (index >= MAX_GPUS) return INVALID_ARGUMENT;
    device *of;
    LOCKED(refresh(); of = &devices[start][index][0]);
    BEGIN(of);
    *out = of;
    return SUCCESS;
}

result nvmlDeviceGetUUID(device *of, char *out, unsigned size) {
    char otherwise[64];
    BEGIN(of);
    if (of->slice < 0) snprintf(otherwise, sizeof otherwise, "GPU-00000000-0000-4000-8000-%012d", of->gpu);
    else snprintf(otherwise, sizeof otherwise, "MIG-%08d-0000-4000-8000-%012d", of->slice, of->gpu);
    return copy(of, of->slice < 0 ? "uuid" : "slice_uuid", otherwise, out, size);
}

result nvmlDeviceGetName(device *of, char *out, unsigned size) {
    BEGIN(of);
    return copy(of, of->slice < 0 ? "name" : "slice_name",
                of->slice < 0 ? "NVIDIA H200" : "NVIDIA H200 MIG 1g.18gb", out, size);
}

typedef struct {
    char legacy[16];
    unsigned numbers[5];
    char id[32];
} pci_info;

result nvmlDeviceGetPciInfo_v3(device *of, pci_info *out) {
    char otherwise[32];
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    snprintf(otherwise, sizeof otherwise, "00000000:%02X:00.0", of->gpu + 1);
    return copy(of, "pci", otherwise, out->id, sizeof out->id);
}

result nvmlDeviceGetCudaComputeCapability(device *of, int *major, int *minor) {
    BEGIN(of);
    double version;
    LOCKED(version = number(of, "compute_capability", 9.0));
    *major = (int)version;
    *minor = (int)lround((version - *major) * 10);
    return SUCCESS;
}

result nvmlDeviceGetMaxClockInfo(device *of, unsigned type, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    result outcome;
    LOCKED(outcome = error_in(find_for(of, type == 1 ? "sm_clock_max" : "memory_clock_max"));
           *out = (unsigned)(type == 1 ? number(of, "sm_clock_max", 1980)
                                       : number(of, "memory_clock_max", 3201)));
    return outcome;
}

NUMBER(nvmlDeviceGetNumGpuCores, of, unsigned, "cores", 16896, 1)
NUMBER(nvmlDeviceGetMemoryBusWidth, of, unsigned, "bus_width", 6144, 1)

/* -- MIG: `mig` lists the indices that hold a slice ------------------------------------------------------ */

static int has_slice(int gpu, int slice) {
    device of = {gpu, -1, 0};
    const char *list = find_for(&of, "mig");
    char *end;
    for (; list && *list; list = end) {
        long each = strtol(list, &end, 10);
        if (end == list) break;
        if (each == slice) return 1;
    }
    return 0;
}

result nvmlDeviceGetMaxMigDeviceCount(device *of, unsigned *out) {
    BEGIN(of);
    LOCKED(*out = find_for(of, "mig") ? MAX_SLICES : 0);
    return SUCCESS;
}

result nvmlDeviceGetMigDeviceHandleByIndex(device *of, unsigned index, device **out) {
    BEGIN(of);
    int there = 0;
    if (index < MAX_SLICES) LOCKED(there = has_slice(of->gpu, (int)index));
    if (!there) return NOT_FOUND;
    *out = &devices[of->start][of->gpu][index + 1];
    return SUCCESS;
}

result nvmlDeviceGetGpuInstanceId(device *of, unsigned *out) {
    BEGIN(of);
    if (of->slice < 0) return INVALID_ARGUMENT;
    *out = (unsigned)of->slice + 1;
    return SUCCESS;
}

/* -- readings of a GPU --------------------------------------------------------------------------------- */

result nvmlDeviceGetUtilizationRates(device *of, unsigned out[2]) {
    BEGIN(of);
    if (of->slice >= 0) return NOT_SUPPORTED;
    LOCKED(out[0] = (unsigned)number(of, "util", 0); out[1] = (unsigned)number(of, "memory_util", 0));
    serve(of, "util", out[0]);
    serve(of, "mem_util", out[1]);
    return SUCCESS;
}

typedef struct {
    unsigned long long total, free, used;
} memory_v1;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

static result memory(const device *of, memory_v2 *out) {
    int stale = 0;
    LOCKED(out->total = (unsigned long long)number(of, "memory_total", 150754820096.0);
           out->reserved = (unsigned long long)number(of, "memory_reserved", 644939776.0);
           out->used = (unsigned long long)number(of, "memory_used", 0);
           stale = of->slice >= 0 && !has_slice(of->gpu, of->slice));
    out->free = out->total - out->reserved - out->used;
    if (!stale) serve(of, "memory", (double)out->used);
    return stale ? NOT_FOUND : SUCCESS;
}

result nvmlDeviceGetMemoryInfo_v2(device *of, memory_v2 *out) {
    BEGIN(of);
    return out->version == (sizeof *out | 2u << 24) ? memory(of, out) : INVALID_ARGUMENT;
}

result nvmlDeviceGetMemoryInfo(device *of, memory_v1 *out) {
    BEGIN(of);
    memory_v2 newer;
    result outcome = memory(of, &newer);
    *out = (memory_v1){newer.total, newer.free, newer.used + newer.reserved};
    return outcome;
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    result outcome;
    union {
        unsigned ui;
        unsigned long long ull;
    } value;
} field_value;

result nvmlDeviceGetFieldValues(device *of, int count, field_value *values) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    pthread_mutex_lock(&lock);
    for (field_value *each = values; each < values + count; each++) {
        char key[32];
        snprintf(key, sizeof key, "field.%u", each->id);
        each->outcome = error_in(find_for(of, key));
        each->type = 1;
        each->value.ull = 0;
        if (each->id == 186) each->value.ui = (unsigned)lround(number(of, "power", 76) * 1000);
        else if (each->id == 82) each->value.ui = (unsigned)number(of, "memory_temperature", 33);
        else each->outcome = NOT_SUPPORTED;
        if (each->id == 186 && !each->outcome) serve(of, "power", each->value.ui / 1000.0);
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

result nvmlDeviceGetPowerUsage(device *of, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    LOCKED(*out = (unsigned)llround(number(of, "power_average", 75) * 1000));
    serve(of, "power", *out / 1000.0);
    return SUCCESS;
}

NUMBER(nvmlDeviceGetEnforcedPowerLimit, of, unsigned, "power_limit", 700, 1000)
/* A GPU has no fan, like a GPU in a server, unless the scenario sets a fan speed. */
result nvmlDeviceGetFanSpeed(device *of, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    double speed;
    LOCKED(speed = number(of, "fan", -1));
    if (speed < 0) return NOT_SUPPORTED;
    *out = (unsigned)speed;
    return SUCCESS;
}

result nvmlDeviceGetEncoderUtilization(device *of, unsigned *out, unsigned *period) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    *period = 166666;
    LOCKED(*out = (unsigned)number(of, "encoder", 0));
    return SUCCESS;
}

result nvmlDeviceGetDecoderUtilization(device *of, unsigned *out, unsigned *period) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    *period = 166666;
    LOCKED(*out = (unsigned)number(of, "decoder", 0));
    return SUCCESS;
}

NUMBER(nvmlDeviceGetPerformanceState, of, unsigned, "pstate", 0, 1)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, of, unsigned long long, "throttle", 1, 1)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, of, unsigned long long, "throttle", 1, 1)

result nvmlDeviceGetTemperature(device *of, unsigned sensor, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    (void)sensor;
    result outcome;
    LOCKED(outcome = error_in(find_for(of, "temperature")); *out = (unsigned)number(of, "temperature", 29));
    return outcome;
}

result nvmlDeviceGetTemperatureV(device *of, int out[3]) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    result outcome;
    LOCKED(outcome = error_in(find_for(of, "temperature")); out[2] = (int)number(of, "temperature", 29));
    return outcome;
}

result nvmlDeviceGetClockInfo(device *of, unsigned type, unsigned *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    if (type != 1 && type != 2) return NOT_SUPPORTED;
    result outcome;
    LOCKED(outcome = error_in(find_for(of, type == 1 ? "sm_clock" : "memory_clock"));
           *out = (unsigned)(type == 1 ? number(of, "sm_clock", 345) : number(of, "memory_clock", 3201)));
    return outcome;
}

result nvmlDeviceGetTotalEnergyConsumption(device *of, unsigned long long *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    LOCKED(integrate_energy();
           *out = (unsigned long long)((number(of, "energy", 2706.568) + joules[of->gpu]) * 1000));
    serve(of, "energy", (double)*out / 1000);
    return SUCCESS;
}

typedef struct {
    unsigned long long timestamp;
    union {
        unsigned ui;
        unsigned long long ull;
    } value;
} timed_value;

result nvmlDeviceGetSamples(device *of, unsigned type, unsigned long long since, unsigned *value_type,
                            unsigned *count, timed_value *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    (void)since;
    double window, now = seconds(CLOCK_REALTIME);
    unsigned kept, util;
    if (type == 0) {
        LOCKED(window = 0.02; kept = (unsigned)number(of, "power_samples", 0);
               now += number(of, "power_samples_ahead", 0); util = (unsigned)(power(of->gpu) * 1000));
        if (!kept) return NOT_SUPPORTED;
    } else if (type == 1) {
        LOCKED(window = number(of, "window", 0.2); kept = (unsigned)number(of, "samples", SAMPLES);
               util = (unsigned)number(of, "util", 0));
    } else return NOT_SUPPORTED;
    if (!kept) return NOT_FOUND;
    *value_type = 1;
    *count = kept;
    for (unsigned i = 0; out && i < kept; i++) {
        out[i].timestamp = (unsigned long long)((now - (kept - i) * window) * 1e6);
        out[i].value.ui = util;
    }
    return SUCCESS;
}

/* -- processes: `compute` and `graphics` list pid:bytes; `self` is the caller; no bytes means unknown ---- */

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} process_info;

static result processes(const device *of, const char *list, unsigned *count, process_info *out) {
    char entries[MAX_VALUE], *rest = NULL;
    unsigned found = 0, room = *count;
    copy(of, list, "", entries, sizeof entries);
    for (char *each = strtok_r(entries, " ", &rest); each; each = strtok_r(NULL, " ", &rest), found++) {
        if (found >= room) continue;
        char *bytes = strchr(each, ':');
        out[found].pid = strncmp(each, "self", 4) ? (unsigned)atol(each) : (unsigned)getpid();
        out[found].memory = bytes ? strtoull(bytes + 1, NULL, 10) : ~0ull;
        out[found].gpu_instance = out[found].compute_instance = ~0u;
        if (bytes && out[found].pid == (unsigned)getpid()) serve(of, "own", (double)out[found].memory);
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* `working` lists the processes that have run something, as pid:percent; without percent, it is 50 */

typedef struct {
    unsigned pid;
    unsigned long long timestamp;
    unsigned sm, memory, encoder, decoder;
} process_work;

result nvmlDeviceGetProcessUtilization(device *of, process_work *out, unsigned *count,
                                       unsigned long long since) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    char entries[MAX_VALUE], *rest = NULL;
    unsigned found = 0, room = out ? *count : 0;
    unsigned long long now = (unsigned long long)(seconds(CLOCK_REALTIME) * 1e6);
    copy(of, "working", "", entries, sizeof entries);
    for (char *each = strtok_r(entries, " ", &rest); each; each = strtok_r(NULL, " ", &rest), found++) {
        if (found >= room) continue;
        char *percent = strchr(each, ':');
        out[found] = (process_work){(unsigned)atol(each), now, percent ? (unsigned)atol(percent + 1) : 50};
    }
    *count = found;
    if (!found || now <= since) return NOT_FOUND;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(name, list)                                        \
    result name(device *of, unsigned *count, process_info *out) {    \
        BEGIN(of);                                                   \
        return processes(of, list, count, out);                      \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")

/* -- GPU performance monitoring: `gpm.ID` is metric ID, `gpm=0` means there is none --------------------- */

typedef struct {
    unsigned version, supported;
} gpm_support;

typedef struct {
    unsigned id;
    result outcome;
    double value;
    const char *info[3];
} gpm_metric;

typedef struct {
    unsigned version, count;
    sample *first, *second;
    gpm_metric metrics[];
} gpm_metrics;

result nvmlGpmQueryDeviceSupport(device *of, gpm_support *out) {
    BEGIN(of);
    LOCKED(out->supported = number(of, "gpm", 1) != 0);
    return SUCCESS;
}

result nvmlGpmSampleAlloc(sample **out) {
    BEGIN(NULL);
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

result nvmlGpmSampleFree(sample *of) {
    BEGIN(NULL);
    if (of->busy) LOCKED(counter_of("freed while in use")->count++);
    else free(of);
    return SUCCESS;
}

result nvmlGpmSampleGet(device *of, sample *into) {
    into->busy = 1;
    static struct counter *counter;
    result outcome = begin(&counter, __func__, of, 1);
    if (!outcome) LOCKED(if (find_for(of, "mig")) outcome = NOT_SUPPORTED);
    into->of = of;
    into->busy = 0;
    return outcome;
}

result nvmlGpmMigSampleGet(device *of, unsigned instance, sample *into) {
    if (instance < 1 || instance > MAX_SLICES) return INVALID_ARGUMENT;
    into->busy = 1;
    static struct counter *counter;
    result outcome = begin(&counter, __func__, &devices[of->start][of->gpu][instance], 1);
    into->of = &devices[of->start][of->gpu][instance];
    into->busy = 0;
    return outcome;
}

result nvmlGpmMetricsGet(gpm_metrics *get) {
    BEGIN(NULL);
    if (get->version != 1 || get->first == get->second || get->first->of != get->second->of)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    for (gpm_metric *each = get->metrics; each < get->metrics + get->count; each++) {
        char key[32];
        snprintf(key, sizeof key, "gpm.%u", each->id);
        each->outcome = error_in(find_for(get->second->of, key));
        each->value = number(get->second->of, key, 0);
        if (!each->outcome) serve(get->second->of, key, each->value);
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

/* -- health and settings (`xids` lists all XIDs; an event set gets those added after its registration) -- */

NUMBER(nvmlDeviceGetPersistenceMode, of, unsigned, "persistence", 1, 1)
NUMBER(nvmlDeviceGetComputeMode, of, unsigned, "compute_mode", 0, 1)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, of, unsigned, "retired_pending", 0, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, of, unsigned, "pcie_gen", 5, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, of, unsigned, "pcie_gen_max", 5, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, of, unsigned, "pcie_width", 16, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, of, unsigned, "pcie_width_max", 16, 1)

#define PAIR(name, first, second, otherwise)                                    \
    result name(device *of, unsigned *now, unsigned *pending) {                 \
        BEGIN(of);                                                              \
        WHOLE_GPU_ONLY(of);                                                     \
        LOCKED(*now = (unsigned)number(of, first, otherwise);                   \
               *pending = (unsigned)number(of, second, (double)*now));          \
        return SUCCESS;                                                         \
    }
PAIR(nvmlDeviceGetEccMode, "ecc_mode", "ecc_mode_pending", 1)
PAIR(nvmlDeviceGetMigMode, "mig_mode", "mig_mode_pending", find_for(of, "mig") != NULL)

result nvmlDeviceGetTotalEccErrors(device *of, unsigned type, unsigned since, unsigned long long *out) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    if (type != 1 || since != 0) return NOT_SUPPORTED;
    LOCKED(*out = (unsigned long long)number(of, "ecc", 0));
    return SUCCESS;
}

result nvmlDeviceGetRemappedRows(device *of, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    LOCKED(*corrected = 0; *uncorrected = (unsigned)number(of, "remapped", 0);
           *pending = (unsigned)number(of, "remap_pending", 0);
           *failed = (unsigned)number(of, "remap_failed", 0));
    return SUCCESS;
}

result nvmlDeviceGetP2PStatus(device *of, device *other, unsigned what, unsigned *out) {
    char key[32];
    BEGIN(of);
    snprintf(key, sizeof key, "p2p.%d.%u", other->gpu, what);
    LOCKED(*out = (unsigned)number(of, key, 0));
    return SUCCESS;
}

typedef struct {
    device *of;
    unsigned told;
} event_set;

typedef struct {
    device *of;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event;

static unsigned xids(const device *of, unsigned which, unsigned long long *out) {
    const char *list = find_for(of, "xids");
    unsigned found = 0;
    char *end;
    for (; list && *list; list = end, found++) {
        unsigned long long each = strtoull(list, &end, 10);
        if (end == list) break;
        if (found == which && out) *out = each;
    }
    return found;
}

result nvmlEventSetCreate(event_set **out) {
    BEGIN(NULL);
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

result nvmlEventSetFree(event_set *set) {
    BEGIN(NULL);
    free(set);
    return SUCCESS;
}

result nvmlDeviceRegisterEvents(device *of, unsigned long long types, event_set *set) {
    BEGIN(of);
    WHOLE_GPU_ONLY(of);
    if (types != 8) return NOT_SUPPORTED;
    set->of = of;
    LOCKED(set->told = xids(of, 0, NULL));
    return SUCCESS;
}

result nvmlEventSetWait_v2(event_set *set, event *out, unsigned milliseconds) {
    BEGIN(set->of);
    (void)milliseconds;
    unsigned all;
    *out = (event){set->of, 8, 0, ~0u, ~0u};
    LOCKED(all = xids(set->of, set->told, &out->data));
    if (set->told >= all) return TIMEOUT;
    set->told++;
    return SUCCESS;
}
