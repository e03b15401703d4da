"""The extras that the core uses if a configuration names them; the only file of the core that knows their names."""

EXTENSIONS = {
    "task:demonstration": "minitransformer.extras.demo.task:TASK",
    "task:parsing": "minitransformer.extras.parsing.task:TASK",
    "tokenizer:file": "minitransformer.extras.convert.tokenizer_files:read_tokenizer",
}
