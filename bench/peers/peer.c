/* The loops of samite-bench over MPI: `samite-bench compare` builds this with each mpicc that it finds.
 *
 * Usage: peer BENCH --impl NAME --transport NAME --json --bytes N [--depth N] [--pin]
 *        peer layouts --shape SHAPE --bytes N
 *        peer threads --threads N --bytes N
 *        peer partitioned --partitions N --bytes N --gap US --rounds N
 *        peer overlap --bytes N --rounds N [--busy] [--operation OP]
 *
 * The loops, the timing and the output must agree with ../src/loops.rs, ../src/measure.rs, ../src/layouts.rs,
 * ../src/partitioned.rs, ../src/overlap.rs, ../src/overlap/collectives.rs and ../src/record.rs. Change them together. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum bench {
    LATENCY, SENDER_FIRST, RECEIVER_FIRST, LAYOUTS, BANDWIDTH, RATE, DEPTH, RING, PAIRS,
    BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL,
    PUT, GET, FETCH_ADD, COMPARE_SWAP, PUT_BANDWIDTH, GET_BANDWIDTH, HELLO, MEMORY, BENCHES
};

static const struct {
    const char *name, *metric, *unit;
} benches[BENCHES] = {
    [LATENCY] = {"latency", "latency_us", "us"},
    [SENDER_FIRST] = {"sender-first", "latency_us", "us"},
    [RECEIVER_FIRST] = {"receiver-first", "latency_us", "us"},
    [LAYOUTS] = {"layouts", "latency_us", "us"},
    [BANDWIDTH] = {"bandwidth", "bandwidth_mb_s", "MB/s"},
    [RATE] = {"rate", "rate_per_s", "1/s"},
    [DEPTH] = {"depth", "match_ns", "ns"},
    [RING] = {"ring", "exchange_us", "us"},
    [PAIRS] = {"pairs", "exchange_us", "us"},
    [BARRIER] = {"barrier", "call_us", "us"},
    [BCAST] = {"bcast", "call_us", "us"},
    [REDUCE] = {"reduce", "call_us", "us"},
    [ALLREDUCE] = {"allreduce", "call_us", "us"},
    [ALLGATHER] = {"allgather", "call_us", "us"},
    [ALLTOALL] = {"alltoall", "call_us", "us"},
    [PUT] = {"put", "call_us", "us"},
    [GET] = {"get", "call_us", "us"},
    [FETCH_ADD] = {"fetch-add", "call_us", "us"},
    [COMPARE_SWAP] = {"compare-swap", "call_us", "us"},
    [PUT_BANDWIDTH] = {"put-bandwidth", "bandwidth_mb_s", "MB/s"},
    [GET_BANDWIDTH] = {"get-bandwidth", "bandwidth_mb_s", "MB/s"},
    [HELLO] = {"hello", NULL, NULL},
    [MEMORY] = {"memory", "peak_mb", "MB"},
};

/* As in measure.rs. */
static const double BATCH_NS = 5e6, WARM_UP_NS = 60e6, BATCHES_TIME_NS_MAX = 1e9;
enum { BATCHES_MIN = 5, BATCHES_MAX = 25 };

/* The time after which a run is given up. */
enum { TIMEOUT_S = 60 };

/* As in benchmark.rs. */
enum { WINDOW = 64, WINDOW_MIN = 4, WINDOW_BYTES_MAX = 8 << 20 };

static enum bench bench;
static const char *impl = "mpi", *transport = "", *shape = "";
static long bytes = 8;
static int depth, rank, size, window;
static char *out, *into;
static MPI_Request *requests;
static MPI_Comm data, control;
/* The window of the one-sided operations, with a part for each operation in flight. */
static MPI_Win memory;
/* The types of LAYOUTS. */
static MPI_Datatype out_type, into_type;

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static void die(const char *why) {
    fprintf(stderr, "peer: %s\n", why);
    exit(2);
}

static void *allocate(size_t length) {
    void *memory = malloc(length ? length : 1);
    if (!memory) die("out of memory");
    /* The buffer is written, so that the first send causes no page fault. */
    memset(memory, 1, length);
    return memory;
}

