"""What an operator meets: settings that are wrong, files that cannot be used, a doctor that says what to do."""
