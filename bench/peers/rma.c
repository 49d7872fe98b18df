/* The epochs of `samite-bench rma epochs` over MPI.
 *
 * Usage: rma --impl NAME --transport NAME --bytes N,N,...
 *
 * The loops and the output must agree with ../src/rma/epochs.rs and ../src/record.rs. Change them together. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* As in epochs.rs. */
enum kind { PAIR, FENCE, LOCK, KINDS };
enum operation { PUT, GET, ACCUMULATE, OPERATIONS };
static const char *const kinds[KINDS] = {"pair", "fence", "lock"};
static const char *const operations[OPERATIONS] = {"put", "get", "accumulate"};
enum { BATCHES = 7, BATCH_BYTES = 4 << 20, BATCH_MAX = 300, LENGTHS_MAX = 32 };
enum { ORIGIN = 0, TARGET = 1 };

/* The time after which a run is given up. */
enum { TIMEOUT_S = 120 };

static int rank;
static MPI_Win window;
static MPI_Group other;

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void die(const char *why) {
    fprintf(stderr, "rma: %s\n", why);
    exit(2);
}

static void operate(enum operation operation, uint64_t *data, int len) {
    switch (operation) {
    case PUT: MPI_Put(data, len, MPI_UINT64_T, TARGET, 0, len, MPI_UINT64_T, window); break;
    case GET: MPI_Get(data, len, MPI_UINT64_T, TARGET, 0, len, MPI_UINT64_T, window); break;
    default: MPI_Accumulate(data, len, MPI_UINT64_T, TARGET, 0, len, MPI_UINT64_T, MPI_SUM, window);
    }
}

/* Runs this rank's part of an epoch. */
static void epoch(enum kind kind, enum operation operation, uint64_t *data, int len) {
    switch (kind) {
    case PAIR:
        if (rank == ORIGIN) {
            MPI_Win_start(other, 0, window);
            operate(operation, data, len);
            MPI_Win_complete(window);
        } else {
            MPI_Win_post(other, 0, window);
            MPI_Win_wait(window);
        }
        break;
    case FENCE:
        MPI_Win_fence(MPI_MODE_NOPRECEDE, window);
        if (rank == ORIGIN) operate(operation, data, len);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
        break;
    default:
        if (rank == TARGET) break;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, TARGET, 0, window);
        operate(operation, data, len);
        MPI_Win_unlock(TARGET, window);
    }
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Measures a case, and prints its figure at rank 0. */
static void measure(enum kind kind, enum operation operation, long bytes, uint64_t *data, const char *impl,
                    const char *transport) {
    double times[BATCHES];
    int len = bytes / sizeof *data, batch = BATCH_BYTES / (bytes ? bytes : 1);
    if (batch > BATCH_MAX) batch = BATCH_MAX;
    if (batch < 1) batch = 1;
    for (int number = 0; number <= BATCHES; number++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin_ns = now_ns();
        for (int i = 0; i < batch; i++) epoch(kind, operation, data, len);
        /* The first batch touches the memory. */
        if (number > 0) times[number - 1] = (now_ns() - begin_ns) / 1e3 / batch;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    qsort(times, BATCHES, sizeof *times, compare);
    if (rank == ORIGIN)
        printf("{\"bench\":\"rma-epochs-%s-%s\",\"impl\":\"%s\",\"transport\":\"%s\",\"ranks\":2,\"bytes\":%ld,"
               "\"depth\":null,\"metric\":\"epoch_us\",\"unit\":\"us\",\"median\":%g,\"min\":%g,\"max\":%g,\"runs\":1}\n",
               kinds[kind], operations[operation], impl, transport, bytes, times[BATCHES / 2], times[0],
               times[BATCHES - 1]);
}

int main(int argc, char **argv) {
    const char *impl = "mpi", *transport = "";
    long lengths[LENGTHS_MAX], most = 0;
    int count = 0, size;
    /* Ends this process if the library hangs. */
    alarm(TIMEOUT_S);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--impl")) impl = argv[i + 1];
        else if (!strcmp(argv[i], "--transport")) transport = argv[i + 1];
        else if (!strcmp(argv[i], "--bytes")) {
            for (char *text = argv[i + 1]; *text && count < LENGTHS_MAX; count++) {
                lengths[count] = strtol(text, &text, 10);
                if (lengths[count] > most) most = lengths[count];
                if (*text == ',') text++;
            }
        } else die("no such option");
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) die("it has two ranks");
    MPI_Group all;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, (int[]){1 - rank}, &other);
    uint64_t *part, *data = calloc(most + 1, 1);
    if (!data) die("out of memory");
    MPI_Win_allocate(most, sizeof *part, MPI_INFO_NULL, MPI_COMM_WORLD, &part, &window);
    for (int kind = 0; kind < KINDS; kind++)
        for (int operation = 0; operation < OPERATIONS; operation++)
            for (int i = 0; i < count; i++) measure(kind, operation, lengths[i], data, impl, transport);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