/* Control messages, apart from the measured messages. */
static void tell(int to) { MPI_Send(NULL, 0, MPI_BYTE, to, 0, control); }
static void hear(int from) { MPI_Recv(NULL, 0, MPI_BYTE, from, 0, control, MPI_STATUS_IGNORE); }

/* Sends a number from rank 0 to the others, and waits until they have it. Each rank returns the number. */
static uint64_t agree(uint64_t number) {
    if (rank == 0) {
        for (int to = 1; to < size; to++) MPI_Send(&number, 1, MPI_UINT64_T, to, 1, control);
        for (int from = 1; from < size; from++) hear(from);
    } else {
        MPI_Recv(&number, 1, MPI_UINT64_T, 0, 1, control, MPI_STATUS_IGNORE);
        tell(0);
    }
    return number;
}

/* As in layouts.rs. */
struct particle {
    double place[2];
    float mass;
    int number;
    double energy;
};

/* The faces of a cube of `edge` elements in each dimension, with an element more around it. */
static MPI_Datatype faces(int edge, int around) {
    MPI_Datatype parts[6], type;
    int ones[6] = {1, 1, 1, 1, 1, 1}, sizes[3] = {edge + 2, edge + 2, edge + 2};
    MPI_Aint offsets[6] = {0};
    for (int i = 0; i < 6; i++) {
        int lengths[3] = {edge, edge, edge}, starts[3] = {1, 1, 1};
        lengths[i / 2] = 1;
        starts[i / 2] = i % 2 ? (around ? edge + 1 : edge) : (around ? 0 : 1);
        MPI_Type_create_subarray(3, sizes, lengths, starts, MPI_ORDER_C, MPI_DOUBLE, &parts[i]);
    }
    MPI_Type_create_struct(6, ones, offsets, parts, &type);
    return type;
}

/* Makes the types of a shape, and returns the length of their buffers in bytes. */
static size_t make_types(void) {
    int count = bytes / 8;
    size_t length = 16 * (size_t)count;
    if (!strcmp(shape, "strided")) {
        MPI_Type_vector(count, 1, 2, MPI_DOUBLE, &out_type);
    } else if (!strcmp(shape, "faces")) {
        int edge = 1;
        while (48L * (edge + 1) * (edge + 1) <= bytes) edge++;
        length = 8 * (size_t)(edge + 2) * (edge + 2) * (edge + 2);
        out_type = faces(edge, 0);
        into_type = faces(edge, 1);
        MPI_Type_commit(&into_type);
    } else if (!strcmp(shape, "indexed")) {
        int *lengths = allocate(sizeof *lengths * count), *places = allocate(sizeof *places * count);
        int blocks = 0, at = 0;
        for (int left = count; left > 0; blocks++) {
            lengths[blocks] = 1 + 7 * blocks % 16 < left ? 1 + 7 * blocks % 16 : left;
            places[blocks] = at;
            at += lengths[blocks] + 1 + 5 * blocks % 11;
            left -= lengths[blocks];
        }
        length = 8 * (size_t)at;
        MPI_Type_indexed(blocks, lengths, places, MPI_DOUBLE, &out_type);
    } else if (!strcmp(shape, "struct")) {
        int lengths[2] = {2, 1}, size;
        MPI_Aint offsets[2] = {offsetof(struct particle, place), offsetof(struct particle, number)};
        MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT}, fields, one;
        MPI_Type_create_struct(2, lengths, offsets, types, &fields);
        MPI_Type_create_resized(fields, 0, sizeof(struct particle), &one);
        MPI_Type_size(one, &size);
        length = sizeof(struct particle) * (bytes / size);
        MPI_Type_contiguous(bytes / size, one, &out_type);
    } else {
        die("no such shape");
    }
    MPI_Type_commit(&out_type);
    if (strcmp(shape, "faces")) into_type = out_type;
    return length;
}

/* The number of blocks that a rank passes to a collective operation, and that it gets. */
/* Each put of a window has a source of its own, as each get has a place of its own: the OSU benchmarks do the same. */
static int sent_blocks(void) { return bench == ALLTOALL ? size : bench == PUT_BANDWIDTH ? window : 1; }
static int received_blocks(void) { return bench == ALLTOALL || bench == ALLGATHER ? size : 1; }

