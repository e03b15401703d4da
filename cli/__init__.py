"""The commands: each reads its options, makes one call and shows the result."""
