"""What `encoder=` may be: the folder of a run, a torch module, an encoder or a callable; saved, moved, changed."""

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from torch import Tensor, nn

from hyperproto import FewShotImageClassifier, FewShotTextClassifier, HypersphereClassifier, ImageEncoder, TextEncoder
from hyperproto.api.files import new_classifier
from hyperproto.data import DATASETS, Pool, open_pool
from hyperproto.encoders import make_encoder
from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import load_classifier
from hyperproto.estimators.items import run_folder
from hyperproto.training import Run, load_recipe, train
from hyperproto.training.run import PriorRatio
from tests.helpers.items import LABELS, TEXTS, names_of
from tests.helpers.tiny_models import tiny_bert
from tests.helpers.tiny_words import register

WORDS_RUN = Path(__file__).parents[1] / "fixtures" / "0.1" / "run-words"
NEW = ["the king of london", "bob", "a river was born"]


@pytest.fixture(scope="session")
def glyph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a researcher leaves behind: a run on glyphs, trained for a moment."""
    small = ["encoder.filters=4", "training.steps=20", "training.validate_every=20", "validation.episodes=5"]
    return train(load_recipe("glyphs:hyperproto", small), tmp_path_factory.mktemp("runs") / "glyphs").folder


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A language model that was trained on texts for two steps, on vectors of length 1."""
    folder = tmp_path_factory.mktemp("texts")
    tiny_bert(folder / "bert")

    def load(split: str, argument: str, progress: Any = None) -> Pool:
        names = tuple(f"{split} {label}" for label in dict.fromkeys(LABELS))
        return Pool(TEXTS, np.repeat(np.arange(3), 3), names, name="tiny-texts", split=split)

    entries = dict(DATASETS._entries)
    DATASETS.add("tiny-texts", SimpleNamespace(SUMMARY="", splits=lambda argument: ("train", "val"), load=load))
    (folder / "texts.toml").write_text(
        'transform = "unit"\n[data]\nspec = "tiny-texts"\n[encoder]\nname = "sentence-transformer"\n'
        f'model = "{folder}/bert"\nfrozen = false\n[method]\nname = "protonet"\n'
        "[episodes]\nway = 3\nshot = 1\nquery = 1\n"
        '[optim.encoder]\nname = "adam"\nlr = 0.01\n[training]\nsteps = 2\nvalidate_every = 2\n'
        "[validation]\nway = 3\nshot = 1\nquery = 1\nepisodes = 2\n"
    )
    yield train(load_recipe(str(folder / "texts.toml")), folder / "run").folder
    DATASETS._entries = entries


