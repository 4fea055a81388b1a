/* The answers of `engine.c`, written once at the start in the field order and spacing of vLLM (compact JSON).
 *
 * Field by field they are what a vLLM sends that was asked for token ids and log-probs, or was not; the text is canned.
 */

#ifndef ANSWERS_H
#define ANSWERS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_DIGITS = 32, PROMPT_IDS = 200, COMPLETION_TOKENS = 170 };

/* A prepared piece of an answer; the digits of the id are written over at `id` (0: it has none). */
struct piece {
    char *data;
    size_t size, id;
};

struct answer {
    struct piece head, plain, *events, done, end;
};

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void append(struct piece *p, const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof text || !(p->data = realloc(p->data, p->size + size + 1))) fail("append");
    memcpy(p->data + p->size, text, size + 1);
    p->size += size;
}

static const char *const WORDS[] = {" the", " agent", " books", " a", " flight", " to", " Oslo", " and", " pays", "."};

static int token_id(int n) { return 1000 + (n * 7919) % 150000; }

static void append_logprob(struct piece *p, int n) {
    const char *word = WORDS[n % 10];
    append(p, "{\"token\":\"%s\",\"logprob\":-%d.%06d,\"bytes\":[", word, n % 3, 100000 + (n * 6007) % 899999);
    for (int i = 0; word[i]; i++) append(p, i ? ",%d" : "%d", word[i]);
    append(p, "],\"top_logprobs\":[]}");
}

static void append_prompt_ids(struct piece *p, int tokens) {
    if (!tokens) {
        append(p, ",\"prompt_token_ids\":null");
        return;
    }
    append(p, ",\"prompt_token_ids\":[");
    for (int i = 0; i < PROMPT_IDS; i++) append(p, i ? ",%d" : "%d", token_id(i + 500));
    append(p, "]");
}

static struct piece body_with_id(const char *object) {
    struct piece p = {0};
    append(&p, "{\"id\":\"chatcmpl-");
    p.id = p.size;
    append(&p, "%0*d\",\"object\":\"%s\",\"created\":1763700000,\"model\":\"bench\",", ID_DIGITS, 0, object);
    append(&p, "\"choices\":[{\"index\":0,");
    return p;
}

/* `prefix` + body + `suffix`, with the id's place moved. */
static struct piece wrapped(const char *prefix, struct piece body, const char *suffix) {
    struct piece p = {0};
    append(&p, "%s", prefix);
    size_t before = p.size;
    if (!(p.data = realloc(p.data, p.size + body.size + 1))) fail("realloc");
    memcpy(p.data + p.size, body.data, body.size);
    p.size += body.size;
    p.id = body.id ? before + body.id : 0;
    append(&p, "%s", suffix);
    free(body.data);
    return p;
}

static struct piece chunk(struct piece event) {
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%zx\r\n", event.size);
    return wrapped(prefix, event, "\r\n");
}

static struct piece response(const char *status, struct piece body) {
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", status,
             body.size);
    return wrapped(head, body, "");
}

static struct piece text(const char *s) {
    struct piece p = {0};
    append(&p, "%s", s);
    return p;
}

static struct piece event(int n, int events, int tokens) {
    struct piece p = body_with_id("chat.completion.chunk");
    if (n == 0) {
        append(&p, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
        append_prompt_ids(&p, tokens);
    } else {
        append(&p, "\"delta\":{\"content\":\"%s\"},\"logprobs\":", WORDS[n % 10]);
        if (tokens) {
            append(&p, "{\"content\":[");
            append_logprob(&p, n);
            append(&p, "]}");
        } else {
            append(&p, "null");
        }
        append(&p, n == events - 1 ? ",\"finish_reason\":\"stop\",\"stop_reason\":null," : ",\"finish_reason\":null,");
        if (tokens) append(&p, "\"token_ids\":[%d]}]", token_id(n));
        else append(&p, "\"token_ids\":null}]");
    }
    append(&p, "}");
    return chunk(wrapped("data: ", p, "\n\n"));
}

static struct piece completion(int tokens) {
    struct piece p = body_with_id("chat.completion");
    append(&p, "\"message\":{\"role\":\"assistant\",\"content\":\"");
    for (int n = 0; n < COMPLETION_TOKENS; n++) append(&p, "%s", WORDS[n % 10]);
    append(&p, "\",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,\"tool_calls\":[],"
               "\"reasoning_content\":null},\"logprobs\":");
    if (tokens) {
        append(&p, "{\"content\":[");
        for (int n = 0; n < COMPLETION_TOKENS; n++) {
            if (n) append(&p, ",");
            append_logprob(&p, n);
        }
        append(&p, "]}");
    } else {
        append(&p, "null");
    }
    append(&p, ",\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":");
    if (tokens) {
        for (int n = 0; n < COMPLETION_TOKENS; n++) append(&p, n ? ",%d" : "[%d", token_id(n));
        append(&p, "]");
    } else {
        append(&p, "null");
    }
    append(&p, "}],\"service_tier\":null,\"system_fingerprint\":null,\"usage\":{\"prompt_tokens\":%d,", PROMPT_IDS);
    append(&p, "\"total_tokens\":%d,\"completion_tokens\":%d,", PROMPT_IDS + COMPLETION_TOKENS, COMPLETION_TOKENS);
    append(&p, "\"prompt_tokens_details\":null},\"prompt_logprobs\":null");
    append_prompt_ids(&p, tokens);
    append(&p, ",\"kv_transfer_params\":null}");
    return response("200 OK", p);
}

/* What a request gets: `events` events if it streams, with token fields or without. */
static struct answer answer(int events, int tokens) {
    struct answer a = {0};
    a.head = text("HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                  "transfer-encoding: chunked\r\n\r\n");
    a.plain = completion(tokens);
    if (!(a.events = calloc(events, sizeof *a.events))) fail("calloc");
    for (int n = 0; n < events; n++) a.events[n] = event(n, events, tokens);
    a.done = chunk(text("data: [DONE]\n\n"));
    a.end = text("0\r\n\r\n");
    return a;
}

#endif
