"""The migrations, in the order of their numbers; each says in its docstring what it brought."""
