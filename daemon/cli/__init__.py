"""The command line: `evolved SUBCOMMAND`, one file a noun. `main` knows them all; none is imported before it runs."""
