"""Settings: config.toml to checked types, and the reference that is made of those types."""
