/* An engine with canned answers that is faster than anything in front of it: the upstream of `tests.benchmarks.tap`.
 *
 *     cc -O2 -o engine engine.c && ./engine [--port N] [--pace-us N] [--pace-when TEXT] [--events N]
 *
 * One thread, epoll, HTTP/1.1 keep-alive on 127.0.0.1; prints the port it took (0, the default, takes a free one).
 * POST /v1/chat/completions and /v1/completions answer
 *
 *     a JSON completion of about 1.3 KB, or, when the body says "stream":true,
 *     --events (48) server-sent events and "data: [DONE]": each a chunk and a write() of its own, as vLLM does it,
 *     one straight after the other or --pace-us apart (with --pace-when: only if the body contains TEXT).
 *
 * When the body names return_token_ids, choices carry log-probs and token_ids, and the first event prompt_token_ids;
 * else these are null. Every answer has an id of its own. answers.h has the text.
 * /health answers 200, anything else 404.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

enum { MAX_FDS = 16384, MAX_EVENTS = 4096, READ_BYTES = 65536, MAX_REQUEST = 64 << 20 };

/* A connection. `next` is the number of the stream's next piece: 0 the head, then events, [DONE], the last chunk. */
struct conn {
    int fd, next, paced, close_after;
    const struct answer *stream;
    char id[ID_DIGITS];
    char *in, *out;
    size_t in_size, in_room, scanned, out_size, out_sent;
    int watching_writes, queued;
    int64_t due;
    struct conn *later; /* in the queue of paced streams: all wait equally long, so first in is first out */
};

static struct conn *conns[MAX_FDS];
static struct answer answers[2]; /* without and with token fields */
static struct conn *first_due, *last_due;
static struct piece healthy, unknown;
static int events = 48, epoll_fd, timer_fd;
static int64_t pace_ns;
static const char *pace_when = "";
static uint64_t served;
static uint32_t instance;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- connections ---- */

static void unqueue(struct conn *c) {
    if (!c->queued) return;
    struct conn *before = NULL;
    for (struct conn *one = first_due; one; before = one, one = one->later)
        if (one == c) {
            if (before) before->later = c->later;
            else first_due = c->later;
            if (last_due == c) last_due = before;
            break;
        }
    c->queued = 0;
}

static void drop(struct conn *c) {
    unqueue(c);
    conns[c->fd] = NULL;
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void watch(struct conn *c, int writes) {
    if (c->watching_writes == writes) return;
    struct epoll_event e = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.fd = c->fd};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) fail("epoll_ctl");
    c->watching_writes = writes;
}

/* Write a piece with this answer's id; what the socket does not take is kept. Returns -1 if the peer has gone. */
static int put(struct conn *c, const struct piece *p) {
    if (p->id) memcpy(p->data + p->id, c->id, ID_DIGITS);
    ssize_t sent = write(c->fd, p->data, p->size);
    if (sent < 0) {
        if (errno != EAGAIN) return -1;
        sent = 0;
    }
    if ((size_t)sent == p->size) return 0;
    free(c->out);
    c->out_size = p->size - sent;
    c->out_sent = 0;
    if (!(c->out = malloc(c->out_size))) fail("malloc");
    memcpy(c->out, p->data + sent, c->out_size);
    watch(c, 1);
    return 0;
}

static void arm_timer(void) {
    struct itimerspec at = {0};
    if (first_due) at.it_value = (struct timespec){first_due->due / 1000000000, first_due->due % 1000000000};
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL)) fail("timerfd_settime");
}

static void wait_a_pace(struct conn *c) {
    c->due = now_ns() + pace_ns;
    c->later = NULL;
    c->queued = 1;
    if (last_due) last_due->later = c;
    else first_due = c;
    last_due = c;
    if (first_due == c) arm_timer();
}

/* Go on with a stream until it ends, waits for its pace, or the socket is full. Returns -1 if the peer has gone. */
static int go_on(struct conn *c) {
    const struct answer *a = c->stream;
    while (c->stream && !c->out) {
        int n = c->next++;
        const struct piece *p;
        p = n == 0 ? &a->head : n <= events ? &a->events[n - 1] : n <= events + 1 ? &a->done : &a->end;
        if (p == &a->end) c->stream = NULL;
        if (put(c, p)) return -1;
        if (c->paced && n >= 1 && n < events) {
            wait_a_pace(c);
            return 0;
        }
    }
    return 0;
}

