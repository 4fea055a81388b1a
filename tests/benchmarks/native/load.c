/* Calls an HTTP server as fast as it answers, and measures: the load generator of `tests.benchmarks.tap`.
 *
 *     cc -O2 -o load load.c
 *     ./load --port N --body FILE [--path P] [--header 'Name: value']... [--connections C]
 *            [--seconds S | --requests N] [--stream]
 *
 * One thread, epoll, C keep-alive connections to 127.0.0.1; each sends FILE as a POST when its last answer is whole.
 * An answer counts when its status is 200, its body ends where Content-Length or the last chunk says, and, with
 * --stream, it ends in "data: [DONE]". Anything else is an error, and the connection is made anew. What is under way
 * when the time is over is waited for. Prints one JSON object:
 *
 *     sent, requests, errors   sent = requests + errors; errors include what did not come within the grace
 *     problem                  of the first error
 *     seconds, rps             from the first request to the last answer
 *     connects                 connections made (more than --connections: the server closed some)
 *     body_bytes_min, _max     of the decoded bodies: servers that pass answers through have the same as the direct one
 *     total_us, first_us       {"p50", "p90", "p99", "max"}, from before the write to the end of the answer, and to
 *                              the first byte of its body
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "reply.h"

enum { MAX_CONNECTIONS = 4096, READ_BYTES = 262144, MAX_CONSECUTIVE_ERRORS = 100, GRACE_SECONDS = 30 };

struct conn {
    int fd, connected, busy, watching_writes;
    size_t sent;
    int64_t began;
    struct reply reply;
};

struct samples {
    uint64_t *ns;
    size_t count, room;
};

static struct conn *conns;
static struct samples totals, firsts;
static int epoll_fd, port, stream, connections = 1, under_way;
static char *request;
static size_t request_size;
static uint64_t sent, done, errors, connects, body_min = UINT64_MAX, body_max, limit;
static int consecutive;
static int64_t began, ended, last_answer;
static char problem[160];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(struct samples *s, uint64_t ns) {
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 1 << 16;
        if (!(s->ns = realloc(s->ns, s->room * sizeof *s->ns))) fail("realloc");
    }
    s->ns[s->count++] = ns;
}

/* ---- sending ---- */

static void watch(struct conn *c, int writes) {
    if (c->watching_writes == writes) return;
    struct epoll_event e = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl");
    c->watching_writes = writes;
}

static void open_connection(struct conn *c) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    if ((c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) fail("socket");
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl");
    c->connected = 1;
    c->watching_writes = 0;
    connects++;
}

static void close_connection(struct conn *c) {
    close(c->fd);
    c->connected = 0;
}

static int more_wanted(void) { return limit ? sent < limit : now_ns() < ended; }

static void push(struct conn *c) {
    while (c->sent < request_size) {
        ssize_t went = write(c->fd, request + c->sent, request_size - c->sent);
        if (went < 0) break; /* a server that answers before it has read all, or has closed: reading tells */
        c->sent += went;
    }
    watch(c, c->sent < request_size);
}

static void begin(struct conn *c) {
    if (!more_wanted() || consecutive >= MAX_CONSECUTIVE_ERRORS) return;
    if (!c->connected) open_connection(c);
    sent++;
    under_way++;
    c->busy = 1;
    c->sent = 0;
    reset(&c->reply);
    c->began = now_ns();
    push(c);
}

/* ---- answers ---- */

static void error(struct conn *c, const char *what) {
    if (!errors++) snprintf(problem, sizeof problem, "%s", what);
    consecutive++;
    under_way--;
    c->busy = 0;
    close_connection(c);
}

static void success(struct conn *c, int64_t now) {
    note(&totals, now - c->began);
    note(&firsts, (c->reply.first ? c->reply.first : now) - c->began);
    if (c->reply.body < body_min) body_min = c->reply.body;
    if (c->reply.body > body_max) body_max = c->reply.body;
    done++;
    consecutive = 0;
    last_answer = now;
    under_way--;
    c->busy = 0;
    if (c->reply.closes) close_connection(c);
}

/* The server has closed, or the connection failed. */
static void closed(struct conn *c, const char *why, int64_t now) {
    if (!c->busy) return close_connection(c);
    if (!why && c->reply.at == TO_CLOSE && (!stream || has_done(&c->reply))) success(c, now);
    else error(c, why ? why : c->reply.at == HEAD ? "closed before the answer" : "closed amid the answer");
    begin(c);
}

