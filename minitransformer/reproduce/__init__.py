"""The paper's tables, measured again."""
