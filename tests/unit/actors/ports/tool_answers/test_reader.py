"""What tools answer, in the forms of APIs, MCP, frameworks, runtimes and shells, and whether the call failed."""

import json
import random
import time

import pytest

from actors.ports.tool_answers.reader import documents, failed, flagged, read

FAILED = [
    # what the readers of before took for fine
    "Error: no such order",
    "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'x'",
    '{"success": false}',
    '{"isError": true}',
    '{"status": 403}',
    "HTTP 404: no such page",
    "HTTP 302: the server redirects, which is not followed to another host",
    '{"detail": "Not found."}',
    '{"detail": [{"loc": ["body", "id"], "msg": "field required", "type": "value_error.missing"}]}',
    # APIs
    '{"error": {"code": 404, "message": "Requested entity was not found.", "status": "NOT_FOUND"}}',
    '{"error": {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}}',
    '{"ok": false, "error": "channel_not_found"}',
    '{"__type": "com.amazonaws#ResourceNotFoundException", "message": "Requested resource not found"}',
    '{"errors": [{"message": "Cannot query field \\"x\\""}], "data": null}',
    '{"errors": [{"status": "422", "title": "Invalid Attribute", "source": {"pointer": "/data"}}]}',
    '{"type": "https://example.com/probs/out-of-credit", "title": "You do not have enough credit.", "status": 403}',
    '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "Method not found"}}',
    '{"kind": "Status", "status": "Failure", "message": "pods \\"x\\" not found", "reason": "NotFound", "code": 404}',
    '{"status": "error", "message": "Unable to communicate with database"}',
    '{"code": 40001, "msg": "invalid credential"}',
    '{"errcode": 40013, "errmsg": "invalid appid"}',
    '{"message": "Not Found", "documentation_url": "https://docs.github.com/rest"}',
    '{"email": ["This field is required."], "age": ["A valid integer is required."]}',
    '{"statusCode": 500, "message": "Internal server error"}',
    '{"Response": "False", "Error": "Movie not found!"}',
    '[{"success": false, "id": 1}, {"success": false, "id": 2}]',
    '{"results": [{"id": 1, "error": "gone"}, {"id": 2, "error": "gone"}]}',
    '<?xml version="1.0"?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>',
    "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
    "404 Not Found",
    "503 Service Unavailable",
    "Request failed with status code 429",
    '{"errorCode": "E07", "errorSummary": "Api validation failed: name", "errorCauses": [{"errorSummary": "name"}]}',
    '{"errorSummary": "The policy is in use and cannot be deleted.", "errorId": "x", "errorCauses": []}',
    '{"ErrorNumber": 10, "Type": "ValidationException", "Message": "it is wrong", "Elements": [{"AccountID": "7"}]}',
    '[{"type": "Validation", "title": "Validation failure", "detail": "Name contains bad characters"}]',
    '{"errorMessages": ["Issue does not exist"], "errors": {}}',
    '{"type": "invalid_request_error", "message": "No such customer"}',
    # runtimes and shells
    'Exception in thread "main" java.lang.NullPointerException\n\tat com.acme.Main.main(Main.java:5)',
    "TypeError: Cannot read properties of undefined (reading 'x')\n    at f (/app/a.js:1:2)\n    at g (/app/b.js:3:4)",
    "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\nmain.main()",
    "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds",
    "bash: foo: command not found",
    "ls: cannot access 'x': No such file or directory",
    "make: *** [Makefile:2: all] Error 1",
    "compiling\nlinking\nProcess exited with code 2",
    '{"stdout": "", "stderr": "boom", "exit_code": 1}',
    "npm ERR! code E404",
    "main.c:3:5: error: expected ';' before 'return'",
    'psycopg2.errors.UndefinedTable: relation "x" does not exist\nLINE 1: SELECT\n',
    # MCP and frameworks
    '{"content": [{"type": "text", "text": "no such file"}], "isError": true}',
    '[{"type": "text", "text": "Error: ENOENT: no such file"}]',
    '{"content": [{"type": "text", "text": "{\\"error\\": \\"rate limited\\"}"}]}',
    "Error: ToolException('x')\n Please fix your mistakes.",
    "An error occurred while running the tool. Please try again. Error: x",
    "I encountered an error while trying to use the tool. This was the error: x.",
    "1 validation error for search\nquery\n  Field required [type=missing, input_value={}, input_type=dict]",
    "Error executing tool search: timeout",
    "teamID is empty",
    "no channel ids provided",
    "required parameter missing",
    "expected a number, got 'x'",
    "<tool_use_error>File has not been read yet</tool_use_error>",
    "MCP error -32602: Invalid arguments for tool read_file",
    "search is not a valid tool, try one of [find].",
    "{'error': 'no order'}",
    '```json\n{"error": "no order"}\n```',
    '"Error: no order"',
    "❌ Failed to send the message",
    '{"error": "rate limited", "rows": [1, 2, 3',
    # languages
    "Fehler: Bestellung nicht gefunden",
    "Die Bestellung konnte nicht storniert werden.",
    "Erreur : commande introuvable",
    "La commande n'existe pas.",
    "Error: no se encontró el pedido",
    "El pedido no existe.",
    "Erro ao cancelar o pedido",
    "Não foi possível cancelar o pedido.",
    "错误：订单不存在",
    "订单取消失败",
    "エラー：注文が見つかりません",
    "注文をキャンセルできませんでした。",
    # classes that answers of nobody's set were missed by
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
    "ORDER_NOT_FOUND",
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
]
OK = [
    '{"error": null}',
    '{"error": null, "data": {"id": 1}}',
    '{"errors": [], "data": {"id": 1}}',
    '{"error": "", "result": 5}',
    '{"error": false, "items": []}',
    '{"success": true, "error": {}}',
    '{"code": 0, "msg": "ok", "data": []}',
    '{"code": 200, "message": "OK"}',
    '{"status": 200}',
    '{"status": "ok"}',
    '{"errcode": 0, "errmsg": "ok"}',
    '{"error_count": 0, "rows": [1]}',
    "[]",
    "42",
    "true",
    "Order 17 was refunded.",
    '{"error_rate": 0.1, "error_count": 3, "last_error": "boom", "errors_total": 7}',
    '[{"id": 1, "title": "Error: cannot log in"}, {"id": 2, "title": "Payment failed"}]',
    "No results found.",
    "No errors found.",
    "No customers found",
    "Delivery is on Monday; a signature is needed. The parcel has 2 items.",
    "0 errors, 3 warnings",
    "Errors: 0",
    "Tool ran without output or errors",
    '{"tickets": [{"id": 7, "title": "error in checkout", "status": "open"}]}',
    '{"id": 7, "title": "Error: cannot log in", "state": "open", "labels": ["bug"]}',
    '{"logs": [{"timestamp": "2026-01-01", "level": "error", "error": "boom"}]}',
    '{"query": "errors", "hits": 3, "lines": ["Error: disk full", "Error: disk full"]}',
    "src/app.py:10:    except ValueError as error:\nsrc/app.py:12:        raise RuntimeError('failed')",
    "class NotFound(Exception):\n    \"\"\"Order not found.\"\"\"\n",
    "def load(path):\n    try:\n        return open(path)\n    except OSError:\n        raise ValueError('no')\n",
    "# Error handling\n\nIf the order does not exist, the API answers 404 Not Found.\n",
    "fix: error when cart is empty (#12)\nfeat: retry failed payments (#13)",
    "- 4f2a1c0 Fix crash when token is invalid\n- 91bd2aa Handle failed uploads",
    '{"content": [{"type": "text", "text": "3 orders"}], "isError": false}',
    '{"stdout": "error.log\\n", "stderr": "", "exit_code": 0}',
    "warning: unused variable\nFinished\nexit code: 0",
    "Keine Ergebnisse",
    "Datei erfolgreich gespeichert",
    "没有找到结果",
    '{"id": "job_1", "object": "job", "status": "completed", "error": null, "created_at": 1}',
    'Clicked "Report an error"',
    "The error budget of checkout is 0.1 % a month; 40 % of it is left.",
    '{"success":0,"total":0}',
    '{"available":false,"reason":"sold out"}',
    "Your refund of 12 EUR was approved; it was first rejected by mistake.",
    "1 failed, 11 passed",
    "id,status\n1,failed\n2,ok",
    "User has no orders.",
    "Het is gelukt: fout verholpen",
]  # fmt: skip
UNKNOWN = [
    "", "  \n", "null", "None", "{}",
    '{"data": {"a": {"x": 1}, "b": null}, "errors": [{"message": "b is gone", "path": ["b"]}]}',
    '[{"id": 1, "success": true}, {"id": 2, "success": false}]',
    '{"succeeded": [1, 2], "failed": [{"id": 3, "error": "gone"}]}',
    '{"error": null}\n{"error": "no order"}',
    '{"rows": [1, 2, 3',
]  # fmt: skip


