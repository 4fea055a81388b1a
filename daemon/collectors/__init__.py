"""What the daemon tells of its actors: read from them when somebody asks (a scrape, a status), never counted twice.

Collectors of a single actor still stand beside its wiring in `daemon/`; what is put together from several is here."""