@pytest.fixture(scope="session")
def glyphs() -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Ten images of each of four classes that no run has seen."""
    pool = open_pool("glyphs", "test")
    rows = np.concatenate([members[:10] for members in pool.members[:4]])
    return [np.asarray(pool.items[row]) for row in rows], [pool.class_names[n] for n in pool.labels[rows]]


def as_the_run_has_them(folder: Path, items: Any) -> NDArray[np.float32]:
    learner, _ = Run(folder).load()
    with torch.no_grad():
        units = learner.features.encoder.encode_all(learner.features.encoder.prepare(items))
        vectors: NDArray[np.float32] = learner.features.transform(units.x).numpy()
    return vectors


def test_images_by_a_run(glyph_run: Path, glyphs: tuple[list[NDArray[np.uint8]], list[str]], tmp_path: Path) -> None:
    images, labels = glyphs
    model = FewShotImageClassifier(encoder=glyph_run).fit(images[::2], labels[::2])
    vectors = as_the_run_has_them(glyph_run, np.stack(images))
    np.testing.assert_allclose(ImageEncoder(glyph_run).transform(images), vectors, atol=1e-4)
    ratio = PriorRatio.read(Run(glyph_run).prior_ratio).ratio["none"]
    assert (model.feature_transform_, model.prior_ratio_) == ("none", ratio)
    head = HypersphereClassifier(feature_transform="none", prior_ratio=ratio).fit(vectors[::2], labels[::2])
    np.testing.assert_allclose(model.predict_proba(images), head.predict_proba(vectors), atol=1e-3)
    assert model.score(images[1::2], labels[1::2]) > 0.4  # by chance 0.25
    path = tmp_path / "glyph.png"
    Image.fromarray(images[1]).save(path)
    np.testing.assert_array_equal(model.predict_proba([path]), model.predict_proba(images[1:2]))
    colour = np.repeat(images[1][:, :, None], 3, axis=2)  # the run reads grey
    np.testing.assert_allclose(model.predict_proba([colour]), model.predict_proba(images[1:2]), atol=1e-3)
    assert model.encoder_["name"] == "run"
    options = {"encoder": "conv4", "channels": 1, "size": 28, "filters": 4, "transform": "none"}
    assert options.items() <= model.encoder_["options"].items()


def test_what_a_run_measured_counts_where_nothing_else_is_said(
    glyph_run: Path, glyphs: tuple[list[NDArray[np.uint8]], list[str]]
) -> None:
    images, labels = glyphs
    measured = PriorRatio.read(Run(glyph_run).prior_ratio).ratio

    def ratio(**settings: Any) -> float:
        return FewShotImageClassifier(encoder=str(glyph_run), **settings).fit(images, labels).prior_ratio_

    assert ratio(feature_transform="unit") == measured["unit"] != measured["none"]
    assert ratio(feature_transform="center-unit") == 4
    assert ratio(prior_ratio=4.0) == 4
    model = FewShotImageClassifier(encoder=glyph_run).fit(images, labels)
    assert model.set_params(prior_ratio=2.5).prior_ratio_ == 2.5  # at once: settings count from the next call on
    with pytest.raises(ConfigError, match="prior_ratio='self': give a number above 0"):
        ratio(prior_ratio="self")


def test_ratios_of_a_run_are_looked_at(
    glyph_run: Path, glyphs: tuple[list[NDArray[np.uint8]], list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(glyph_run, folder)
    content = json.loads((folder / "prior_ratio.json").read_text())
    del content["checksum"]
    for value in (0.0, -1.0, "much", float("nan")):
        (folder / "prior_ratio.json").write_text(json.dumps({**content, "ratio": {"none": value}}))
        with pytest.raises(DataError, match=r"prior_ratio.json: the ratio of 'none' is .*, not a number above 0; rem"):
            FewShotImageClassifier(encoder=folder).fit(*glyphs)
    (folder / "prior_ratio.json").unlink()
    assert FewShotImageClassifier(encoder=folder).fit(*glyphs).prior_ratio_ == 4


def test_texts_by_a_run(text_run: Path, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=str(text_run)).fit(TEXTS, LABELS)
    vectors = as_the_run_has_them(text_run, TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(TextEncoder(text_run).transform(TEXTS), vectors, atol=1e-5)
    names = names_of(LABELS, lambda labels: as_the_run_has_them(text_run, labels))
    head = HypersphereClassifier(feature_transform="none", prior_ratio=model.prior_ratio_)
    head.fit(vectors, LABELS, names=names)
    np.testing.assert_allclose(model.predict_proba(TEXTS), head.predict_proba(vectors), atol=1e-3)
    measured = PriorRatio.read(Run(text_run).prior_ratio).ratio
    assert model.prior_ratio_ == measured["unit"]
    twice = FewShotTextClassifier(encoder=text_run, feature_transform="unit").fit(TEXTS, LABELS)
    assert twice.prior_ratio_ == measured["unit"]  # what has length 1 keeps it
    untrained = TextEncoder(str(text_run.parent / "bert")).transform(TEXTS)
    assert np.abs(untrained / np.linalg.norm(untrained, axis=1, keepdims=True) - vectors).max() > 0.01
    model.partial_fit(NEW[:1], ["court"]).save(tmp_path)
    np.testing.assert_array_equal(load_classifier(tmp_path).predict_proba(NEW), model.predict_proba(NEW))


def test_a_saved_classifier_wants_the_run_of_its_fit(
    glyph_run: Path,
    glyphs: tuple[list[NDArray[np.uint8]], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    images, labels = glyphs
    shutil.copytree(glyph_run, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    model = FewShotImageClassifier(encoder="run").fit(images[::2], labels[::2])
    model.save("model")
    monkeypatch.chdir(tmp_path.parent)  # the folder's whole path was kept
    loaded = FewShotImageClassifier.load(tmp_path / "model")
    assert loaded.encoder == str(tmp_path / "run")
    expected = loaded.predict_proba(images)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(
        DataError, match=r"fitted to vectors of run \(.*\), and there is no run in .*; if it moved, say"
    ):
        FewShotImageClassifier.load(tmp_path / "model")
    late = FewShotImageClassifier.load(tmp_path / "model", check_encoder=False)
    assert (late.feature_transform_, late.prior_ratio_) == ("none", model.prior_ratio_)
    assert len(late.diagnose().classes) == 4
    for again in (
        FewShotImageClassifier.load(tmp_path / "model", encoder=tmp_path / "moved"),
        late.set_params(encoder=str(tmp_path / "moved")),
    ):
        np.testing.assert_array_equal(again.predict_proba(images), expected)
    learner, _ = Run(tmp_path / "moved").load()
    change_weights(tmp_path / "moved", learner.features.encoder)
    with pytest.raises(
        DataError, match=r"weights (\w{12})\), but '.*moved' is now run \(.*weights (?!\1)\w{12}\); use"
    ):
        FewShotImageClassifier.load(tmp_path / "model", encoder=tmp_path / "moved")
    with pytest.raises(DataError, match="use the encoder of the fit, or fit again"):
        late.predict(images)  # in the same process, too


def change_weights(folder: Path, encoder: nn.Module) -> None:
    from hyperproto.training.checkpoint import load_tensors, save_tensors

    tensors, state = load_tensors(folder / "model.safetensors")
    name = next(name for name in tensors if name.startswith("features.encoder") and name.endswith("weight"))
    tensors[name] = tensors[name] + 0.1
    save_tensors(folder / "model.safetensors", tensors, state)


def test_runs_of_other_items_are_refused(
    glyph_run: Path, text_run: Path, glyphs: tuple[list[NDArray[np.uint8]], list[str]], tmp_path: Path
) -> None:
    register()
    with pytest.raises(
        ConfigError,
        match=r"glyphs: its encoder 'conv4' does not read texts \(.*reads images, but the items are texts; choose",
    ):
        FewShotTextClassifier(encoder=glyph_run).fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match=r"its encoder 'sentence-transformer' does not read these images \("):
        FewShotImageClassifier(encoder=text_run).fit(*glyphs)
    with pytest.raises(ConfigError, match=r"'tiny-words' gives a vector for each word, .*; EntityTagger uses such"):
        FewShotTextClassifier(encoder=WORDS_RUN).fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match="resolution=32: this encoder reads images of 28 pixels; leave resolution"):
        FewShotImageClassifier(encoder=glyph_run, resolution=32).fit(*glyphs)
    assert FewShotImageClassifier(encoder=glyph_run, resolution=28).fit(*glyphs).classes_.shape == (4,)
    shutil.copytree(glyph_run, tmp_path / "empty", ignore=shutil.ignore_patterns("model.safetensors"))
    with pytest.raises(DataError, match=r"model.safetensors: no such file; has this run been trained\?"):
        FewShotImageClassifier(encoder=tmp_path / "empty").fit(*glyphs)
    for no_run in (tmp_path, str(tmp_path)):
        with pytest.raises(ConfigError, match="not the folder of a run, or a run without a config"):
            FewShotImageClassifier(encoder=no_run).fit(*glyphs)


def test_a_run_is_told_from_a_checkpoint(glyph_run: Path, bert: str) -> None:
    assert run_folder(glyph_run) == run_folder(str(glyph_run)) == glyph_run.resolve()
    assert run_folder(bert) is None  # it has a config.json, too
    assert run_folder("minilm") is None
    assert FewShotTextClassifier(encoder=Path(bert)).fit(TEXTS, LABELS).encoder_["options"]["model"] == bert


def test_the_kind_of_a_classifier_follows_from_its_encoder(glyph_run: Path, text_run: Path) -> None:
    for encoder, images, kind in (
        (None, False, FewShotTextClassifier),
        ("minilm", False, FewShotTextClassifier),
        (str(text_run), False, FewShotTextClassifier),
        (None, True, FewShotImageClassifier),
        ("efficientnet-lite0", False, FewShotImageClassifier),
        (str(glyph_run), False, FewShotImageClassifier),
        ("identity", False, HypersphereClassifier),
    ):
        model = new_classifier(encoder, images, coverage=0.9)
        assert type(model) is kind
        assert model.coverage == 0.9
        assert getattr(model, "encoder", encoder) == (encoder or kind().encoder)


class Bright(nn.Module):
    """The mean of each channel in each quarter; it is sure of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.dropout = nn.Dropout(0.5)
        self.batches: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        assert images.dtype == torch.float32
        assert images.shape[1:] == (3, 8, 8)
        assert 0 <= float(images.min()) <= float(images.max()) <= 1
        assert not torch.is_grad_enabled()
        self.batches.append(len(images))
        means: Tensor = self.dropout(nn.functional.avg_pool2d(images * self.scale[:, None, None], 4))
        return means


