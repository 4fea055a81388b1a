"""OpenAPI 3.0 and 3.1: tools from a document, calls over HTTP (docs/tools.md)."""

from adapters.live.openapi.api import OpenApiApi
from adapters.live.openapi.plans import Skipped
from adapters.live.openapi.settings import AuthSettings, OpenApiSettings

__all__ = ["AuthSettings", "OpenApiApi", "OpenApiSettings", "Skipped"]