static int is_one_sided(void) { return bench >= PUT && bench <= GET_BANDWIDTH; }

static void prepare(void) {
    long wide = WINDOW_BYTES_MAX / (bytes ? bytes : 1);
    window = wide < WINDOW_MIN ? WINDOW_MIN : wide > WINDOW ? WINDOW : (int)wide;
    int buffers = bench == PAIRS || bench == MEMORY ? size - 1 : bench == BANDWIDTH || bench == RATE ? window : 1;
    size_t length = bench == LAYOUTS ? make_types() : (size_t)bytes;
    out = allocate(length * sent_blocks());
    into = allocate(length * (buffers > 1 ? buffers : received_blocks()));
    requests = allocate(sizeof *requests * 2 * (window + size));
    if (is_one_sided()) {
        void *base;
        MPI_Aint part = bytes < 8 ? 8 : bytes;
        MPI_Win_allocate(part * window, 1, MPI_INFO_NULL, data, &base, &memory);
        memset(base, 0, part * window);
        free(into);
        into = allocate(part * window);
        MPI_Barrier(data);
        if (rank == 0) MPI_Win_lock_all(0, memory);
    }
}

/* Sends to the next `reach` ranks around the ring, and receives from as many previous ranks. */
static void exchange(int reach) {
    int count = 0;
    for (int i = 1; i <= reach; i++)
        MPI_Irecv(into + bytes * (i - 1), bytes, MPI_BYTE, (rank + size - i) % size, 0, data, &requests[count++]);
    for (int i = 1; i <= reach; i++)
        MPI_Isend(out, bytes, MPI_BYTE, (rank + i) % size, 0, data, &requests[count++]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

/* Sends or receives a message by a nonblocking operation, which starts before or after that of the other rank. */
static void transfer(int is_send, int is_first) {
    MPI_Request request;
    int other = 1 - rank;
    if (!is_first) hear(other);
    if (is_send) MPI_Isend(out, bytes, MPI_BYTE, other, 0, data, &request);
    else MPI_Irecv(into, bytes, MPI_BYTE, other, 0, data, &request);
    if (is_first) tell(other);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Makes a collective call with numbers of 8 bytes. */
static void collective(int root) {
    int count = bytes / 8;
    switch (bench) {
    case BARRIER: MPI_Barrier(data); break;
    case BCAST: MPI_Bcast(out, count, MPI_DOUBLE, root, data); break;
    case REDUCE: MPI_Reduce(out, into, count, MPI_DOUBLE, MPI_SUM, root, data); break;
    case ALLREDUCE: MPI_Allreduce(out, into, count, MPI_DOUBLE, MPI_SUM, data); break;
    case ALLGATHER: MPI_Allgather(out, count, MPI_DOUBLE, into, count, MPI_DOUBLE, data); break;
    default: MPI_Alltoall(out, count, MPI_DOUBLE, into, count, MPI_DOUBLE, data); break;
    }
}

/* Carries out one-sided operations on the memory of rank 1, until they are complete there. */
static void one_sided(void) {
    uint64_t *number = (uint64_t *)out, zero = 0, before;
    switch (bench) {
    case PUT: MPI_Put(out, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, memory); break;
    case GET: MPI_Get(into, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, memory); break;
    case FETCH_ADD: MPI_Fetch_and_op(number, &before, MPI_UINT64_T, 1, 0, MPI_SUM, memory); break;
    case COMPARE_SWAP: MPI_Compare_and_swap(number, &zero, &before, MPI_UINT64_T, 1, 0, memory); break;
    case PUT_BANDWIDTH:
        for (int i = 0; i < window; i++)
            MPI_Put(out + bytes * i, bytes, MPI_BYTE, 1, bytes * i, bytes, MPI_BYTE, memory);
        break;
    default:
        for (int i = 0; i < window; i++)
            MPI_Get(into + bytes * i, bytes, MPI_BYTE, 1, bytes * i, bytes, MPI_BYTE, memory);
        break;
    }
    MPI_Win_flush(1, memory);
}

/* The root of the latest collective call. It changes, so that no rank runs ahead of the others. */
static int root;

static double iterate(uint64_t iterations) {
    double begin = now_ns(), aside = 0;
    if (is_one_sided()) {
        /* Rank 1 is inside the library until all operations have ended. */
        if (rank == 1) hear(0);
        for (uint64_t i = 0; rank == 0 && i < iterations; i++) one_sided();
        double time = now_ns() - begin;
        if (rank == 0) tell(1);
        return time;
    }
    for (uint64_t i = 0; i < iterations; i++) {
        switch (bench) {
        case LATENCY:
            if (rank == 0) {
                MPI_Send(out, bytes, MPI_BYTE, 1, 0, data);
                MPI_Recv(into, bytes, MPI_BYTE, 1, 0, data, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(into, bytes, MPI_BYTE, 0, 0, data, MPI_STATUS_IGNORE);
                MPI_Send(out, bytes, MPI_BYTE, 0, 0, data);
            }
            break;
        case SENDER_FIRST:
        case RECEIVER_FIRST:
            /* Rank 0 sends first, rank 1 receives first. */
            for (int turn = 0; turn < 2; turn++) {
                int is_send = turn == rank;
                transfer(is_send, is_send == (bench == SENDER_FIRST));
            }
            break;
        case LAYOUTS:
            if (rank == 0) {
                MPI_Send(out, 1, out_type, 1, 0, data);
                MPI_Recv(into, 1, into_type, 1, 0, data, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(into, 1, into_type, 0, 0, data, MPI_STATUS_IGNORE);
                MPI_Send(out, 1, out_type, 0, 0, data);
            }
            break;
        case BANDWIDTH:
        case RATE:
            for (int m = 0; m < window; m++) {
                if (rank == 0) MPI_Isend(out, bytes, MPI_BYTE, 1, 0, data, &requests[m]);
                else MPI_Irecv(into + bytes * m, bytes, MPI_BYTE, 0, 0, data, &requests[m]);
            }
            MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
            if (rank == 0) hear(1);
            else tell(0);
            break;
        case DEPTH:
            if (rank == 0) {
                /* Only the time of the receives counts. When the last message has arrived, all earlier messages have
                 * arrived too. */
                double filling = now_ns();
                tell(1);
                MPI_Recv(NULL, 0, MPI_BYTE, 1, depth, data, MPI_STATUS_IGNORE);
                /* The figure measures the queue only if the library has queued the overtaken messages. */
                int kept;
                MPI_Iprobe(1, 0, data, &kept, MPI_STATUS_IGNORE);
                if (!kept) die("messages that were overtaken are not there");
                aside += now_ns() - filling;
                for (int tag = depth - 1; tag >= 0; tag--)
                    MPI_Recv(into, bytes, MPI_BYTE, 1, tag, data, MPI_STATUS_IGNORE);
            } else {
                hear(0);
                for (int tag = 0; tag < depth; tag++) MPI_Send(out, bytes, MPI_BYTE, 0, tag, data);
                MPI_Send(NULL, 0, MPI_BYTE, 0, depth, data);
            }
            break;
        case RING: exchange(1); break;
        case PAIRS: exchange(size - 1); break;
        default:
            root = (root + 1) % size;
            collective(root);
            break;
        }
    }
    return now_ns() - begin - aside;
}

static double figure(double ns) {
    switch (bench) {
    case LATENCY:
    case SENDER_FIRST:
    case RECEIVER_FIRST:
    case LAYOUTS: return ns / 2 / 1e3;
    case BANDWIDTH:
    case PUT_BANDWIDTH:
    case GET_BANDWIDTH: return (double)window * bytes / ns * 1e3;
    case RATE: return window / ns * 1e9;
    case DEPTH: return ns / depth;
    default: return ns / 1e3;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the figures, and returns their median. */
static double sort(double *figures, int count) {
    qsort(figures, count, sizeof *figures, ascending);
    return (figures[(count - 1) / 2] + figures[count / 2]) / 2;
}

static void print(double *figures, int count) {
    double median = sort(figures, count);
    printf("{\"bench\":\"%s\",\"impl\":\"%s\",\"transport\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"depth\":",
           benches[bench].name, impl, transport, size, bytes);
    if (bench == DEPTH) printf("%d", depth);
    else printf("null");
    printf(",\"metric\":\"%s\",\"unit\":\"%s\",\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,\"runs\":1}\n",
           benches[bench].metric, benches[bench].unit, median, figures[0], figures[count - 1]);
}

static void measure(void) {
    prepare();
    if (rank != 0) {
        for (uint64_t iterations; (iterations = agree(0)) != 0;) iterate(iterations);
        if (is_one_sided()) MPI_Win_free(&memory);
        return;
    }
    uint64_t iterations = 1;
    for (double begin = now_ns();;) {
        agree(iterations);
        double time = iterate(iterations);
        if (time < BATCH_NS) {
            double wanted = BATCH_NS * iterations / (time < 1 ? 1 : time);
            iterations = wanted < iterations * 2 ? iterations * 2 : wanted > iterations * 10 ? iterations * 10
                                                                                             : (uint64_t)wanted;
        } else if (now_ns() - begin >= WARM_UP_NS) {
            break;
        }
    }
    double figures[BATCHES_MAX];
    int count = 0;
    for (double begin = now_ns();
         count < BATCHES_MIN || (count < BATCHES_MAX && now_ns() - begin < BATCHES_TIME_NS_MAX);) {
        agree(iterations);
        figures[count++] = figure(iterate(iterations) / iterations);
    }
    agree(0);
    if (is_one_sided()) {
        MPI_Win_unlock_all(memory);
        MPI_Win_free(&memory);
    }
    print(figures, count);
}

/* Returns the peak memory of this process since its program began. The figure of getrusage(2) also includes the time
 * before the process executed this program. */
static double peak_mb(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1) break;
    if (status) fclose(status);
    return kib * 1024 / 1e6;
}

/* Exchanges a message between every pair of ranks, and prints the peaks. */
static void measure_memory(void) {
    prepare();
    exchange(size - 1);
    double mine = peak_mb(), *all = allocate(sizeof *all * size);
    MPI_Gather(&mine, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, control);
    if (rank == 0) print(all, size);
}

/* As in threads.rs. */
enum { THREADS_MAX = 64 };
static const double THREADS_TIME_NS = 5e8;

struct thread {
    pthread_t thread;
    MPI_Comm comm;
    double rate;
};

/* Sends windows until the time is over, or receives them. The first byte of a window's messages tells whether it is the
 * last. */
static void *exchange_windows(void *argument) {
    struct thread *self = argument;
    MPI_Request requests[WINDOW];
    char *data = allocate(bytes * WINDOW), is_last = 0;
    double begin = now_ns();
    long sent = 0;
    memset(data, 0, bytes * WINDOW);
    while (!is_last) {
        if (rank == 0) {
            data[0] = is_last = now_ns() - begin >= THREADS_TIME_NS;
            for (int i = 0; i < WINDOW; i++) MPI_Isend(data, bytes, MPI_BYTE, 1, 0, self->comm, &requests[i]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, self->comm, MPI_STATUS_IGNORE);
            sent += WINDOW;
        } else {
            for (int i = 0; i < WINDOW; i++)
                MPI_Irecv(data + i * bytes, bytes, MPI_BYTE, 0, 0, self->comm, &requests[i]);
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            is_last = data[0];
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, self->comm);
        }
    }
    self->rate = sent / (now_ns() - begin) * 1e9;
    free(data);
    return NULL;
}

/* Runs threads of two ranks, each with a communicator of its own, and prints the sum of their rates. */
static void measure_threads(int argc, char **argv) {
    struct thread threads[THREADS_MAX];
    int provided, count = 1;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--threads")) count = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes")) bytes = atol(argv[i + 1]);
        else die("no such option");
    }
    if (count < 1 || count > THREADS_MAX || bytes < 1) die("too many threads, or too few");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE) die("this library has no MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < count; i++) MPI_Comm_dup(MPI_COMM_WORLD, &threads[i].comm);
    MPI_Barrier(MPI_COMM_WORLD);
    double rate = 0;
    for (int i = 0; i < count; i++) pthread_create(&threads[i].thread, NULL, exchange_windows, &threads[i]);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].thread, NULL);
        rate += threads[i].rate;
    }
    if (rank == 0) printf("%g\n", rate);
    MPI_Finalize();
}

