"""What a server answers, as text for an agent: what is no text is named, not shown."""

import json
from typing import Any

import mcp_types as types

from adapters.live import CallResult


def result(answer: types.CallToolResult) -> CallResult:
    """The answer of `tools/call`."""
    structured = answer.structured_content
    text = "\n".join(filter(None, map(_block, answer.content)))
    # The specification asks servers to say structured content as text too; not all do.
    if structured is not None and not text:
        text = json.dumps(structured, ensure_ascii=False)
    return CallResult(text=text, structured=structured, error=bool(answer.is_error))


def _block(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return _note(block.mime_type, len(block.data) * 3 // 4)
    if isinstance(block, types.ResourceLink):
        return f"[resource {block.uri}" + (f": {block.description or block.title or block.name}]")
    if isinstance(block, types.EmbeddedResource):
        inside = block.resource
        if isinstance(inside, types.TextResourceContents):
            return inside.text
        return f"{inside.uri} " + _note(inside.mime_type or "binary", len(inside.blob) * 3 // 4)
    return f"[{getattr(block, 'type', 'content')}, left out]"


def _note(kind: str, size: int) -> str:
    return f"[{kind}, {size:,} bytes, left out]"
