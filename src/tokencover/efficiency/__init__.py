"""What pruning saves: operations, time, memory."""