static void readable(struct conn *c) {
    static char buffer[READ_BYTES];
    for (;;) {
        ssize_t got = read(c->fd, buffer, sizeof buffer);
        int64_t now = now_ns();
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) return closed(c, got ? strerror(errno) : NULL, now);
        if (!c->busy) { /* another caller on this connection would have taken it for its own answer */
            if (!errors++) snprintf(problem, sizeof problem, "bytes without a request");
            return close_connection(c);
        }
        const char *wrong = parse(&c->reply, buffer, got, now);
        if (!wrong && c->reply.at == WHOLE) {
            if (c->sent < request_size) wrong = "an answer before the end of the request";
            if (stream && !has_done(&c->reply)) wrong = "no [DONE]";
        }
        if (wrong) error(c, wrong);
        else if (c->reply.at == WHOLE) success(c, now);
        if (!c->busy) return begin(c);
        if ((size_t)got < sizeof buffer) return;
    }
}

/* ---- the command ---- */

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_percentiles(const char *name, struct samples *s, const char *after) {
    printf("\"%s\":", name);
    if (!s->count) {
        printf("null%s", after);
        return;
    }
    qsort(s->ns, s->count, sizeof *s->ns, by_size);
    static const struct {
        const char *name;
        double share;
    } POINTS[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1.0}};
    for (int i = 0; i < 4; i++) {
        size_t at = POINTS[i].share * s->count;
        if (at >= s->count) at = s->count - 1;
        printf("%s\"%s\":%.1f", i ? "," : "{", POINTS[i].name, s->ns[at] / 1e3);
    }
    printf("}%s", after);
}

static void print_result(void) {
    double seconds = last_answer > began ? (last_answer - began) / 1e9 : 0;
    for (char *at = problem; *at; at++)
        if (*at < ' ' || *at == '"' || *at == '\\') *at = ' ';
    printf("{\"sent\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",", sent, done, errors);
    printf("\"problem\":\"%s\",\"seconds\":%.6f,\"rps\":%.1f,", problem, seconds, seconds ? done / seconds : 0);
    printf("\"connects\":%" PRIu64 ",\"body_bytes_min\":%" PRIu64 ",", connects, done ? body_min : 0);
    printf("\"body_bytes_max\":%" PRIu64 ",", body_max);
    print_percentiles("total_us", &totals, ",");
    print_percentiles("first_us", &firsts, "}\n");
}

static char *whole_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) fail(path);
    long length = ftell(file);
    char *data = malloc(length + 1);
    rewind(file);
    if (!data || fread(data, 1, length, file) != (size_t)length) fail(path);
    fclose(file);
    *size = length;
    return data;
}

static void build_request(const char *path, const char *headers, const char *file) {
    size_t size, room;
    char *body = whole_file(file, &size);
    room = size + strlen(headers) + strlen(path) + 512;
    if (!(request = malloc(room))) fail("malloc");
    int head = snprintf(request, room,
                        "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\nUser-Agent: load/1\r\n"
                        "Content-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n", path, port, headers, size);
    memcpy(request + head, body, size);
    request_size = head + size;
    free(body);
}

static void run(double seconds) {
    if (!(conns = calloc(connections, sizeof *conns))) fail("calloc");
    if ((epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll_create1");
    for (int i = 0; i < connections; i++) open_connection(&conns[i]);
    began = last_answer = now_ns();
    ended = began + (int64_t)(seconds * 1e9);
    for (int i = 0; i < connections; i++) begin(&conns[i]);
    int64_t grace = limit ? INT64_MAX : ended + GRACE_SECONDS * 1000000000LL;
    while (under_way && now_ns() < grace) {
        struct epoll_event ready[256];
        int count = epoll_wait(epoll_fd, ready, 256, 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            struct conn *c = ready[i].data.ptr;
            if (c->connected && ready[i].events & EPOLLOUT) push(c);
            if (c->connected && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
        }
    }
    for (int i = 0; i < connections; i++)
        if (conns[i].busy) error(&conns[i], "no answer in time");
}

int main(int argc, char **argv) {
    static char headers[16384];
    const char *path = "/v1/chat/completions", *body = NULL;
    double seconds = 0;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--stream")) {
            stream = 1;
            continue;
        }
        if (!value) goto usage;
        i++;
        if (!strcmp(name, "--port")) port = atoi(value);
        else if (!strcmp(name, "--path")) path = value;
        else if (!strcmp(name, "--body")) body = value;
        else if (!strcmp(name, "--connections")) connections = atoi(value);
        else if (!strcmp(name, "--seconds")) seconds = atof(value);
        else if (!strcmp(name, "--requests")) limit = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--header") && strlen(headers) + strlen(value) + 3 < sizeof headers) {
            strcat(headers, value);
            strcat(headers, "\r\n");
        } else goto usage;
    }
    if (port < 1 || port > 65535 || !body || (seconds > 0) == (limit > 0)) goto usage;
    if (connections < 1 || connections > MAX_CONNECTIONS) goto usage;
    signal(SIGPIPE, SIG_IGN);
    build_request(path, headers, body);
    run(seconds);
    print_result();
    return 0;
usage:
    fprintf(stderr, "usage: load --port N --body FILE [--path P] [--header 'Name: value']... [--connections C]"
                    " [--seconds S | --requests N] [--stream]\n");
    return 2;
}
