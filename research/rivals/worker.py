"""Classifiers of other packages behind one interface. Also a script for the interpreter of such a package.

PYTHON research/rivals/worker.py PACKAGE MODEL

loads nothing of ours. It reads paths of jobs from standard input, a line each, and writes the answers of a job beside
it. Vectors are given with the texts, so frozen encoders run once for all packages; SetFit trains its own encoder.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Protocol

import numpy as np

DONE = "done: "  # begins the reply to a job on standard output; packages may write other lines
ITERATIONS = 20  # pairs of each kind for each example of SetFit
BATCH = 16


class Classifier(Protocol):
    """Classifier of texts with vectors (n, D) and integer labels (n,)."""

    def fit(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Fit to examples, anew."""

    def add(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Add examples of new classes by the package's own update."""

    def answer(self, texts: Sequence[str], x: Any) -> dict[str, Any]:
        """Return `labels` (n,), `confidence` (n,) and perhaps `novelty` (n,), larger for out-of-class texts."""


def run_steps(model: Any, steps: Sequence[Mapping[str, Any]], texts: Sequence[str], x: Any) -> list[dict[str, Any]]:
    """Call `fit`, `add` and `answer` in turn on rows of `texts` and `x`; return answers with their CPU seconds."""
    found = []
    for step in steps:
        rows = step["rows"]
        given: list[Any] = [[texts[row] for row in rows], x[rows]]
        if "labels" in step:
            given.append(np.array(step["labels"]))
        if step["call"] == "fit" and hasattr(model, "load"):
            model.load()  # the weights of an encoder: not part of the time
        start = process_time()
        answer = getattr(model, step["call"])(*given) or {}
        found.append({**answer, "seconds": process_time() - start})
    return found


class Adaptive:
    """adaptive-classifier: prototypes mixed with a small network; `novelty` is its `ood_score`."""

    def __init__(self, model: str) -> None:
        package = import_module("adaptive_classifier")
        self.make: Callable[..., Any] = lambda: package.AdaptiveClassifier(model, use_onnx=False, device="cpu")
        self.known: dict[str, Any] = {}

    def load(self) -> None:
        """Make a classifier whose encoder returns the vectors that are given."""
        import torch

        np.random.seed(0)  # the package draws from it when classes are added
        self.model = self.make()
        self.model._get_embeddings = lambda texts: [torch.from_numpy(self.known[text]) for text in texts]

    def fit(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Fit to examples."""
        self.add(texts, x, y)

    def add(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Add examples of new classes."""
        self.known |= zip(texts, x, strict=True)
        self.model.add_examples(list(texts), [str(label) for label in y.tolist()])

    def answer(self, texts: Sequence[str], x: Any) -> dict[str, Any]:
        """Return the first of the predictions and the out-of-distribution score."""
        self.known |= zip(texts, x, strict=True)
        best = [found[0] for found in self.model.predict_batch(list(texts), k=1)]
        labels, confidence = [int(label) for label, _ in best], [score for _, score in best]
        return {"labels": np.array(labels), "confidence": np.array(confidence), "novelty": self.novelty(x)}

    def novelty(self, x: Any) -> Any:
        """Return `ood_score` of every row: the least distance to a prototype in units of the radius of its class.

        The package measures the radii of all classes anew for each text; they are the same for all texts.
        """
        memory = self.model.memory
        least = np.full(len(x), np.inf)
        for label, prototype in memory.prototypes.items():
            radius = max(memory.class_radius(label), self.model.config.ood_min_radius)
            least = np.minimum(least, np.linalg.norm(x - prototype.numpy(), axis=1) / radius)
        return least


class Router:
    """semantic-router: similarity to the examples of a class among the five nearest, their mean or sum.

    The mean is the package's default; of its three aggregations the sum is the best on HWU64's valid texts.
    """

    def __init__(self, model: str, aggregation: str = "mean") -> None:
        encoders, routers = (import_module(f"semantic_router.{part}") for part in ("encoders", "routers"))
        known: dict[str, Any] = {}

        class Given(encoders.DenseEncoder):  # type: ignore[misc, name-defined] # the package is not installed here
            """Encoder that returns the vectors that are given."""

            def __call__(self, docs: list[Any]) -> list[list[float]]:
                return [known[doc] for doc in docs]

        self.known, self.route = known, import_module("semantic_router").Route
        self.make: Callable[..., Any] = lambda routes: routers.IndexedRouter(
            Given(name="given"), routes, aggregation=aggregation
        )

    def fit(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Fit to examples."""
        self.router = self.make(self.routes(texts, x, y))

    def add(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Add examples of new classes."""
        self.router.add(self.routes(texts, x, y))

    def routes(self, texts: Sequence[str], x: Any, y: Any) -> list[Any]:
        """Return a route for each class."""
        self.known |= zip(texts, x.tolist(), strict=True)
        own = {label: np.flatnonzero(y == label) for label in np.unique(y).tolist()}
        return [
            self.route(name=str(label), utterances=[texts[row] for row in rows.tolist()]) for label, rows in own.items()
        ]

    def answer(self, texts: Sequence[str], x: Any) -> dict[str, Any]:
        """Return the best route; its confidence is a similarity, and no probability."""
        self.known |= zip(texts, x.tolist(), strict=True)
        best = [self.router(text) for text in texts]
        return {
            "labels": np.array([int(choice.name) for choice in best]),
            "novelty": -np.array([choice.confidence for choice in best]),
        }


class SetFit:
    """SetFit (Tunstall et al. 2022): an encoder trained on pairs of texts; settings as in `research.intents.setfit`."""

    def __init__(self, model: str) -> None:
        self.setfit = import_module("setfit")
        self.make: Callable[..., Any] = lambda: self.setfit.SetFitModel.from_pretrained(model)

    def load(self) -> None:
        """Load the encoder anew."""
        self.model = self.make()

    def fit(self, texts: Sequence[str], x: Any, y: Any) -> None:
        """Train the encoder, then logistic regression on its vectors."""
        examples = import_module("datasets").Dataset.from_dict({"text": list(texts), "label": y.tolist()})
        with TemporaryDirectory() as folder:
            settings = self.setfit.TrainingArguments(
                num_iterations=ITERATIONS,
                num_epochs=1,
                batch_size=BATCH,
                seed=0,
                report_to="none",
                save_strategy="no",
                output_dir=folder,
            )
            self.setfit.Trainer(model=self.model, args=settings, train_dataset=examples).train()

    def answer(self, texts: Sequence[str], x: Any) -> dict[str, Any]:
        """Return the likeliest class and its probability."""
        probability = np.asarray(self.model.predict_proba(list(texts), as_numpy=True))
        labels = np.asarray(self.model.model_head.classes_)[probability.argmax(axis=1)]
        return {"labels": labels.astype(int), "confidence": probability.max(axis=1)}


PACKAGES: dict[str, Callable[[str], Any]] = {  # the name of a package, then perhaps a setting
    "adaptive-classifier": Adaptive,
    "semantic-router": Router,
    "semantic-router, sum": lambda model: Router(model, "sum"),
    "SetFit": SetFit,
}


def main() -> None:
    """Run the jobs named on standard input with one package."""
    package, model = sys.argv[1:]
    rival = PACKAGES[package](model)
    _reply(version(package.partition(",")[0].lower()))
    for line in sys.stdin:
        path = Path(line.strip())
        job = json.loads(path.read_text())
        found = run_steps(rival, job["steps"], job["texts"], np.load(path.with_suffix(".npy")))
        values = {f"{n} {name}": value for n, answer in enumerate(found) for name, value in answer.items()}
        np.savez(path.with_suffix(".npz"), **values)
        _reply(str(path))


def _reply(text: str) -> None:
    sys.stdout.write(f"{DONE}{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
