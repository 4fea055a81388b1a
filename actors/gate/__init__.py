"""What the gate measures a candidate by, and how it concludes: pure statistics, held-out tasks, checks, and their panel."""
