"""Saved classifiers, taggers, runs and checkpoints: damaged, and forged with checksums that are right again."""

import json
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import hyperproto
from tests.fuzz.arrays import hostile_array
from tests.fuzz.files import Files, mutate_file, mutate_files, sealed
from tests.fuzz.inputs import QUERIES, SENTENCES, Samples
from tests.fuzz.judge import Enough, Silent, Trial, check_finite, check_probabilities, same
from tests.fuzz.kinds import kind, write_files
from tests.fuzz.mutations import dump_json, mutate_bytes, mutate_json


def answers(folder: Path) -> dict[str, Any]:
    """Return the public state and predictions of a saved classifier of vectors."""
    model = hyperproto.load_classifier(folder)
    queries = QUERIES if model.n_features_in_ == QUERIES.shape[1] else np.ones((2, model.n_features_in_))
    found = {
        "predict": model.predict(queries).tolist(),
        "probabilities": model.predict_proba(queries),
        "measure": model.measure(queries),
        "novelty": model.novelty(queries),
        "counts": model.counts_,
    }
    check_probabilities(found["probabilities"], "a loaded classifier")
    for name in ("measure", "novelty", "counts"):
        check_finite(found[name], f"{name} of a loaded classifier")
    if (np.asarray(found["counts"]) <= 0).any():
        raise Silent("a loaded classifier has a class of no examples")
    return found


_EXPECTED: dict[str, Any] = {}


@kind("model-damaged", "load_classifier", "HypersphereClassifier.load", share=90)
def damaged_model(random: Random, folder: Path, samples: Samples) -> Trial:
    """Any change of a saved classifier is refused, or changes nothing."""
    name = random.choice(sorted(samples.models))
    write_files(folder / "model", mutate_files(random, samples.models[name]))

    def run() -> None:
        if name not in _EXPECTED:
            _EXPECTED[name] = answers(samples.root / "models" / name)
        if not same(answers(folder / "model"), _EXPECTED[name]):
            raise Silent("a damaged classifier was loaded without a word")

    return Trial(run, words="load a damaged classifier")


def forge(files: Files, head: Any, content: bytes | None = None) -> Files:
    """Forge a saved classifier: another header or other tensors, with valid checksums."""
    if not isinstance(head, dict):
        raise Enough
    [name] = [name for name in files if name.endswith(".safetensors")]
    tensors = files[name] if content is None else content
    digest = sha256(tensors).hexdigest()
    file_name = f"tensors-{digest[:16]}.safetensors"
    if isinstance(head.get("tensors"), dict) and content is not None:
        head = {**head, "tensors": {"file": file_name, "sha256": digest, "bytes": len(tensors)}}
        name = file_name
    try:
        content = dump_json(sealed(head))
    except (TypeError, ValueError):
        raise Enough from None
    return {"model.json": content, name: tensors}


@kind("model-forged", "load_classifier", "HypersphereClassifier.load", share=100)
def forged_model(random: Random, folder: Path, samples: Samples) -> Trial:
    """Load a forged classifier: refused, or one that a fit could give: finite, with examples in each class."""
    files = samples.models[random.choice(sorted(samples.models))]
    head = json.loads(files["model.json"])
    head.pop("checksum")
    try:
        forged = (
            forge(files, mutate_json(random, head))
            if random.random() < 0.5
            else forge(files, head, _forged_tensors(random, files))
        )
    except (Enough, UnicodeEncodeError):
        forged = files
    write_files(folder / "model", forged)

    def run() -> None:
        answers(folder / "model")
        model = hyperproto.load_classifier(folder / "model")
        if not isinstance(model, hyperproto.FewShotTextClassifier | hyperproto.FewShotImageClassifier):
            rows = np.ones((1, model.n_features_in_))
            check_probabilities(
                model.partial_fit(rows, model.classes_[:1]).predict_proba(rows), "a forged classifier, added to"
            )

    return Trial(run, words="load a forged classifier")


