"""What the commands do, below the command line: whatever is more than reading options."""