static int rounds = 100;

static void sleep_us(long time) {
    struct timespec span = {time / 1000000, time % 1000000 * 1000};
    nanosleep(&span, NULL);
}

/* As in overlap.rs. */
enum { OVERLAP_DATA = 1, OVERLAP_STARTED, OVERLAP_TIMES };
enum { OVERLAP_WARM_UP = 5 };
static int is_busy;

/* Computes for a time, and returns the time that it has taken. */
static double compute(double time_ns) {
    double begin_ns = now_ns();
    if (!is_busy && time_ns > 0) sleep_us(time_ns / 1e3);
    while (is_busy && now_ns() - begin_ns < time_ns) {}
    return now_ns() - begin_ns;
}

/* Returns the median time of this rank from the start of its operation to its end, without the computation, in
 * nanoseconds. */
static double overlap_median(long length, int order, double computed_ns) {
    double *times = allocate(sizeof *times * rounds);
    int other = 1 - rank, is_first = order == rank;
    for (int round = 0; round < rounds + OVERLAP_WARM_UP; round++) {
        MPI_Request request;
        MPI_Sendrecv(NULL, 0, MPI_BYTE, other, OVERLAP_STARTED, NULL, 0, MPI_BYTE, other, OVERLAP_STARTED, data,
                     MPI_STATUS_IGNORE);
        if (!is_first) MPI_Recv(NULL, 0, MPI_BYTE, other, OVERLAP_STARTED, data, MPI_STATUS_IGNORE);
        double begin_ns = now_ns();
        if (rank == 0) MPI_Isend(out, length, MPI_BYTE, other, OVERLAP_DATA, data, &request);
        else MPI_Irecv(into, length, MPI_BYTE, other, OVERLAP_DATA, data, &request);
        if (is_first) MPI_Send(NULL, 0, MPI_BYTE, other, OVERLAP_STARTED, data);
        double computed = compute(computed_ns);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (round >= OVERLAP_WARM_UP) times[round - OVERLAP_WARM_UP] = now_ns() - begin_ns - computed;
    }
    double median = sort(times, rounds);
    free(times);
    return median;
}

