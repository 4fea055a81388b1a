"""Answers in pages: which arguments turn them, and what the next page's are.

There is no standard. What is read: `Link: <...>; rel="next"` (RFC 8288), a cursor or URL in the answer under one of the
usual names, and for page numbers and offsets whether the page that came is full.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from adapters.live.openapi.plans import Paging, Parameter

_CURSOR = {"cursor", "pagetoken", "nexttoken", "continuationtoken", "startingafter", "after", "marker", "nextcursor"}
_PAGE = {"page", "pagenumber", "pageindex", "pageno", "pagenum", "p"}
_OFFSET = {"offset", "skip", "start", "startindex", "from"}
_SIZE = {"limit", "pagesize", "perpage", "pagelimit", "maxresults", "size", "count", "top", "take", "first"}
_NEXT = (
    "next_cursor", "nextCursor", "next_page_token", "nextPageToken", "next_token", "nextToken", "next", "next_page",
    "continuation_token", "after", "cursor",
)  # fmt: skip
_INNER = ("paging", "pagination", "page", "meta", "links", "_links", "response_metadata", "cursors")
_LINK = re.compile(r'<([^<>]{1,4000})>\s*;[^<]{0,400}?rel\s*=\s*"?([^";,<]{1,100})', re.IGNORECASE)


def paging_of(parameters: Sequence[Parameter]) -> Paging:
    """What the query parameters of an operation are by their names."""
    found: dict[str, str] = {}
    for parameter in parameters:
        plain = re.sub(r"[^a-z]", "", parameter.name.lower())
        for role, names in (("cursor", _CURSOR), ("page", _PAGE), ("offset", _OFFSET), ("size", _SIZE)):
            if parameter.place == "query" and plain in names:
                found.setdefault(role, parameter.argument)
                break
    turns = {"cursor", "page", "offset"} & found.keys()
    return Paging(**found) if turns else Paging()


def hint(paging: Paging) -> str:
    """A sentence for the description of a tool, empty if its answers do not come in pages."""
    turn = paging.cursor or paging.page or paging.offset
    if not turn:
        return ""
    size = f", {paging.size} how long a page is" if paging.size else ""
    return f"Answers come in pages: {turn} says which{size}."


def next_page(
    paging: Paging,
    parameters: Sequence[Parameter],
    schema: Mapping[str, Any],
    arguments: Mapping[str, Any],
    answer: Any,
    link: str,
) -> dict[str, Any] | None:
    """Arguments of the call that brings the next page; None if there is none that could be told.

    Args:
        schema: properties of the tool's parameters, for the types and defaults of its arguments.
        answer: the page that came.
        link: its `Link` header.
    """
    for target, relation in _LINK.findall(link[:16_384]):
        if "next" in relation.lower().split():
            return _from_url(target, parameters, schema, arguments)
    more = _next_in(answer)
    if isinstance(more, str) and ("://" in more or more.startswith(("/", "?"))):
        return _from_url(more, parameters, schema, arguments)
    if paging.cursor and isinstance(more, str | int) and not isinstance(more, bool) and more != "":
        return {**arguments, paging.cursor: _typed(str(more), schema.get(paging.cursor))}
    if paging.page and isinstance(more, int) and not isinstance(more, bool):
        return {**arguments, paging.page: more}
    return _counted(paging, schema, arguments, answer)


def _counted(
    paging: Paging, schema: Mapping[str, Any], arguments: Mapping[str, Any], answer: Any
) -> dict[str, Any] | None:
    size = _number(paging.size, schema, arguments)
    items = answer if isinstance(answer, list) else _only_list(answer)
    if isinstance(answer, Mapping) and answer.get("has_more", answer.get("hasMore")) is False:
        return None
    if not size or items is None or len(items) < size:
        return None
    if paging.page:
        first = _number(paging.page, schema, arguments)
        return {**arguments, paging.page: (1 if first is None else first) + 1}
    if paging.offset:
        return {**arguments, paging.offset: (_number(paging.offset, schema, arguments) or 0) + len(items)}
    return None


def _number(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> int | None:
    found = arguments.get(name)
    if found is None and isinstance(part := schema.get(name), Mapping):
        found = part.get("default")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _only_list(answer: Any) -> list[Any] | None:
    lists = [value for value in answer.values() if isinstance(value, list)] if isinstance(answer, Mapping) else []
    return lists[0] if len(lists) == 1 else None


def _next_in(answer: Any, depth: int = 0) -> Any:
    if not isinstance(answer, Mapping):
        return None
    for name in _NEXT:
        found = answer.get(name)
        if isinstance(found, Mapping):
            found = found.get("href", found.get("url"))
        if isinstance(found, str | int) and not isinstance(found, bool) and found != "":
            return found
    for name in _INNER if depth < 2 else ():
        found = _next_in(answer.get(name), depth + 1)
        if found is not None:
            return found
    return None


def _from_url(
    url: str, parameters: Sequence[Parameter], schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The arguments that a URL of the next page gives; never the URL itself, which could lead anywhere."""
    try:
        given = dict(parse_qsl(urlsplit(url).query, max_num_fields=100))
    except ValueError:
        return None
    changed = {
        parameter.argument: _typed(given[parameter.name], schema.get(parameter.argument))
        for parameter in parameters
        if parameter.place == "query" and parameter.name in given
    }
    return {**arguments, **changed} if changed and {**arguments, **changed} != dict(arguments) else None


def _typed(text: str, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = kind if isinstance(kind, list) else [kind]
    if "integer" in kinds or "number" in kinds:
        try:
            return int(text)
        except ValueError:
            return text
    if "boolean" in kinds and text in ("true", "false"):
        return text == "true"
    return text
