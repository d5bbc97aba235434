"""What people know about the rows: labels, groups, pairs, chunklets and targets."""
