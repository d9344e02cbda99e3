"""SetFit, run in a separate environment, since it is not among our dependencies.

python -m venv setfit && setfit/bin/pip install -c constraints.txt torch setfit
python -m research.intents evidence --data hwu64 --shots 2 8 --draws 3 --setfit setfit/bin/python
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperproto.encoders.parts.pretrained import find_model
from hyperproto.errors import ConfigError

ITERATIONS = 20  # pairs of each kind for each example
BATCH = 16

SCRIPT = """
import json, sys, time
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments

job = json.load(open(sys.argv[1]))
model = SetFitModel.from_pretrained(job["model"], multi_target_strategy=job["strategy"])
start = time.perf_counter()
settings = TrainingArguments(
    num_iterations=job["iterations"], num_epochs=1, batch_size=job["batch"], seed=0, report_to="none",
    save_strategy="no", output_dir=job["folder"],
)
examples = Dataset.from_dict({"text": job["texts"], "label": job["labels"]})
Trainer(model=model, args=settings, train_dataset=examples).train()
found = model.predict(job["asked"]).tolist()
json.dump({"labels": found, "seconds": time.perf_counter() - start}, open(sys.argv[2], "w"))
"""


class SetFit:
    """Tunstall et al., "Efficient Few-Shot Learning Without Prompts", 2022: an encoder fine-tuned on pairs of texts.

    The constructor runs the interpreter `python`, which fits SetFit to `texts` and predicts the labels of `asked`.
    Settings are its defaults, except for `num_iterations`. A label is a number or, for texts that may carry several
    labels, a list of 0 and 1: the head is then one logistic regression a label.
    """

    def __init__(
        self, python: str, encoder: str, texts: Sequence[str], labels: Sequence[int | list[int]], asked: Sequence[str]
    ) -> None:
        model = str(find_model(encoder).resolve())
        with TemporaryDirectory() as folder:
            job, out = Path(folder, "job.json"), Path(folder, "out.json")
            strategy = "one-vs-rest" if isinstance(labels[0], list) else None
            task: dict[str, Any] = {"model": model, "iterations": ITERATIONS, "batch": BATCH, "folder": folder}
            task["strategy"] = strategy
            job.write_text(json.dumps({**task, "texts": [*texts], "labels": [*labels], "asked": [*asked]}))
            command = [python, "-c", SCRIPT, str(job), str(out)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise ConfigError(f"--setfit {python}: cannot be run ({error}); {HOW}") from None
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise ConfigError(f"--setfit {python}: SetFit failed ({last}); {HOW}")
            found = json.loads(out.read_text())
        self.seconds: float = found["seconds"]  # of training and answering, without the start of the interpreter
        self.labels: NDArray[np.int64] = np.array(found["labels"])

    def predict(self, _: NDArray[Any]) -> NDArray[np.int64]:
        """Return the labels of `asked`; the argument is ignored."""
        return self.labels


HOW = f"name an interpreter that has it: {Path(sys.executable).name} -m venv ENV, then ENV/bin/pip install torch setfit"