def test_images_by_a_module(files: list[Path], tmp_path: Path) -> None:
    labels = ["red" if n % 2 else "blue" for n in range(6)]
    module = Bright()
    module.dropout.eval()
    model = FewShotImageClassifier(encoder=module, resolution=8, feature_transform="none").fit(files[:4], labels[:4])
    assert model.predict(files[4:]).tolist() == labels[4:]
    assert (module.training, module.dropout.training) == (True, False)  # as they were
    red = ImageEncoder(module, resolution=8).transform(files[1:2])
    np.testing.assert_allclose(red, np.repeat([205, 30, 30], 4)[None] / 255, atol=1e-6)
    assert ImageEncoder(module, resolution=8).transform(files * 20).shape == (120, 12)
    assert module.batches[-2:] == [64, 56]
    model.save(tmp_path)
    with pytest.raises(
        DataError, match=r"vectors of module .*Bright \(resolution=8; weights \w{12}\), which is not sto"
    ):
        FewShotImageClassifier.load(tmp_path)
    again = FewShotImageClassifier.load(tmp_path, encoder=module)
    np.testing.assert_array_equal(again.predict_proba(files), model.predict_proba(files))
    late = FewShotImageClassifier.load(tmp_path, check_encoder=False)
    with pytest.raises(ConfigError, match=r"there is no encoder: a callable or a module is not stored .* load\(folder"):
        late.predict(files)
    with torch.no_grad():
        module.scale.mul_(2)
    for call in (lambda: model.predict(files), lambda: FewShotImageClassifier.load(tmp_path, encoder=module)):
        with pytest.raises(DataError, match=r"but <Bright> is now module .*Bright \(.*\); use the encoder of the fit"):
            call()
    with pytest.raises(ConfigError, match=r"the length of the vectors of module .*Bright is not known before it is"):
        ImageEncoder(module, resolution=8).get_feature_names_out()