@pytest.mark.parametrize("answer", FAILED)
def test_a_failure_is_seen(answer: str) -> None:
    reading = read(answer)
    assert reading == "failed"


@pytest.mark.parametrize("answer", OK)
def test_what_only_speaks_of_errors_is_fine(answer: str) -> None:
    assert read(answer) == "ok", read(answer)


@pytest.mark.parametrize("answer", UNKNOWN)
def test_part_of_a_failure_and_no_answer_are_unknown(answer: str) -> None:
    assert read(answer) == "unknown", read(answer)


def test_content_parts_and_structured_content_are_read_like_text() -> None:
    assert failed([{"type": "text", "text": "Error: no order"}])
    assert failed({"structuredContent": {"error": "no order"}, "content": []})
    assert failed(b'{"error": "no order"}')
    assert not failed({"error": None})


def test_a_flag_beside_the_text_is_kept_as_words() -> None:
    assert flagged("3 orders", False) == "3 orders"
    assert flagged("Error: no order", True) == "Error: no order"
    for text in ("0", "", "Division by zero\n" * 400, '{"rows": []}'):
        assert read(flagged(text, True)) == "failed"


def test_results_of_parallel_calls_are_told_apart() -> None:
    assert documents('{"a": 1}\n{"error": "x"}') == [{"a": 1}, {"error": "x"}]
    assert documents(" ") == []
    assert read('{"error": "a"}\n{"error": "b"}') == "failed"


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
        read(text)
        assert time.process_time() - began < 1.0, text[:20]


def test_nothing_makes_it_raise() -> None:
    rng = random.Random(5)
    pieces = [*FAILED, *OK, *UNKNOWN]
    for _ in range(3_000):
        one, other = rng.choice(pieces), rng.choice(pieces)
        text = one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]
        assert read(text) in ("ok", "failed", "unknown")
        raw = bytearray(text.encode())
        for _ in range(3):
            if raw:
                raw[rng.randrange(len(raw))] = rng.randrange(256)
        read(bytes(raw))
    for value in (
        None,
        0,
        1.5,
        True,
        [],
        {},
        [[[[[[1]]]]]],
        {"content": {"content": {"content": {"content": {"content": "x"}}}}},
    ):
        read(value)
    read("\ud800")
    read("[" * 100_000)
    read(float("nan"))
