"""What tools answer, in the forms of APIs, MCP, frameworks, runtimes and shells, and whether the call failed."""

import json
import random
import time

from actors.ports.tool_answers.reader import documents, failed, flagged
from tests.benchmarks.tool_results import load

FAILED = [
    "HTTP 302: the server redirects, which is not followed to another host",
    '{"detail": "Not found."}',
    '{"detail": [{"loc": ["body", "id"], "msg": "field required", "type": "value_error.missing"}]}',
    "<tool_use_error>File has not been read yet</tool_use_error>",
    "{'error': 'no order'}",
    '```json\n{"error": "no order"}\n```',
    '"Error: no order"',
    '{"error": "rate limited", "rows": [1, 2, 3',
    "Die Bestellung konnte nicht storniert werden.",
    "La commande n'existe pas.",
    "El pedido no existe.",
    "Não foi possível cancelar o pedido.",
    "注文をキャンセルできませんでした。",
    '{"success":0,"msg":"invalid token"}',
    '{"success":"false"}',
    '{"accepted":false,"reason":"outside the window"}',
    '{"cod":"404","message":"city not found"}',
    '{"ret":1001,"info":"sign error"}',
    '{"status":"NOK","message":"vehicle unknown"}',
    '{"fout":"niet gevonden"}',
    "ETIMEDOUT 10.0.0.4:5432",
    "-ERR unknown command",
    "status: 5 NOT_FOUND",
    "The operation was aborted.",
    "order already cancelled",
    "That seat is no longer available.",
    "This card has been declined.",
    "Refund not processed",
    'Argument "limit": expected int',
    "SMTPRecipientsRefused: {}",
    "<faultcode>soap:Client</faultcode>",
    "Zamówienie nie istnieje",
    "Sipariş bulunamadı",
    "Bestelling niet gevonden",
    "Không tìm thấy đơn hàng",
    "الطلب غير موجود",
    "User has no permissions",
    "Unfortunately that seat is gone.",
    "We don't ship to islands.",
    "Leider ausverkauft.",
    "Nous n'acceptons plus de réservations.",
    "You need to be an administrator to do that.",
    "StopIteration",
    "psycopg2.errors.UniqueViolation: duplicate key value",
    "undefined method `price' for nil:NilClass (NoMethodError)",
    '{"answer": "Sorry, I could not find that order."}',
    "You need manager approval for refunds above 200 EUR.",
    'SQLSTATE[23505]: Unique violation: 7 ERROR:  duplicate key value violates unique constraint "users_pkey"',
    "Process exited with code 137 (OOMKilled)",
    "src/main.c:3:5: error: expected ';' before 'return'",
    "src/app.ts(12,5): error TS2322: Type 'string' is not assignable to type 'number'.",
    '{"output": "", "metadata": {"exit_code": 2}}',
    "-----\nKeyError                        Traceback (most recent call last)\nCell In[3], line 1",
    "  File \"<string>\", line 2\n    print(x\n         ^\nSyntaxError: '(' was never closed",
    "Query cancelled: statement timeout",
    "--- FAIL: TestAdd (0.00s)\n    add_test.go:9: got 3, want 4",
    "FAILURES!\nTests: 3, Assertions: 4, Failures: 1.",
    "cp: missing destination file operand after 'a'\nTry 'cp --help' for more information.",
    "/home/user/x is outside the workspace.",
    "The file is 12 MB, larger than the maximum of 1 MB.",
    "robots.txt forbids fetching this page",
    "Error response from daemon: No such container: web",
    "I refuse to run destructive commands.",
    "[INFO] Scanning for projects...\n[ERROR] Failed to execute goal on project app",
]
"""Of each form that the labelled answers lack, one."""
OK = [
    '{"error_rate": 0.1, "error_count": 3, "last_error": "boom", "errors_total": 7}',
    '[{"id": 1, "title": "Error: cannot log in"}, {"id": 2, "title": "Payment failed"}]',
    "The error budget of checkout is 0.1 % a month; 40 % of it is left.",
    '{"success":0,"total":0}',
    '{"available":false,"reason":"sold out"}',
    "Your refund of 12 EUR was approved; it was first rejected by mistake.",
    "1 failed, 11 passed",
    "id,status\n1,failed\n2,ok",
    "User has no orders.",
    "Het is gelukt: fout verholpen",
    "", "  \n", "null", "None", "{}",
    '{"data": {"a": {"x": 1}, "b": null}, "errors": [{"message": "b is gone", "path": ["b"]}]}',
    '[{"id": 1, "success": true}, {"id": 2, "success": false}]',
    '{"succeeded": [1, 2], "failed": [{"id": 3, "error": "gone"}]}',
    '{"error": null}\n{"error": "no order"}',
    '{"rows": [1, 2, 3',
    "Contact us if you cannot log in.",
    "The patient denied chest pain.",
    "No hay errores.",
    "3 reviews:\n1. It broke, refund denied.\n2. Could not be happier.",
    "Chat 8 (closed)\nUser: it says access denied\nAgent: try again",
    "    raise ValueError(\n        'no such file'\n    )\n\n    return path",
    "[ERROR] 09:14 import: row 4 failed\n[INFO] 09:15 import: done",
    "npm WARN deprecated a@5: this library is no longer supported\nadded 50 packages",
    'Troubleshooting: "permission denied" usually means that you are not in the group.',
    "Das Handbuch erklärt die Meldung „Zugriff verweigert“.",
    "Imported 118 of 120 rows. 2 rows skipped (invalid e-mail).",
    "3 issues: error in parser, crash on start, failed login",
    "Sorry for the wait! Your table is booked.",
    "Nenhum erro encontrado.",
    'en:\n  errors:\n    not_found: "Not found"\n    timeout: "It timed out"',
    "CURL(1)\n  6  Could not resolve host.",
    "Your search did not match any documents.",
    "You have no unread messages.",
    "Aucun message non lu.",
    "Status codes\n\n401 Unauthorized: the key is missing.",
    "[BUG-12] Crash when saving\nThe app cannot save files.",
]  # fmt: skip
WRONG = {"build": 6, "unseen": 3, "later": 3, "strange": 6, "blind": 4, "guests": 12}


