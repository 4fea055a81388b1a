/* Reads one HTTP/1.1 answer as it comes: where it ends, and what its body was. Used by `load.c`. */

#ifndef REPLY_H
#define REPLY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_HEAD = 65536 };

static const char DONE[] = "data: [DONE]\n\n";
enum { TAIL = sizeof DONE - 1 };

/* Where the parser stands in an answer. */
enum place { HEAD, SIZED, TO_CLOSE, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER, WHOLE };

struct reply {
    enum place at;
    int closes;          /* the server closes the connection after it */
    char head[MAX_HEAD]; /* the head, later a line of the chunked framing */
    size_t head_size;
    uint64_t left, body; /* of the sized body or chunk; bytes of the body so far */
    int64_t first;       /* when the first of them came, 0 before */
    char tail[TAIL];     /* the last of them */
};

static void reset(struct reply *r) {
    r->at = HEAD;
    r->closes = 0;
    r->head_size = r->body = 0;
    r->first = 0;
    memset(r->tail, 0, TAIL);
}

static int has_done(const struct reply *r) { return !memcmp(r->tail, DONE, TAIL); }

static const char *field(struct reply *r, const char *name) {
    size_t length = strlen(name);
    for (char *line = strchr(r->head, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (!strncasecmp(line, name, length) && line[length] == ':') {
            for (line += length + 1; *line == ' ';) line++;
            return line;
        }
    }
    return NULL;
}

/* The head is whole: what comes next? Returns what is wrong with it, or NULL. */
static const char *read_head(struct reply *r) {
    static char what[64];
    if (strncmp(r->head, "HTTP/1.1 200", 12) && strncmp(r->head, "HTTP/1.0 200", 12)) {
        snprintf(what, sizeof what, "status %.15s", r->head);
        return what;
    }
    const char *coding = field(r, "transfer-encoding"), *length = field(r, "content-length");
    const char *close = field(r, "connection");
    r->closes = close ? !strncasecmp(close, "close", 5) : r->head[7] == '0';
    if (coding) {
        r->at = CHUNK_SIZE;
    } else if (length) {
        r->left = strtoull(length, NULL, 10);
        r->at = r->left ? SIZED : WHOLE;
    } else {
        r->at = TO_CLOSE;
        r->closes = 1;
    }
    return NULL;
}

static void body_bytes(struct reply *r, const char *data, size_t size, int64_t now) {
    if (!r->first) r->first = now;
    r->body += size;
    if (size >= TAIL) {
        memcpy(r->tail, data + size - TAIL, TAIL);
    } else {
        memmove(r->tail, r->tail + size, TAIL - size);
        memcpy(r->tail + TAIL - size, data, size);
    }
}

/* Collects a line, `\r\n` included, in r->head; returns 1 when it is whole, 0 for more, -1 if it does not end. */
static int line(struct reply *r, const char **data, const char *end) {
    const char *stop = memchr(*data, '\n', end - *data);
    size_t size = (stop ? stop + 1 : end) - *data;
    if (r->head_size + size >= MAX_HEAD) return -1;
    memcpy(r->head + r->head_size, *data, size);
    r->head_size += size;
    r->head[r->head_size] = 0;
    *data += size;
    return stop != NULL;
}

/* Takes in what was read at `now`; `at` tells whether that was all. Returns what is wrong, or NULL. */
static const char *parse(struct reply *r, const char *data, size_t size, int64_t now) {
    const char *end = data + size;
    while (data < end) {
        size_t take = end - data;
        int whole;
        switch (r->at) {
        case HEAD:
            if ((whole = line(r, &data, end)) < 0) return "a head too long";
            if (whole && r->head_size >= 4 && !memcmp(r->head + r->head_size - 4, "\r\n\r\n", 4)) {
                const char *wrong = read_head(r);
                if (wrong) return wrong;
                r->head_size = 0;
            }
            break;
        case SIZED:
        case CHUNK_DATA:
            if (take > r->left) take = r->left;
            body_bytes(r, data, take, now);
            data += take;
            r->left -= take;
            if (!r->left) r->at = r->at == SIZED ? WHOLE : CHUNK_END;
            break;
        case TO_CLOSE:
            body_bytes(r, data, take, now);
            data = end;
            break;
        case CHUNK_SIZE:
            if ((whole = line(r, &data, end)) < 0) return "a chunk size too long";
            if (!whole) break;
            char *stop;
            r->left = strtoull(r->head, &stop, 16);
            if (stop == r->head || r->left > 1ULL << 40) return "no chunk size";
            r->head_size = 0;
            r->at = r->left ? CHUNK_DATA : TRAILER;
            break;
        case CHUNK_END:
        case TRAILER:
            if ((whole = line(r, &data, end)) < 0) return "a trailer too long";
            if (!whole) break;
            int blank = r->head_size == 2 && r->head[0] == '\r';
            r->head_size = 0;
            if (r->at == TRAILER) {
                if (blank) r->at = WHOLE;
            } else {
                if (!blank) return "a chunk longer than its size";
                r->at = CHUNK_SIZE;
            }
            break;
        case WHOLE: return "bytes after the answer";
        }
    }
    return NULL;
}

#endif
