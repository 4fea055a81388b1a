"""What test modules share."""