/* As in overlap/collectives.rs. */
static const char *operation;

static double processor_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* Stores medians in microseconds, each at the rank at which it is largest: the time from the start of an operation to
 * its end, without the computation, the processor time of the process, the time of the start, and that of the wait. */
enum { OPERATION_TIMES = 4 };
static void operation_medians(double computed_ns, double *medians) {
    int length = bytes / sizeof(double);
    double *times[OPERATION_TIMES];
    for (int i = 0; i < OPERATION_TIMES; i++) times[i] = allocate(sizeof(double) * rounds);
    for (int round = 0; round < rounds + OVERLAP_WARM_UP; round++) {
        MPI_Request request;
        MPI_Barrier(data);
        double begin_ns = now_ns(), begin_processor = processor_ns();
        if (!strcmp(operation, "bcast")) MPI_Ibcast(into, length, MPI_DOUBLE, round % size, data, &request);
        else if (!strcmp(operation, "allreduce")) MPI_Iallreduce(out, into, length, MPI_DOUBLE, MPI_SUM, data, &request);
        else MPI_Ialltoall(out, length, MPI_DOUBLE, into, length, MPI_DOUBLE, data, &request);
        double start = now_ns() - begin_ns, computed = compute(computed_ns);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        double rest = now_ns() - begin_ns - computed, processor = processor_ns() - begin_processor;
        double of_round[OPERATION_TIMES] = {rest, processor, start, rest - start};
        for (int i = 0; i < OPERATION_TIMES && round >= OVERLAP_WARM_UP; i++) {
            times[i][round - OVERLAP_WARM_UP] = of_round[i] / 1e3;
        }
    }
    for (int i = 0; i < OPERATION_TIMES; i++) {
        medians[i] = sort(times[i], rounds);
        free(times[i]);
    }
    MPI_Allreduce(MPI_IN_PLACE, medians, OPERATION_TIMES, MPI_DOUBLE, MPI_MAX, data);
}

