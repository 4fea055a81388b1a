"""What puts it together: command line, settings, tap, control API, dashboard, upkeep, and the demo."""
