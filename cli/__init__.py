"""The commands: each reads its options, makes one call, shows the result."""