/* Prints times in microseconds: the operation alone and its processor time; with a computation the start, the wait, and
 * both. */
static void measure_operation(void) {
    double alone[OPERATION_TIMES], beside[OPERATION_TIMES];
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = allocate(bytes * size);
    into = allocate(bytes * size);
    operation_medians(0, alone);
    operation_medians(2e3 * alone[0] < 1e6 ? 1e6 : 2e3 * alone[0], beside);
    if (rank == 0) printf("%g %g %g %g %g\n", alone[0], alone[1], beside[2], beside[3], beside[0]);
}

/* Prints a line for each order: the time of the transfer alone in microseconds and the hidden part, of both ranks. */
static void measure_overlap(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--busy")) is_busy = 1;
        else if (!strcmp(argv[i], "--bytes") && i + 1 < argc) bytes = atol(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc) rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--operation") && i + 1 < argc) operation = argv[++i];
        else die("no such option");
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &data);
    if (operation) {
        measure_operation();
        MPI_Finalize();
        return;
    }
    out = allocate(bytes);
    into = allocate(bytes);
    for (int order = 0; order < 2; order++) {
        int other = 1 - rank;
        double theirs, both[2], empty = overlap_median(0, order, 0), alone = overlap_median(bytes, order, 0);
        MPI_Sendrecv(&alone, 1, MPI_DOUBLE, other, OVERLAP_TIMES, &theirs, 1, MPI_DOUBLE, other, OVERLAP_TIMES, data,
                     MPI_STATUS_IGNORE);
        double computed_ns = 2 * (alone > theirs ? alone : theirs);
        if (computed_ns < 1e6) computed_ns = 1e6;
        double rest = overlap_median(bytes, order, computed_ns);
        double mine[2] = {alone / 1e3, 1 - (rest - empty) / (alone - empty)};
        if (rank == 1) MPI_Send(mine, 2, MPI_DOUBLE, other, OVERLAP_TIMES, data);
        else {
            MPI_Recv(both, 2, MPI_DOUBLE, other, OVERLAP_TIMES, data, MPI_STATUS_IGNORE);
            printf("%g %g %g %g\n", mine[0], mine[1], both[0], both[1]);
        }
    }
    MPI_Finalize();
}