class Letters(nn.Module):
    """Counts letters of texts."""

    def forward(self, texts: list[str]) -> Tensor:
        return torch.tensor([[text.count(letter) for letter in "aeiou"] for text in texts])


def letters(texts: list[str]) -> list[list[int]]:
    return [[text.count(letter) for letter in "aeiou"] for text in texts]


@pytest.mark.parametrize("encoder", [letters, Letters(), Letters().forward], ids=["function", "module", "bound"])
def test_texts_by_a_callable_or_a_module(encoder: Any, tmp_path: Path) -> None:
    model = FewShotTextClassifier(encoder=encoder).fit(TEXTS, LABELS)
    head = HypersphereClassifier().fit(np.array(letters(TEXTS), np.float32), LABELS, names=names_of(LABELS, letters))
    np.testing.assert_array_equal(model.predict_proba(NEW), head.predict_proba(np.array(letters(NEW), np.float32)))
    copy = clone(model).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(copy.predict_proba(NEW), model.predict_proba(NEW))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(NEW), model.predict_proba(NEW))
    model.save(tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["parameters"]["encoder"] is None
    loaded = FewShotTextClassifier.load(tmp_path, encoder=encoder)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
    with pytest.raises(
        DataError, match=r"which is not stored; give it again: FewShotTextClassifier\.load\(folder, enc"
    ):
        load_classifier(tmp_path)
    assert load_classifier(tmp_path, check_encoder=False).classes_.tolist() == ["court", "people", "place"]


class SentenceTransformer(nn.ModuleList):
    """A stand-in with the signatures of sentence-transformers: `encode` takes texts, a call takes word pieces."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(modules)
        self.modes: list[bool] = []

    def forward(self, features: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        return {"sentence_embedding": self[0](features.get("input_ids"))}

    def encode(
        self,
        sentences: str | list[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        **kwargs: Any,
    ) -> Any:
        self.modes.append(self.training)
        vectors: Any = self[0](torch.tensor(letters(list(sentences)), dtype=torch.float32))
        return vectors.detach().numpy() if convert_to_numpy and not convert_to_tensor else vectors


class TensorEncoder:
    """An object that only encodes, to tensors that know their gradient."""

    def encode(self, texts: list[str]) -> Tensor:
        return torch.tensor(letters(texts), dtype=torch.float32, requires_grad=True)


def test_texts_by_an_object_that_encodes(tmp_path: Path) -> None:
    linear = nn.Linear(5, 4)
    network = SentenceTransformer(linear)
    model = FewShotTextClassifier(encoder=network).fit(TEXTS, LABELS)
    assert network.modes
    assert not any(network.modes)
    assert network.training
    bound = FewShotTextClassifier(encoder=network.encode).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(model.predict_proba(NEW), bound.predict_proba(NEW))
    assert model.encoder_["name"].endswith("SentenceTransformer")
    model.save(tmp_path)
    loaded = FewShotTextClassifier.load(tmp_path, encoder=network)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), model.predict_proba(NEW))
    with torch.no_grad():
        linear.weight.mul_(2)
    with pytest.raises(DataError, match="use the encoder of the fit, or fit again"):
        model.predict(NEW)
    other = FewShotTextClassifier(encoder=TensorEncoder()).fit(TEXTS, LABELS)
    expected = FewShotTextClassifier(encoder=letters).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(other.predict_proba(NEW), expected.predict_proba(NEW))
    assert other.encoder_ == {"name": f"encode of {__name__}.TensorEncoder", "options": {}, "sha256": None}


def test_images_reach_a_callable_as_they_came(files: list[Path]) -> None:
    seen: list[Any] = []

    def sizes(items: list[Any]) -> list[list[float]]:
        seen.extend(items)
        return [[1.0, float(str(item).endswith(("1.png", "3.png", "5.png")))] for item in items]

    labels = ["red" if n % 2 else "blue" for n in range(6)]
    model = FewShotImageClassifier(encoder=sizes).fit(files[:4], labels[:4])
    assert model.predict(files[4:]).tolist() == labels[4:]
    assert seen == files


def test_an_encoder_of_this_package_is_a_module_that_knows_its_items(bert: str) -> None:
    encoder = make_encoder("sentence-transformer", {"model": bert, "max_length": 162})
    model = FewShotTextClassifier(encoder=encoder).fit(TEXTS, LABELS)
    named = FewShotTextClassifier(encoder=bert).fit(TEXTS, LABELS)
    np.testing.assert_allclose(model.predict_proba(NEW), named.predict_proba(NEW), atol=1e-5)
    assert model.encoder_ == named.encoder_  # the same vectors, so the two may be merged
    assert model.merge(named).counts_.tolist() == [6, 6, 6]
    conv = make_encoder("conv4", {"channels": 1, "size": 28, "filters": 4})
    assert ImageEncoder(conv).transform([np.zeros((40, 50, 3), np.uint8)]).shape == (1, 4)
    with pytest.raises(ConfigError, match="the encoder Conv4 does not read texts"):
        FewShotTextClassifier(encoder=conv).fit(TEXTS, LABELS)
    maps = make_encoder("conv4", {"channels": 1, "size": 28, "filters": 4})
    maps.feature_shape = (4, 1, 1)
    with pytest.raises(ConfigError, match=r"the encoder Conv4 gives feature maps \(4, 1, 1\); a classifier takes vect"):
        ImageEncoder(maps).transform([np.zeros((28, 28), np.uint8)])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (["x", "y"], r"callable .*<lambda> returned list, no array of numbers \(9, D\)"),
        (np.zeros((2, 4)), r"callable .*<lambda> returned an array \(2, 4\) for 9 items; return \(9, D\)"),
        (np.zeros(9), r"returned an array \(9,\) for 9 items; return \(9, D\)"),
        (None, r"returned an array \(\) for 9 items"),
    ],
)
def test_what_a_callable_returns_is_looked_at(returned: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FewShotTextClassifier(encoder=lambda texts: returned).fit(TEXTS, LABELS)


def test_other_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"encoder 7 \(int\) is not valid; give a name, the folder of a run, a callable"
    ):
        FewShotTextClassifier(encoder=7).fit(TEXTS, LABELS)
    monkeypatch.setattr(TextEncoder, "chunk", 4)
    with pytest.raises(DataError, match=r"callable .* returned vectors of 1 and of 4 numbers"):
        TextEncoder(lambda texts: np.zeros((len(texts), len(texts)))).transform(TEXTS)
    with pytest.raises(DataError, match=r"gives X\[0\] a vector that is not finite; its weights"):
        FewShotTextClassifier(encoder=lambda texts: np.full((len(texts), 2), np.nan)).fit(TEXTS, LABELS)


def test_the_encoder_comes_first() -> None:
    assert repr(FewShotTextClassifier()) == "FewShotTextClassifier(encoder='minilm')"
    model = FewShotImageClassifier(coverage=0.9, encoder=Path("runs/mine"), cache=False)
    assert repr(model) == "FewShotImageClassifier(encoder='runs/mine', cache=False, coverage=0.9)"
    assert repr(FewShotTextClassifier(encoder=letters, prior_ratio=2)) == (
        "FewShotTextClassifier(encoder=<letters>, prior_ratio=2)"
    )
    assert repr(FewShotImageClassifier(encoder=Bright())) == "FewShotImageClassifier(encoder=<Bright>)"
    assert len(repr(FewShotTextClassifier(encoder="x" * 1000))) == 700
    with pytest.raises(TypeError, match="positional"):
        FewShotTextClassifier("minilm")  # type: ignore[call-arg]
