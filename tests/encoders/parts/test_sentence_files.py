"""Checkpoints of sentence-transformers, one of each kind: against their files, one text at a time, without padding."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from hyperproto import FewShotTextClassifier, TextEncoder
from hyperproto.encoders import make_encoder
from hyperproto.encoders.parts import word_pieces
from hyperproto.encoders.sentence_transformer import SentenceTransformer
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.estimators import networks
from tests.helpers.items import LABELS
from tests.helpers.items import TEXTS as MORE
from tests.helpers.tiny_models import as_sentence_transformer, tiny_bert, tiny_gpt2

TEXTS = ["Paris is the city.", "bob", "A much longer sentence, in which Anna met the queen of London.", "", "The King"]
DENSE = {
    "in_features": 32,
    "out_features": 7,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}
Files = Callable[..., str]


@pytest.fixture
def made(bert: str, tmp_path: Path) -> Files:
    """Make a checkpoint of the tiny BERT with files of sentence-transformers."""

    def make(*arguments: Any, **options: Any) -> str:
        folder = Path(shutil.copytree(bert, tmp_path / "own", dirs_exist_ok=True))
        return str(as_sentence_transformer(folder, *arguments, **options))

    return make


def modes(**chosen: bool) -> dict[str, Any]:
    """The pooling's configuration in the words of older files, where the mean is the default."""
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {f"pooling_mode_{name}": chosen.get(name, False) for name in names}


def found(folder: str, texts: list[str] = TEXTS, **options: Any) -> Tensor:
    encoder = SentenceTransformer(model=folder, **options)
    x = encoder.encode_all(encoder.prepare(texts)).x
    assert encoder.feature_shape == x.shape[1:]
    return x


