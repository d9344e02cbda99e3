"""Tables of examples: CSV, TSV, JSON lines, Parquet, plain lines, to `fit`, `add` and `predict`."""

import json
from pathlib import Path
from random import Random

import hyperproto
from tests.fuzz.files import mutate_file
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import Silent, Trial, check_probabilities
from tests.fuzz.kinds import kind, write_files
from tests.fuzz.mutations import extreme_string

FORMATS = ("csv", "tsv", "jsonl", "parquet")


def _table(form: str, share: int) -> None:
    @kind(f"fit-{form}", "fit", "load_classifier", f"table {form}", share=share)
    def fit(random: Random, folder: Path, samples: Samples) -> Trial:
        name = f"rows.{form}"
        path = folder / name
        path.write_bytes(mutate_file(random, name, samples.tables[name]))
        settings = random.choice(
            ({}, {}, {"coverage": 0.5}, {"feature_transform": "none"}, {"region": "gaussian", "fit_mode": "paper"})
        )

        def run() -> None:
            model = hyperproto.fit(path, folder / "model", encoder="identity", **settings)
            again = hyperproto.load_classifier(folder / "model")
            queries = samples.vectors[:, : again.n_features_in_]
            if queries.shape[1] == again.n_features_in_:
                check_probabilities(again.predict_proba(queries), f"fit {form}")
            if again.classes_.tolist() != model.classes_.tolist():
                raise Silent(f"fit {form}: other classes after load")

        return Trial(run, words=f"fit {form}")

    @kind(f"add-{form}", "add", f"table {form}", share=share // 2)
    def add(random: Random, folder: Path, samples: Samples) -> Trial:
        name = f"rows.{form}"
        (folder / name).write_bytes(mutate_file(random, name, samples.tables[name]))
        write_files(folder / "model", samples.models["bayes"])
        new_classes = random.random() < 0.7

        def run() -> None:
            before = hyperproto.load_classifier(folder / "model").counts_.sum()
            after = hyperproto.add(folder / "model", folder / name, new_classes=new_classes)
            again = hyperproto.load_classifier(folder / "model")
            if not before < again.counts_.sum() == after.counts_.sum():
                raise Silent(f"add {form}: examples are missing")
            check_probabilities(again.predict_proba(samples.vectors), f"add {form}")

        return Trial(run, words=f"add {form}")

    @kind(f"predict-{form}", "predict", f"table {form}", share=share // 2)
    def predict(random: Random, folder: Path, samples: Samples) -> Trial:
        name = f"rows.{form}"
        (folder / name).write_bytes(mutate_file(random, name, samples.tables[name]))
        write_files(folder / "model", samples.models[random.choice(("bayes", "gaussian"))])
        out = folder / f"answers.{random.choice(FORMATS)}"
        out.write_text("old")

        def run() -> None:
            batch, on_error = random.choice((1, 3, 64)), random.choice(("blank", "blank", "skip", "stop"))
            hyperproto.predict(folder / "model", folder / name, out, batch=batch, on_error=on_error)
            for line in out.read_text().split("\n")[:-1] if out.suffix == ".jsonl" else ():
                if not 0 <= (json.loads(line)["probability"] or 0) <= 1:
                    raise Silent(f"predict {form}: a probability outside 0 and 1")

        return Trial(run, words=f"predict {form}")


for _form, _share in zip(FORMATS, (30, 20, 30, 20), strict=True):
    _table(_form, _share)


@kind("texts", "fit", "predict", "FewShotTextClassifier", "table lines", share=20)
def texts(random: Random, folder: Path, samples: Samples) -> Trial:
    name = random.choice(("texts.csv", "texts.jsonl", "lines.txt"))
    (folder / name).write_bytes(mutate_file(random, name, samples.texts[name]))
    write_files(folder / "model", samples.text_model)
    form = random.choice((None, None, None, None, "csv", "tsv", "jsonl", "lines", "parquet"))
    column = random.choice(("text", "text", "text", "label", extreme_string(random)))

    def run() -> None:
        if name == "lines.txt":
            hyperproto.predict(folder / "model", folder / name, folder / "answers.txt", format=form)
        else:
            model = hyperproto.fit(folder / name, folder / "new", encoder=str(samples.bert), text=column, format=form)
            check_probabilities(model.predict_proba(["a king"]), "fit texts")

    return Trial(run, words="texts")


@kind("pictures", "fit", "FewShotImageClassifier", share=4)
def pictures(random: Random, folder: Path, samples: Samples) -> Trial:
    """Fit on a folder of images by class, with a run as encoder."""
    files = {name: content for name, content in samples.pictures.items() if name < "class02"}
    for name in random.sample(sorted(files), random.choice((0, 1, 1))):
        files[name] = mutate_file(random, name, files[name])
    write_files(folder / "images", files)
    encoder = str(samples.root / "run")
    _ = samples.run

    def run() -> None:
        model = hyperproto.fit(folder / "images", folder / "model", encoder=encoder)
        check_probabilities(model.predict_proba([str(folder / "images" / sorted(files)[0])]), "fit pictures")

    return Trial(run, words="fit pictures")