def _forged_tensors(random: Random, files: Files) -> bytes:
    from safetensors.numpy import load, save

    [content] = [content for name, content in files.items() if name.endswith(".safetensors")]
    tensors = {name: array.copy() for name, array in load(content).items()}
    name = random.choice(sorted(tensors))
    array = tensors[name]
    action = random.randrange(7)
    with np.errstate(all="ignore"):
        if action <= 2 and array.size:
            number = random.choice((-1.0, -1.0, 0.0, 0.0, 0.5, 1e9, 1e155, 1e308, 2.0**63, np.nan, np.inf))
            array.flat[random.randrange(array.size)] = np.array([number]).astype(array.dtype)[0]
        elif action == 3:
            tensors[name] = array[: random.randrange(len(array) + 1)] if array.ndim else array[None]
        elif action == 4:
            del tensors[name]
        elif action == 5:
            tensors[name] = array.astype(random.choice((np.float32, np.float64, np.int64, np.uint8, bool)))
        else:
            other = hostile_array(random, 3, 4)
            if (
                isinstance(other, np.ndarray)
                and other.dtype.kind in "fiub"
                and not isinstance(other, np.ma.MaskedArray)
            ):
                tensors[name] = np.ascontiguousarray(other)
    return save(tensors)


@kind("exported-damaged", "ExportedClassifier", share=30)
def damaged_export(random: Random, folder: Path, samples: Samples) -> Trial:
    """Any change of an exported classifier is refused, or changes nothing."""
    write_files(folder / "exported", mutate_files(random, samples.exported))
    queries = QUERIES if random.random() < 0.5 else hostile_array(random, 3, QUERIES.shape[1])

    def run() -> None:
        found = hyperproto.ExportedClassifier(folder / "exported", threads=1).predictions(queries)
        check_probabilities(found.probabilities, "an exported classifier")
        expected = hyperproto.ExportedClassifier(samples.root / "exported", threads=1).predictions(queries)
        if not np.array_equal(found.probabilities, expected.probabilities):
            raise Silent("a damaged export was loaded without a word")

    return Trial(run, words="load a damaged export")


@kind("text-model", "load_classifier", "FewShotTextClassifier.load", share=10)
def text_model(random: Random, folder: Path, samples: Samples) -> Trial:
    files = samples.text_model
    if random.random() < 0.5:
        files = mutate_files(random, files)
    else:
        head = json.loads(files["model.json"])
        head.pop("checksum")
        try:
            files = forge(files, mutate_json(random, head))
        except (Enough, UnicodeEncodeError):
            files = samples.text_model
    write_files(folder / "model", files)

    def run() -> None:
        model = hyperproto.load_classifier(folder / "model")
        queries: Any = (
            ["a king"] if type(model) is not hyperproto.HypersphereClassifier else np.ones((1, model.n_features_in_))
        )
        check_probabilities(model.predict_proba(queries), "a text classifier")

    return Trial(run, words="load a text classifier")


@kind("tagger", "EntityTagger.load", share=12)
def tagger(random: Random, folder: Path, samples: Samples) -> Trial:
    """Load a damaged or forged tagger: a damaged one must be refused, a forged one refused or usable."""
    content = samples.tagger["tagger.json"]
    damaged = random.random() < 0.5
    if damaged:
        content = mutate_file(random, "tagger.json", content)
    else:
        head = json.loads(content)
        head.pop("checksum")
        head = mutate_json(random, head)
        try:
            content = b"[]" if not isinstance(head, dict) else dump_json(sealed(head))
        except (TypeError, ValueError):
            content = b"{}"
    write_files(folder / "tagger", {"tagger.json": content})

    def run() -> None:
        model = hyperproto.EntityTagger.load(folder / "tagger")
        found = model.predict(SENTENCES[:1])
        for part in model.predict_proba(SENTENCES[:1]):
            check_probabilities(part, "a loaded tagger")
        if damaged:
            if "tagger" not in _EXPECTED:
                _EXPECTED["tagger"] = hyperproto.EntityTagger.load(samples.root / "tagger").predict(SENTENCES[:1])
            if found != _EXPECTED["tagger"]:
                raise Silent("a damaged tagger was loaded without a word")

    return Trial(run, words="load a tagger")