def test_of_the_labelled_answers_no_more_are_told_wrong_than_ever() -> None:
    """1,321 answers of APIs, MCP servers, frameworks, runtimes and by hand, of which the reader was built on 641."""
    wrong = {part: [c.text for c in load(part) if failed(c.text) != (c.label == "failed")] for part in WRONG}
    assert {part: len(texts) for part, texts in wrong.items()} == WRONG, wrong


def test_a_failure_is_seen_and_what_only_speaks_of_errors_or_failed_in_part_is_none() -> None:
    assert [answer for answer in FAILED if not failed(answer)] == []
    assert [answer for answer in OK if failed(answer)] == []


def test_content_parts_and_structured_content_are_read_like_text() -> None:
    assert failed([{"type": "text", "text": "Error: no order"}])
    assert failed({"structuredContent": {"error": "no order"}, "content": []})
    assert failed(b'{"error": "no order"}')
    assert not failed({"error": None})


def test_a_flag_beside_the_text_is_kept_as_words() -> None:
    assert flagged("3 orders", False) == "3 orders"
    assert flagged("Error: no order", True) == "Error: no order"
    for text in ("0", "", "Division by zero\n" * 400, '{"rows": []}'):
        assert failed(flagged(text, True))


def test_results_of_parallel_calls_are_told_apart() -> None:
    assert documents('{"a": 1}\n{"error": "x"}') == [{"a": 1}, {"error": "x"}]
    assert documents(" ") == []
    assert failed('{"error": "a"}\n{"error": "b"}')


def test_a_megabyte_is_read_in_no_time() -> None:
    size = 1_000_000
    texts = [
        "a" * size, "Error " * (size // 6), " " * size, "\n" * size, "(" * size, "[" * size,
        '{"a":' * (size // 5), "<" * size, "aB." * (size // 3), "a a " * (size // 4),
        "at x(" * (size // 5), "x: " * (size // 3), "0" * size, "'" * size, '"' * size, "错误" * (size // 2),
        "ein " * (size // 4) + "konnte nicht", json.dumps([{"error": None, "n": n} for n in range(40_000)]),
        "a.b:" * (size // 4), "from " * (size // 5), "exit code " * (size // 10), "not " * (size // 4),
    ]  # fmt: skip
    for text in texts:
        began = time.process_time()
        failed(text)
        assert time.process_time() - began < 1.0, text[:20]


def test_nothing_makes_it_raise() -> None:
    rng = random.Random(5)
    pieces = [*FAILED, *OK]
    for _ in range(3_000):
        one, other = rng.choice(pieces), rng.choice(pieces)
        text = one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]
        failed(text)
        raw = bytearray(text.encode())
        for _ in range(3):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        failed(bytes(raw))
    deep = {"content": {"content": {"content": {"content": {"content": "x"}}}}}
    for value in (None, 0, 1.5, True, [], {}, [[[[[[1]]]]]], deep, "\ud800", "[" * 100_000, float("nan")):
        failed(value)