/* Open MPI 5 has partitioned communication, although it implements version 3.1 as a whole. */
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

/* As in partitioned.rs. */
enum kind { PARTITIONS, AT_ONCE, SEND, KINDS };
enum { PARTS = 1, WHOLE, READY, ENDED };

static int partitions = 16;
static long gap_us = 200;

struct marking {
    MPI_Request send;
    enum kind kind;
    const int *order;
    double begin_ns;
};

/* Marks the partitions of a round. */
static void *mark(void *argument) {
    struct marking *self = argument;
    int early = self->kind == PARTITIONS ? partitions - 1 : 0;
    for (int i = 0; i < early; i++) {
        sleep_us(gap_us);
        MPI_Pready(self->order[i], self->send);
    }
    sleep_us(gap_us * (self->kind == PARTITIONS ? 1 : partitions));
    self->begin_ns = now_ns();
    for (int i = early; i < partitions; i++) MPI_Pready(self->order[i], self->send);
    return NULL;
}

/* Runs a round in which this rank sends, and returns the time at which the last partition became ready. */
static double send_round(enum kind kind, MPI_Request *send, int *order) {
    if (kind == SEND) {
        sleep_us(gap_us * partitions);
        double begin_ns = now_ns();
        MPI_Send(out, bytes * partitions, MPI_BYTE, 1, WHOLE, data);
        return begin_ns;
    }
    MPI_Start(send);
    for (int i = partitions - 1; i > 0; i--) {
        int other = rand() % (i + 1), former = order[i];
        order[i] = order[other];
        order[other] = former;
    }
    struct marking marking = {*send, kind, order, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, mark, &marking);
    MPI_Wait(send, MPI_STATUS_IGNORE);
    pthread_join(thread, NULL);
    return marking.begin_ns;
}