def weights(folder: Path) -> dict[str, Any]:
    """Every tensor of a run."""
    from hyperproto.training import Run

    learner, _ = Run(folder).load()
    found = {name: tensor.numpy().tobytes() for name, tensor in learner.state_dict().items()}
    if not all(tensor.isfinite().all() for tensor in learner.state_dict().values()):
        raise Silent("weights that are not finite were loaded")
    return found


@kind("run-damaged", "Run", "evaluate", share=25)
def damaged_run(random: Random, folder: Path, samples: Samples) -> Trial:
    """Weights and the log of a run: refused, or as they were."""
    name = random.choice(("model.safetensors", "model.safetensors", "metrics.jsonl", "prior_ratio.json"))
    _ = samples.run
    write_files(folder / "run", {**samples.run, name: mutate_bytes(random, samples.run[name])})

    def seen(place: Path) -> Any:
        from hyperproto.estimators.networks import RunNetwork
        from hyperproto.training import Run

        if name == "metrics.jsonl":
            return Run(place).read_metrics(), Run(place).best_validation()
        return RunNetwork(place).prior_ratio if name == "prior_ratio.json" else weights(place)

    def run() -> None:
        if name not in _EXPECTED:
            _EXPECTED[name] = seen(samples.root / "run")
        if not same(seen(folder / "run"), _EXPECTED[name]):
            raise Silent(f"a damaged {name} of a run was used without a word")

    return Trial(run, words=f"a damaged {name}")


@kind("run-edited", "Run", "evaluate", "FewShotImageClassifier", share=12)
def edited_run(random: Random, folder: Path, samples: Samples) -> Trial:
    """Load a run folder whose files were edited, exchanged or removed."""
    write_files(folder / "run", mutate_files(random, samples.run))
    data = f"folder:{samples.pictures_folder},size=16,channels=1,shares=50/25/25"

    def run() -> None:
        found = hyperproto.evaluate(data, run=folder / "run", way=2, shot=1, query=1, episodes=2)
        check_finite(found.values, "evaluate a run")

    return Trial(run, words="evaluate a run")


@kind("resume", "train", share=8)
def resume(random: Random, folder: Path, samples: Samples) -> Trial:
    """Resume from a damaged run: training must refuse, or end with the same result."""
    name = random.choice(("checkpoint/last.safetensors", "checkpoint/last.safetensors", "config.json", "metrics.jsonl"))
    (folder / "small.toml").write_bytes(samples.recipe)
    files = {key: content for key, content in samples.run.items() if key != "prior_ratio.json"}
    write_files(folder / "run", {**files, name: mutate_file(random, name, files[name])})
    whole = dict(samples.run)

    def run() -> None:
        from hyperproto.training import load_recipe, train

        train(load_recipe(str(folder / "small.toml")), folder / "run")
        found = {key: (folder / "run" / key).read_bytes() for key in ("model.safetensors", "metrics.jsonl")}
        if any(found[key] != whole[key] for key in found):
            raise Silent(f"training went on from a damaged {name}")

    return Trial(run, words=f"resume with a damaged {name}", may_write=("run",))


@kind("checkpoint", "TextEncoder", share=10)
def checkpoint(random: Random, folder: Path, samples: Samples) -> Trial:
    """Load a damaged language model: refused, or finite vectors."""
    extra = {
        "modules.json": dump_json(
            [
                {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            ]
        ),
        "1_Pooling/config.json": dump_json(
            {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
        ),
        "sentence_bert_config.json": dump_json({"max_seq_length": 16, "do_lower_case": False}),
    }
    files = {**samples.checkpoint, **(extra if random.random() < 0.6 else {})}
    write_files(folder / "model", mutate_files(random, files))

    def run() -> None:
        from hyperproto.estimators.networks import forget_networks

        forget_networks()
        check_finite(
            hyperproto.TextEncoder(str(folder / "model")).transform(["a king", "the river of london"]),
            "a damaged language model",
        )

    return Trial(run, words="read a language model")
