"""The core trains and translates without its extras."""

import subprocess
import sys
from pathlib import Path

from small_run import write_parallel_text
from waiting import TIME_LIMIT

ROOT = Path(__file__).resolve().parent.parent

CODE = """
import sys
from pathlib import Path

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("minitransformer.extras."):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
from minitransformer import DataConfig, ModelConfig, RunConfig, TrainingConfig, Translator, train
data = DataConfig(raw=Path(sys.argv[1]), train_source=("t.en",), train_target=("t.de",), vocabulary_size=40)
model = ModelConfig(n_layers=1, d_model=16, d_ff=16, n_heads=2, d_k=8, d_v=8)
config = RunConfig(run=Path("run"), data=data, model=model, training=TrainingConfig(max_updates=2))
print(train(config, callbacks=[]).is_complete, len(Translator.load("run").translate(["one two"])))
"""


def test_without_extras_the_core_trains_and_translates(tmp_path: Path) -> None:
    write_parallel_text(tmp_path, "t", 200, seed=1)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}){CODE}", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=TIME_LIMIT)
    assert run.stdout == "True 1\n", run.stderr