/* Runs all rounds, and prints the median, least and greatest time of each kind in microseconds. */
static void run_rounds(void) {
    MPI_Request request;
    int *order = allocate(sizeof *order * partitions);
    double *times[KINDS];
    out = allocate(bytes * partitions);
    into = allocate(bytes * partitions);
    for (int i = 0; i < partitions; i++) order[i] = i;
    for (int kind = 0; kind < KINDS; kind++) times[kind] = allocate(sizeof *times[kind] * rounds);
    if (rank == 0) MPI_Psend_init(out, partitions, bytes, MPI_BYTE, 1, PARTS, data, MPI_INFO_NULL, &request);
    else MPI_Precv_init(into, partitions, bytes, MPI_BYTE, 0, PARTS, data, MPI_INFO_NULL, &request);
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < KINDS; kind++) {
            double ended_ns;
            if (rank == 0) {
                MPI_Recv(NULL, 0, MPI_BYTE, 1, READY, data, MPI_STATUS_IGNORE);
                double begin_ns = send_round(kind, &request, order);
                MPI_Recv(&ended_ns, 1, MPI_DOUBLE, 1, ENDED, data, MPI_STATUS_IGNORE);
                times[kind][round] = (ended_ns - begin_ns) / 1e3;
                continue;
            }
            if (kind != SEND) MPI_Start(&request);
            MPI_Send(NULL, 0, MPI_BYTE, 0, READY, data);
            if (kind != SEND) MPI_Wait(&request, MPI_STATUS_IGNORE);
            else MPI_Recv(into, bytes * partitions, MPI_BYTE, 0, WHOLE, data, MPI_STATUS_IGNORE);
            ended_ns = now_ns();
            MPI_Send(&ended_ns, 1, MPI_DOUBLE, 0, ENDED, data);
        }
    }
    MPI_Request_free(&request);
    for (int kind = 0; rank == 0 && kind < KINDS; kind++) {
        double median = sort(times[kind], rounds);
        printf("%g %g %g\n", median, times[kind][0], times[kind][rounds - 1]);
    }
}

static void measure_partitioned(int argc, char **argv) {
    int provided;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--partitions")) partitions = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes")) bytes = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--gap")) gap_us = atol(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds")) rounds = atoi(argv[i + 1]);
        else die("no such option");
    }
    if (partitions < 1 || rounds < 1 || bytes < 1) die("too few partitions, rounds or bytes");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE) die("this library has no MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &data);
    run_rounds();
    MPI_Finalize();
}

#else

static void measure_partitioned(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) puts("absent");
    MPI_Finalize();
}

#endif

/* Binds this process to one of its allowed cores: rank 0 to the first, and so on, cyclically. */
static void pin(void) {
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int skip = rank % CPU_COUNT(&allowed), core = 0;
    while (!CPU_ISSET(core, &allowed) || skip-- > 0) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv) {
    /* Ends this process if the library hangs. */
    alarm(TIMEOUT_S);
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        measure_threads(argc, argv);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "overlap")) {
        measure_overlap(argc, argv);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "partitioned")) {
        measure_partitioned(argc, argv);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) die("which benchmark?");
    for (bench = 0; bench < BENCHES && strcmp(argv[1], benches[bench].name); bench++) {}
    if (bench == BENCHES) die("no such benchmark");
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json")) continue;
        if (!strcmp(argv[i], "--pin")) { pin(); continue; }
        if (!strcmp(argv[i], "--impl")) impl = value;
        else if (!strcmp(argv[i], "--transport")) transport = value;
        else if (!strcmp(argv[i], "--bytes")) bytes = atol(value);
        else if (!strcmp(argv[i], "--depth")) depth = atoi(value);
        else if (!strcmp(argv[i], "--shape")) shape = value;
        else die("no such option");
        i++;
    }
    if (bench == HELLO) {
        /* As in hello.rs: every rank sends a greeting to rank 0. */
        char greeting[64] = {0};
        snprintf(greeting, sizeof greeting, "hello from rank %d of %d", rank, size);
        for (int from = 1; rank == 0 && from < size; from++) {
            puts(greeting);
            MPI_Recv(greeting, sizeof greeting, MPI_BYTE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (rank == 0) puts(greeting);
        else MPI_Send(greeting, sizeof greeting, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    } else {
        MPI_Comm_dup(MPI_COMM_WORLD, &data);
        MPI_Comm_dup(MPI_COMM_WORLD, &control);
        if (bench == MEMORY) measure_memory();
        else measure();
    }
    MPI_Finalize();
    return 0;
}
