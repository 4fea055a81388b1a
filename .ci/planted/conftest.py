"""As in tests/conftest.py."""

pytest_plugins = ["tests.support.progress"]
