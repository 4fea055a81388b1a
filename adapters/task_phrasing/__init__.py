"""Task phrasing: a task that was executed, said as somebody would who wants it done; the port is
`actors.ports.models`."""
