"""What the gate measures a candidate by, and how it concludes: statistics, held-out tasks, checks, and their panel."""