@torch.no_grad()
def prescribed(folder: str, pool: Callable[[Tensor], Tensor], texts: list[str] = TEXTS, **options: Any) -> Tensor:
    """Read texts one by one with transformers alone; `pool` makes a vector of the states of one, (L, D)."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = [tokenizer(text, **options)["input_ids"] or [tokenizer.pad_token_id] for text in texts]
    return torch.stack([pool(model(input_ids=torch.tensor([row])).last_hidden_state[0]) for row in rows])


def close(a: Tensor, b: Tensor) -> None:
    assert b.std() > 0.05
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def weighted(states: Tensor) -> Tensor:
    total = torch.zeros(states.shape[1])
    for place, state in enumerate(states, start=1):
        total += place * state
    return total / sum(range(1, len(states) + 1))


POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "cls": lambda s: s[0],
    "max": lambda s: s.max(0).values,
    "mean": lambda s: s.mean(0),
    "mean_sqrt_len_tokens": lambda s: s.sum(0) / len(s) ** 0.5,
    "weightedmean": weighted,
    "lasttoken": lambda s: s[-1],
}
OLDER = {
    "cls": "cls_token",
    "max": "max_tokens",
    "mean": "mean_tokens",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean": "weightedmean_tokens",
    "lasttoken": "lasttoken",
}


@pytest.mark.parametrize("mode", POOLED)
def test_each_pooling_in_older_and_newer_words_and_as_an_option(made: Files, bert: str, mode: str) -> None:
    expected = prescribed(bert, POOLED[mode])
    close(found(made(modes(**{OLDER[mode]: True}))), expected)
    close(found(made({"pooling_mode": mode, "embedding_dimension": 32})), expected)
    other = "cls" if mode == "mean" else "mean"
    close(found(made({"pooling_mode": other}), pooling=mode), expected)
    close(found(bert, pooling=mode), expected)  # without any such files


def test_several_poolings_stand_one_behind_the_other(made: Files, bert: str) -> None:
    cls_mean = prescribed(bert, lambda s: torch.cat([s[0], s.mean(0)]))
    close(found(made(modes(mean_tokens=True, cls_token=True))), cls_mean)  # the order of the package, not of the file
    close(found(made({"pooling_mode": ["cls", "mean"]})), cls_mean)
    close(found(made({"pooling_mode": ["mean", "cls"]})), cls_mean.roll(32, 1))  # the order of the list


def test_no_pooling_and_no_files_are_the_mean(made: Files, bert: str) -> None:
    close(found(made(modes())), prescribed(bert, POOLED["mean"]))
    close(found(bert), prescribed(bert, POOLED["mean"]))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", ["lasttoken", "weightedmean", "cls"])
def test_padding_does_not_matter_to_the_last_piece(tmp_path: Path, side: str, mode: str) -> None:
    folder = str(as_sentence_transformer(tiny_gpt2(tmp_path / side, padding_side=side), {"pooling_mode": mode}))
    assert AutoTokenizer.from_pretrained(folder).padding_side == side
    close(found(folder), prescribed(folder, POOLED[mode]))


def test_vectors_are_scaled_where_the_files_say_so(made: Files, bert: str) -> None:
    expected = nn.functional.normalize(prescribed(bert, POOLED["mean"]))
    x = found(made(modes(mean_tokens=True), "Normalize"))
    close(x, expected)
    torch.testing.assert_close(x.norm(dim=1), torch.ones(len(x)))
    close(found(made(modes(mean_tokens=True), "Dropout", "Normalize")), expected)  # dropout is for training


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("torch.nn.modules.activation.Tanh", torch.tanh),
        ("torch.nn.modules.activation.ReLU", torch.relu),
        ("torch.nn.modules.linear.Identity", lambda x: x),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_layers(made: Files, bert: str, activation: str, function: Any, bias: bool) -> None:
    first = {**DENSE, "activation_function": activation, "bias": bias}
    second = {**DENSE, "in_features": 7, "out_features": 5, "activation_function": "torch.nn.modules.linear.Identity"}
    folder = made(modes(cls_token=True), first, "Normalize", second)
    x = prescribed(bert, POOLED["cls"])
    own, last = (load_file(Path(folder) / name / "model.safetensors") for name in ("2_Dense", "4_Dense"))
    x = function(x @ own["linear.weight"].T + own.get("linear.bias", torch.zeros(7)))
    x = x / x.norm(dim=1, keepdim=True)
    close(found(folder), x @ last["linear.weight"].T + last["linear.bias"])


def test_dense_layers_belong_to_the_encoder(made: Files) -> None:
    folder = made(modes(mean_tokens=True), DENSE)
    frozen, learning = (SentenceTransformer(model=folder, frozen=frozen) for frozen in (True, False))
    assert not any(p.requires_grad for p in frozen.parameters())
    assert "layers.0.linear.weight" in learning.state_dict()
    assert all(p.requires_grad for p in learning.parameters())


PROMPTS = {"prompts": {"query": "the query of bob: ", "city": "a city, "}, "default_prompt_name": "query"}


def test_the_default_prompt_and_others(made: Files, bert: str) -> None:
    folder = made(modes(mean_tokens=True), prompts=PROMPTS)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("the query of bob: ", {}),
        ("a city, ", {"prompt_name": "city"}),
        ("", {"prompt_name": "document"}),  # the package has this name always
        ("", {"prompt": ""}),
        ("met in ", {"prompt": "met in "}),
    ]
    for prompt, options in asked:
        close(found(folder, **options), prescribed(bert, POOLED["mean"], [prompt + text for text in TEXTS]))
    close(found(folder, pooling="plain"), prescribed(bert, POOLED["mean"]))
    named_only = made(modes(mean_tokens=True), prompts={"prompts": PROMPTS["prompts"], "default_prompt_name": None})
    close(found(named_only), prescribed(bert, POOLED["mean"]))


@pytest.mark.parametrize("mode", POOLED)
def test_a_prompt_that_takes_no_part_in_the_pooling(made: Files, bert: str, mode: str) -> None:
    folder = made({"pooling_mode": mode, "include_prompt": False}, prompts=PROMPTS)
    prompt = PROMPTS["prompts"]["query"]  # type: ignore[index] # of a table
    tokenizer = AutoTokenizer.from_pretrained(folder)
    skipped = len(tokenizer(prompt)["input_ids"]) - 1  # with what opens a text, without what closes it
    assert skipped > 4

    def pool(states: Tensor) -> Tensor:
        places = torch.arange(1.0, len(states) + 1)[skipped:, None]
        own: dict[str, Callable[[Tensor], Tensor]] = {
            "weightedmean": lambda s: (places * s).sum(0) / places.sum(),
            "cls": lambda s: states[0],
        }
        return own.get(mode, POOLED[mode])(states[skipped:])

    close(found(folder), prescribed(bert, pool, [prompt + text for text in TEXTS]))
    close(found(folder, prompt=""), prescribed(bert, POOLED[mode]))


def test_lower_case(tmp_path: Path) -> None:
    from transformers import BertTokenizer

    folder = tiny_bert(tmp_path)
    vocab = AutoTokenizer.from_pretrained(folder).get_vocab()
    BertTokenizer(vocab=vocab, do_lower_case=False).save_pretrained(folder)
    as_sentence_transformer(folder, modes(mean_tokens=True), settings={"max_seq_length": 64, "do_lower_case": True})
    lower = prescribed(str(folder), POOLED["mean"], [text.lower() for text in TEXTS])
    close(found(str(folder)), lower)
    assert not torch.allclose(lower, prescribed(str(folder), POOLED["mean"]))
    close(found(str(folder), pooling="plain"), prescribed(str(folder), POOLED["mean"]))


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_maximum_length_is_the_checkpoints_own(made: Files, bert: str, side: str) -> None:
    folder = made(modes(lasttoken=True, mean_tokens=True), settings={"max_seq_length": 9, "do_lower_case": False})
    kept = {"right": "the beginnings", "left": "the ends"}[side]
    asked: list[tuple[int, int, dict[str, Any]]] = [(7, 9, {}), (162, 9, {}), (162, 12, {"max_length": 12})]
    for tokenizers, length, options in asked:  # the file counts, whether the tokenizer says less or more
        tokenizer = AutoTokenizer.from_pretrained(folder, truncation_side=side, model_max_length=tokenizers)
        tokenizer.save_pretrained(folder)
        with pytest.warns(UserWarning, match=rf"are longer than {length} word pieces; .* left out, {kept} were kept"):
            x = found(folder, **options)
        close(x, prescribed(folder, lambda s: torch.cat([s.mean(0), s[-1]]), truncation=True, max_length=length))
    assert SentenceTransformer(model=bert).max_length == 162
    made(modes(mean_tokens=True), settings={"max_seq_length": 500})  # more than there are embeddings of positions
    assert SentenceTransformer(model=folder).max_length == 162
    with pytest.raises(ConfigError, match=r"max_length 163 is more word pieces than .* can read; use at most 162"):
        SentenceTransformer(model=folder, max_length=163)


def test_a_length_that_nothing_states(tmp_path: Path) -> None:
    folder = tiny_gpt2(tmp_path)  # its tokenizer has no limit, its configuration has 162
    assert SentenceTransformer(model=str(folder)).max_length == 162
    config = json.loads((folder / "config.json").read_text())
    encoder = SentenceTransformer(model=str(folder))
    assert config["n_positions"] == encoder.max_length


def test_a_prompt_must_leave_room(made: Files) -> None:
    folder = made(modes(mean_tokens=True), prompts=PROMPTS, settings={"max_seq_length": 12})
    with pytest.raises(ConfigError, match=r"max_length 12 leaves no room after the prompt, \d+ pieces; use at least"):
        SentenceTransformer(model=folder)
    assert SentenceTransformer(model=folder, prompt="").max_length == 12


def test_a_network_in_a_folder_of_its_own(made: Files, bert: str) -> None:
    folder = Path(made(modes(cls_token=True), settings={"max_seq_length": 64}))
    listed = json.loads((folder / "modules.json").read_text())
    listed[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "0_Transformer").mkdir()
    for path in [path for path in folder.iterdir() if path.is_file() and path.name != "modules.json"]:
        path.rename(folder / "0_Transformer" / path.name)
    close(found(str(folder)), prescribed(bert, POOLED["cls"]))
    assert SentenceTransformer(model=str(folder)).max_length == 64


def test_newer_words_for_the_same_parts(made: Files, bert: str) -> None:
    settings = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
        "unpad_inputs": None,
        "processing_kwargs": {},
    }
    folder = Path(made(modes(cls_token=True), "Normalize", settings=settings))
    listed = json.loads((folder / "modules.json").read_text())
    for part, package in zip(listed, ("base.modules", "sentence_transformer.modules", "base.modules"), strict=True):
        name = part["type"].rpartition(".")[2]
        part["type"] = f"sentence_transformers.{package}.{name.lower()}.{name}"
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "2_Normalize").mkdir()
    (folder / "2_Normalize" / "config.json").write_text('{"module_input_name": "sentence_embedding"}')
    close(found(str(folder)), nn.functional.normalize(prescribed(bert, POOLED["cls"])))


def change(folder: Path, name: str, update: Callable[[Any], Any]) -> None:
    path = folder / name
    content = update(json.loads(path.read_text()) if path.exists() else {})
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


NOT_COMPUTED = [
    ("modules.json", lambda m: [*m, {**m[1], "type": "sentence_transformers.models.WordWeights"}], "WordWeights"),
    ("modules.json", lambda m: [{**m[0], "type": "custom_st.Transformer"}, *m[1:]], "a part of type 'custom_st.Trans"),
    ("modules.json", lambda m: m[:1], "the order Transformer is"),
    ("modules.json", lambda m: [], "the order of no parts is"),
    ("modules.json", lambda m: [*m, m[1]], "the order Transformer, Pooling, Dense, Pooling is"),
    ("1_Pooling/config.json", lambda c: {"pooling_mode": "median"}, "pooling_mode = 'median' is not supported"),
    ("1_Pooling/config.json", lambda c: {**c, "pooling_mode_median": True}, "pooling_mode_median = true"),
    ("1_Pooling/config.json", lambda c: {**c, "heads": 3}, "heads = 3 is not supported"),
    ("2_Dense/config.json", lambda c: {**c, "activation_function": "os.system"}, "activation_function = 'os.system'"),
    ("2_Dense/config.json", lambda c: {**c, "activation_function": "torch.nn.Module"}, "'torch.nn.Module' is not"),
    ("2_Dense/config.json", lambda c: {**c, "use_residual": True}, "use_residual = true"),
    ("2_Dense/config.json", lambda c: {**c, "module_input_name": "token_embeddings"}, "'token_embeddings' is not"),
    ("sentence_bert_config.json", lambda c: {"max_seq_length": 64, "model_args": {"a": 1}}, "model_args = {'a': 1}"),
    ("sentence_bert_config.json", lambda c: {"modality_config": {"message": {}}}, "modality_config = {'message'"),
    ("config_sentence_transformers.json", lambda c: {"model_type": "SparseEncoder"}, "model_type = 'SparseEncoder'"),
    ("config_sentence_transformers.json", lambda c: {"truncate_dim": 64}, "truncate_dim = 64"),
]


@pytest.mark.parametrize(("name", "update", "message"), NOT_COMPUTED)
def test_what_is_not_computed_is_refused_by_name(
    made: Files, bert: str, name: str, update: Callable[[Any], Any], message: str
) -> None:
    folder = made(modes(mean_tokens=True), DENSE)
    change(Path(folder), name, update)
    with pytest.raises(ConfigError) as caught:
        SentenceTransformer(model=folder)
    said = str(caught.value)
    assert said.startswith(f"{folder}/{name}: ")
    assert message in said
    assert "choose another checkpoint, give SentenceTransformer(...).encode of sentence-transformers as the" in said
    close(found(folder, pooling="plain"), prescribed(bert, POOLED["mean"]))


DAMAGED = [
    ("modules.json", lambda m: "[", "Expecting value"),
    ("modules.json", lambda m: "[" * 100_000, "nested"),
    ("modules.json", lambda m: {"a": 1}, "it is no list of parts"),
    ("modules.json", lambda m: [{**m[0], "path": 3}], "path 3"),
    ("modules.json", lambda m: [m[0], {**m[1], "path": "../elsewhere"}], "'../elsewhere' is not a folder inside of"),
    ("modules.json", lambda m: [m[0], {**m[1], "path": "/etc"}], "'/etc' is not a folder inside of the checkpoint"),
    ("1_Pooling/config.json", lambda c: [], "it is no table of settings"),
    ("1_Pooling/config.json", lambda c: {**c, "include_prompt": "no"}, "include_prompt is 'no', neither true nor"),
    ("1_Pooling/config.json", lambda c: {"pooling_mode": []}, r"pooling_mode is []"),
    ("1_Pooling/config.json", lambda c: {"word_embedding_dimension": -1}, "the size of the states is -1"),
    ("2_Dense/config.json", lambda c: {"bias": True}, "in_features and out_features are None and None"),
    ("sentence_bert_config.json", lambda c: {"max_seq_length": 0}, "max_seq_length is 0, not a number of word pieces"),
    ("config_sentence_transformers.json", lambda c: {"prompts": {"a": 1}}, "prompts is no table of texts"),
    ("config_sentence_transformers.json", lambda c: {"default_prompt_name": "x"}, "default_prompt_name is 'x', which"),
]


@pytest.mark.parametrize(("name", "update", "message"), DAMAGED)
def test_damaged_files_are_named(made: Files, name: str, update: Callable[[Any], Any], message: str) -> None:
    folder = made(modes(mean_tokens=True), DENSE)
    change(Path(folder), name, update)
    with pytest.raises(DataError) as caught:
        SentenceTransformer(model=folder)
    assert str(caught.value).startswith(f"{folder}/{name}: cannot be read (")
    assert message in str(caught.value)
    assert str(caught.value).endswith("get the checkpoint again, or set pooling='plain' for the mean of the last layer")


def test_parts_that_are_missing_or_do_not_fit(made: Files) -> None:
    folder = Path(made(modes(mean_tokens=True), DENSE))
    other = modes(mean_tokens=True, cls_token=True)
    cases: list[tuple[Callable[[], object], type[HyperProtoError], str]] = [
        (lambda: made(other, DENSE), ConfigError, r"dense layer takes 32 numbers, but pooling cls\+mean gives 64;"),
        (
            lambda: made({"word_embedding_dimension": 48}),
            DataError,
            "pooling is for states of size 48, but those of",
        ),
        (lambda: (folder / "1_Pooling/config.json").unlink(), DataError, r"1_Pooling/config\.json: cannot be read"),
        (lambda: (folder / "modules.json").unlink(), DataError, "there is 1_Pooling/config.json, but no modules.json"),
    ]
    for damage, kind, message in cases:
        made(modes(mean_tokens=True), DENSE)
        damage()
        if "modules.json" in message:
            (folder / "1_Pooling" / "config.json").touch()
        with pytest.raises(kind, match=message):
            SentenceTransformer(model=str(folder))
    weights = Path(made(modes(mean_tokens=True), DENSE)) / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.zeros(7, 31), "linear.bias": torch.zeros(7)}, weights)
    with pytest.raises(DataError, match=r"2_Dense/model\.safetensors: cannot be read \(Error"):
        SentenceTransformer(model=str(folder))
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin: a pickle, which may run code, is not supported"):
        SentenceTransformer(model=str(folder))


def test_prompts_that_cannot_be_meant(made: Files) -> None:
    folder = made(modes(mean_tokens=True), prompts=PROMPTS)
    with pytest.raises(ConfigError, match="there is no prompt 'cities'; did you mean 'city'"):
        SentenceTransformer(model=folder, prompt_name="cities")
    with pytest.raises(ConfigError, match=r"give prompt .* or prompt_name .*, not both"):
        SentenceTransformer(model=folder, prompt="a", prompt_name="city")
    with pytest.raises(ConfigError, match=r"option 'pooling': 'median' is not valid"):
        TextEncoder(folder, pooling="median").transform(["a"])


def test_maps_are_the_states_behind_the_prompt(made: Files, bert: str) -> None:
    folder = made(modes(mean_tokens=True), DENSE, "Normalize", prompts=PROMPTS)
    encoder = SentenceTransformer(model=folder, output="maps")
    assert encoder.feature_shape == (-1, 32)
    units = encoder.encode_all(encoder.prepare(["bob"]))
    [states] = prescribed(bert, lambda s: s, ["the query of bob: bob"])
    torch.testing.assert_close(units.x[0], states, rtol=1e-4, atol=1e-4)
    with pytest.raises(
        ConfigError, match="output 'maps' returns the state at every piece, so that pooling 'cls' has no"
    ):
        SentenceTransformer(model=folder, output="maps", pooling="cls")


def test_word_pieces_are_cached_by_prompt_and_case(
    made: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(word_pieces, "FEW", 2)
    monkeypatch.setenv("HYPERPROTO_CACHE", str(tmp_path / "cache"))
    folder = made(modes(mean_tokens=True), prompts=PROMPTS)
    for prompt in ("", "a ", "the ", "a "):
        close(found(folder, prompt=prompt), prescribed(folder, POOLED["mean"], [prompt + text for text in TEXTS]))
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 3


def test_the_identity_says_how_texts_are_read(made: Files, bert: str) -> None:
    """What is as version 0.1 read it is left out, so that its classifiers are recognised."""

    def options(folder: str, **given: Any) -> dict[str, Any]:
        networks.forget_networks()
        found: dict[str, Any] = TextEncoder(folder, **given).identity["options"]
        return found

    assert options(bert) == options(bert, max_length=162, pooling="mean") == {"model": bert, "max_length": 162}
    folder = made(modes(cls_token=True, mean_tokens=True), "Normalize", prompts=PROMPTS)
    prompt = {"prompt": "the query of bob: ", "prompt_pooled": True}
    common = {"model": folder, "max_length": 162, "layers": ["normalize"]}
    assert options(folder) == {**common, "pooling": "cls+mean", **prompt}
    assert options(folder, pooling="cls", prompt="") == {**common, "pooling": "cls"}
    assert options(folder, pooling="plain") == {"model": folder, "max_length": 162}
    pooling = {"include_prompt": False, "pooling_mode": "max"}
    folder = made(pooling, DENSE, prompts=PROMPTS, settings={"max_seq_length": 60, "do_lower_case": True})
    assert options(folder) == {
        "model": folder,
        "max_length": 60,
        "pooling": "max",
        "layers": ["dense Tanh"],
        "lower_case": True,
        "prompt": "the query of bob: ",
        "prompt_pooled": False,
    }
    encoder = make_encoder("sentence-transformer", {"model": folder, "prompt": ""})
    assert encoder.made_from == ("sentence-transformer", {"model": folder, "prompt": ""})
    assert "prompt" not in encoder.read_as


def test_a_classifier_knows_how_its_texts_were_read(made: Files, tmp_path: Path) -> None:
    folder = made(modes(cls_token=True), "Normalize", prompts=PROMPTS)
    model = FewShotTextClassifier(encoder=folder, prompt_name="city").fit(MORE, LABELS)
    model.save(tmp_path / "model")
    loaded = FewShotTextClassifier.load(tmp_path / "model")
    assert (loaded.prompt_name, loaded.pooling) == ("city", "auto")
    assert loaded.predict_proba(MORE).tolist() == model.predict_proba(MORE).tolist()
    made(modes(mean_tokens=True), "Normalize", prompts=PROMPTS)  # other files, the same weights
    networks.forget_networks()
    with pytest.raises(
        DataError, match=r"pooling='cls', prompt='a city, '.*, but .* is now sentence-transformer \(layers"
    ):
        FewShotTextClassifier.load(tmp_path / "model")


def test_a_classifier_of_version_01_reads_as_it_was_fitted(
    made: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It averaged every checkpoint, and said nothing of it."""
    folder = made(modes(cls_token=True), "Normalize", prompts=PROMPTS, settings={"max_seq_length": 60})
    model = FewShotTextClassifier(encoder=folder, pooling="plain", max_length=128).fit(MORE, LABELS)
    parameters = model.get_params(deep=False)
    older = {name: value for name, value in parameters.items() if name not in ("pooling", "prompt", "prompt_name")}
    with monkeypatch.context() as patch:
        patch.setattr(FewShotTextClassifier, "get_params", lambda self, deep=True: older)
        model.save(tmp_path / "model")
    loaded = FewShotTextClassifier.load(tmp_path / "model")
    assert (loaded.pooling, loaded.max_length) == ("plain", 128)
    assert loaded.encoder_["options"] == {"model": folder, "max_length": 128}
    assert loaded.predict_proba(MORE).tolist() == model.predict_proba(MORE).tolist()
