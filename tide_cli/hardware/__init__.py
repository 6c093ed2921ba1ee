"""What the machine has, and how engine and trainer share it."""
