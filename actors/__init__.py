"""The actors of the daemon, the messages they exchange, and the system they run on."""