/* ---- requests ---- */

/* The value of header `name` in [head, end), or NULL; its length goes to *size. */
static const char *header(const char *head, const char *end, const char *name, size_t *size) {
    size_t length = strlen(name);
    for (const char *line = head; (line = memchr(line, '\n', end - line)) && ++line < end;) {
        if ((size_t)(end - line) > length && line[length] == ':' && !strncasecmp(line, name, length)) {
            const char *value = line + length + 1, *stop = memchr(value, '\r', end - value);
            while (*value == ' ') value++;
            *size = (stop ? stop : end) - value;
            return value;
        }
    }
    return NULL;
}

/* Takes a chunked body apart in place. Returns the bytes that it takes up, 0 if it is not whole, -1 if it is broken. */
static ssize_t unchunk(char *body, size_t size, size_t *decoded) {
    size_t at = 0;
    *decoded = 0;
    for (int pass = 0; pass < 2; pass++) { /* first see whether it is whole, then move the bytes */
        for (at = 0;;) {
            char *line = memmem(body + at, size - at, "\r\n", 2);
            if (!line) return size - at > 32 ? -1 : 0;
            char *stop;
            unsigned long length = strtoul(body + at, &stop, 16);
            if (stop == body + at || length > MAX_REQUEST) return -1;
            size_t data = line + 2 - body;
            if (data + length + 2 > size) return 0;
            if (pass) {
                memmove(body + *decoded, body + data, length);
                *decoded += length;
            }
            at = data + length + 2;
            if (!length) break;
        }
    }
    return at;
}

static int says_stream(const char *body, size_t size) {
    const char *end = body + size;
    for (const char *at = body; (at = memmem(at, end - at, "\"stream\"", 8));) {
        at += 8;
        while (at < end && *at == ' ') at++;
        if (at == end || *at++ != ':') continue;
        while (at < end && *at == ' ') at++;
        if (end - at >= 4 && !memcmp(at, "true", 4)) return 1;
    }
    return 0;
}

static int respond(struct conn *c, const char *head, const char *body, size_t size) {
    static const char CHAT[] = "POST /v1/chat/completions ", TEXT[] = "POST /v1/completions ";
    static const char HEALTH[] = "GET /health ";
    if (!strncmp(head, HEALTH, sizeof HEALTH - 1)) return put(c, &healthy);
    if (strncmp(head, CHAT, sizeof CHAT - 1) && strncmp(head, TEXT, sizeof TEXT - 1)) return put(c, &unknown);
    char id[ID_DIGITS + 1];
    snprintf(id, sizeof id, "%08x%024llx", instance, (unsigned long long)served++);
    memcpy(c->id, id, ID_DIGITS);
    const struct answer *a = &answers[memmem(body, size, "\"return_token_ids\"", 18) != NULL];
    if (!says_stream(body, size)) return put(c, &a->plain);
    c->stream = a;
    c->next = 0;
    c->paced = pace_ns && memmem(body, size, pace_when, strlen(pace_when));
    return go_on(c);
}

/* Answer the requests that are whole, one after the other. Returns -1 if the connection is to be closed. */
static int serve(struct conn *c) {
    while (c->in_size && !c->stream && !c->out) {
        if (c->close_after) return -1;
        char *end = memmem(c->in + c->scanned, c->in_size - c->scanned, "\r\n\r\n", 4);
        if (!end) {
            if (c->in_size > READ_BYTES) return -1;
            c->scanned = c->in_size > 3 ? c->in_size - 3 : 0;
            return 0;
        }
        c->scanned = end - c->in;
        char *body = end + 4;
        size_t there = c->in + c->in_size - body, size = 0, used = 0, length;
        const char *value = header(c->in, end + 2, "transfer-encoding", &length);
        if (value) {
            ssize_t taken = unchunk(body, there, &size);
            if (taken < 0) return -1;
            if (!taken) return 0;
            used = taken;
        } else {
            value = header(c->in, end + 2, "content-length", &length);
            used = size = value ? strtoul(value, NULL, 10) : 0;
            if (size > MAX_REQUEST) return -1;
            if (there < size) return 0;
        }
        value = header(c->in, end + 2, "connection", &length);
        int old = memmem(c->in, (char *)memchr(c->in, '\n', end + 4 - c->in) - c->in, "HTTP/1.0", 8) != NULL;
        c->close_after = value ? !strncasecmp(value, "close", 5) : old;
        if (respond(c, c->in, body, size)) return -1;
        used += body - c->in;
        memmove(c->in, c->in + used, c->in_size - used);
        c->in_size -= used;
        c->scanned = 0;
    }
    return c->close_after && !c->stream && !c->out ? -1 : 0;
}

