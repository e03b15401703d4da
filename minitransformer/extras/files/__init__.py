"""Text in files: download it, translate it by lines, paragraphs or memories, and go on after an interruption."""
