"""Text in files: download, translation of text files, documents and translation memories, resumption."""