static void readable(struct conn *c) {
    for (;;) {
        if (c->in_room - c->in_size < READ_BYTES) {
            c->in_room = 2 * c->in_room + READ_BYTES;
            if (c->in_room > 2 * MAX_REQUEST || !(c->in = realloc(c->in, c->in_room))) return drop(c);
        }
        size_t room = c->in_room - c->in_size;
        ssize_t got = read(c->fd, c->in + c->in_size, room);
        if (got == 0 || (got < 0 && errno != EAGAIN)) return drop(c);
        if (got > 0) c->in_size += got;
        if (got < 0 || (size_t)got < room) break;
    }
    if (serve(c)) drop(c);
}

static void writable(struct conn *c) {
    while (c->out_sent < c->out_size) {
        ssize_t sent = write(c->fd, c->out + c->out_sent, c->out_size - c->out_sent);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) return drop(c);
        c->out_sent += sent;
    }
    free(c->out);
    c->out = NULL;
    watch(c, 0);
    if (c->queued) return;
    if (go_on(c) || serve(c)) drop(c);
}

static void tick(void) {
    uint64_t expired;
    if (read(timer_fd, &expired, sizeof expired) < 0 && errno != EAGAIN) fail("timerfd");
    int64_t now = now_ns();
    while (first_due && first_due->due <= now) {
        struct conn *c = first_due;
        unqueue(c);
        if (go_on(c) || (!c->stream && serve(c))) drop(c);
    }
    arm_timer();
}

static void take_connections(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct conn *c = fd < MAX_FDS ? calloc(1, sizeof *c) : NULL;
        if (!c) {
            close(fd);
            continue;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        c->fd = fd;
        conns[fd] = c;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e)) fail("epoll_ctl");
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024)) fail("listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size)) fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    int port = 0;
    for (int i = 1; i < argc; i++) {
        int more = i + 1 < argc;
        if (more && !strcmp(argv[i], "--port")) port = atoi(argv[++i]);
        else if (more && !strcmp(argv[i], "--pace-us")) pace_ns = 1000LL * atol(argv[++i]);
        else if (more && !strcmp(argv[i], "--pace-when")) pace_when = argv[++i];
        else if (more && !strcmp(argv[i], "--events")) events = atoi(argv[++i]);
        else {
            fprintf(stderr, "usage: engine [--port N] [--pace-us N] [--pace-when TEXT] [--events N]\n");
            return 2;
        }
    }
    if (events < 2 || events > MAX_EVENTS || port < 0 || port > 65535 || pace_ns < 0) {
        fprintf(stderr, "engine: --events from 2 to %d, --port up to 65535, --pace-us from 0\n", MAX_EVENTS);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    instance = (uint32_t)now_ns() ^ (uint32_t)getpid() << 16;
    for (int tokens = 0; tokens < 2; tokens++) answers[tokens] = answer(events, tokens);
    healthy = response("200 OK", text("{}"));
    unknown = response("404 Not Found", text("{\"error\":{\"message\":\"Not Found\",\"code\":404}}"));
    int listener = listen_on(port);
    if ((epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll_create1");
    if ((timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0) fail("timerfd_create");
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e)) fail("epoll_ctl");
    e.data.fd = timer_fd;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &e)) fail("epoll_ctl");
    for (;;) {
        struct epoll_event ready[256];
        int count = epoll_wait(epoll_fd, ready, 256, -1);
        if (count < 0 && errno != EINTR) fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                take_connections(listener);
            } else if (fd == timer_fd) {
                tick();
            } else {
                struct conn *c = conns[fd];
                if (c && ready[i].events & EPOLLOUT) writable(c);
                if (conns[fd] && conns[fd] == c && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
            }
        }
    }
}
