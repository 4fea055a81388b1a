"""Structured logs on standard error: one JSON object a line, ids not payloads."""

import logging
import os
import sys

import structlog


def configure(level: int = logging.INFO) -> None:
    """Set structlog up for a process that runs as a service."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # The MCP SDK quotes messages that it cannot read, whoever wrote them; we say the same without the words.
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False


def as_command() -> None:
    """What a command needs that prints a result: logs on standard error, as people read them."""
    # Looked up for each logger: a test puts another stream there.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def as_service() -> None:
    """What a process needs before it does anything: structured logs, and files for our user alone, because spool, store
    and logs hold agents' prompts and answers."""
    os.umask(0o077)
    configure()
