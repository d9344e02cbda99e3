"""What classifiers of texts and of images share: a frozen network as a transformer, and the classifier behind it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from hyperproto.errors import ConfigError, DataError
from hyperproto.estimators import storage
from hyperproto.estimators.callables import CallableNetwork, Network, has_encode, is_torch_module
from hyperproto.estimators.doctor import Diagnosis
from hyperproto.estimators.hypersphere import Batch, HypersphereClassifier, fitted_attribute
from hyperproto.files import is_there, read_json
from hyperproto.progress import progress_bar
from hyperproto.regions import PRIOR_RATIO
from hyperproto.regions.arrays import Floats
from hyperproto.registry import Trust
from hyperproto.registry import trust as trust_files

AUTO = "auto"


class ItemEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Items to vectors (n, D), float32. There is nothing to fit.

    The network of a name or of a run belongs to the process, not to the object: clones share it, and a pickle holds
    only the settings. A module or a callable belongs to whoever gave it: it is called each time, and pickled with the
    rest.
    """

    extra: ClassVar[str]  # of the package: what to install
    chunk: ClassVar[int]  # items that are read at once
    model: Any
    progress: bool
    cache: bool

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look whether these are items; nothing is learned."""
        self.check(X)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode items: those of like length together, and each that was seen lately not again."""
        return self.encode(X)

    def encode(self, X: Any, name: str = "X") -> NDArray[np.float32]:
        """Encode items that came by the argument `name`, which messages give; otherwise as `transform`."""
        items = self.check(X, name)
        network = self.network()
        parts: list[NDArray[np.float32]] = []
        with progress_bar("encode") if self.progress else nullcontext() as show:
            for start in range(0, len(items), self.chunk):
                read = items[start : start + self.chunk]
                if not network.decodes:
                    read = self.read(read, start, network.pixels, name)
                move = None if show is None else (lambda done, _, start=start: show(start + done, len(items)))
                parts.append(network.vectors(read, self.cache, move))
        sizes = sorted({part.shape[1] for part in parts})
        if len(sizes) > 1:
            raise DataError(f"{network.identity['name']} returned vectors of {sizes[0]} and of {sizes[-1]} numbers")
        found = np.concatenate(parts) if parts else np.empty((0, network.size or 0), np.float32)
        if not np.isfinite(found).all():
            row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            raise DataError(
                f"{network.identity['name']} gives {name}[{row}] a vector that is not finite; its weights are damaged "
                "or too large: get it again, or choose another encoder"
            )
        return found

    @property
    def identity(self) -> dict[str, Any]:
        """What the vectors follow from: the encoder's name, its options, and a checksum of its weights."""
        return self.network().identity

    def check(self, X: Any, name: str = "X") -> Sequence[Any]:
        """Refuse what is no list of items, or an item that cannot be one."""
        raise NotImplementedError

    def read(self, items: Sequence[Any], start: int, pixels: tuple[int, int] | None, name: str = "X") -> Any:
        """Items as the network takes them; `start` is the position of the first, `pixels` side and channels.

        `name` is the argument that they came by, for messages.
        """
        raise NotImplementedError

    def spec(self) -> tuple[str, dict[str, Any]]:
        """The name and the options of the network that `model` names."""
        raise NotImplementedError

    def module_side(self) -> int | None:
        """The side of the images that a module is given; None among texts."""
        return None

    def network(self) -> Network:
        """The network that `model` stands for."""
        if self.model is None:
            raise ConfigError(
                "there is no encoder: a callable or a module is not stored with a classifier; give it again by "
                "load(folder, encoder=...) or set_params(encoder=...)"
            )
        named = isinstance(self.model, str | PathLike)
        if not (named or callable(self.model) or has_encode(self.model)):
            raise ConfigError(
                f"encoder {self.model!r} ({type(self.model).__name__}) will not do; give a name, the folder of a run, "
                "a callable, an object with .encode(items) or a torch module"
            )
        if isinstance(self.model, str) and ".py:" in self.model:
            raise ConfigError(
                f"encoder {self.model!r}: files of Python are not read here; in Python give the callable or the torch "
                "module itself (encoder=OBJECT), or train a run with it and name the run's folder"
            )
        if not named and not is_torch_module(self.model):
            return CallableNetwork(self.model, prefer_encode=self.module_side() is None)
        try:
            from hyperproto.estimators.networks import network_of
        except ImportError as error:
            raise ConfigError(f"encoders run on torch ({error}); pip install 'hyperproto[{self.extra}]'") from error
        folder = run_folder(self.model)
        spec = self.spec() if named and folder is None else ("", {})
        return network_of(self.model, spec, folder, self.module_side())

    @property
    def _n_features_out(self) -> int:
        size = self.network().size
        if size is None:
            raise ConfigError(f"how long the vectors of {self.identity['name']} are is not known before it is called")
        return size

    def __sklearn_is_fitted__(self) -> bool:
        """Always: there is nothing to fit."""
        return True

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that items are no rows of numbers, and that no fit is needed."""
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.two_d_array = False
        return tags


def run_folder(encoder: Any) -> Path | None:
    """The folder of a trained run, if `encoder` names one: its config.json has a recipe, that of a checkpoint none."""
    if not isinstance(encoder, str | PathLike):
        return None
    folder = Path(encoder).expanduser()
    if not is_there(folder / "config.json"):
        return None
    try:
        config = read_json(folder / "config.json")
        is_run = isinstance(config, dict) and "recipe" in config
    except DataError:  # damaged: loading the run says so
        is_run = (folder / "metrics.jsonl").exists()
    return folder.resolve() if is_run else None


class FewShotClassifier(HypersphereClassifier):
    """A HypersphereClassifier whose rows are items. Whatever takes rows there, takes items here.

    `encoder_` tells which encoder the fit used, with a checksum of its weights: vectors of another mean nothing here.
    Two parameters may be "auto", and are by default, since a run knows better: see `feature_transform_`,
    `prior_ratio_`.
    """

    encoder: Any
    progress: bool
    cache: bool
    encoder_: Mapping[str, Any]

    def __init__(
        self, *, feature_transform: str | None = AUTO, prior_ratio: float | str = AUTO, **settings: Any
    ) -> None:
        given: Any = prior_ratio  # a number, once "auto" is settled
        super().__init__(feature_transform=feature_transform, prior_ratio=given, **settings)

    def item_encoder(self) -> ItemEncoder:
        """The transformer that reads the items."""
        raise NotImplementedError

    @property
    @fitted_attribute
    def feature_transform_(self) -> str:
        """What the classifier does to the encoder's vectors; "auto": "unit", but nothing to those of a run.

        A run's vectors come as the run's own transform leaves them.
        """
        return self._model().parameters["feature_transform"] or "none"

    @property
    @fitted_attribute
    def prior_ratio_(self) -> float:
        """The ratio that "bayes" expects; "auto": what the run measured on vectors so transformed, or 4."""
        ratio: float = self._model().parameters["prior_ratio"]
        return ratio

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        names: Mapping[Any, Any] | None = None,
        unlabelled: Any = None,
    ) -> Self:
        """Fit a region to the examples of each class; one example is enough, and counts may differ.

        `unlabelled` are items, too; so are those whose label is None. `names` are vectors, or, among texts, texts.
        """
        return super().fit(X, y, sample_weight, names=names, unlabelled=unlabelled)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, names: Any, unlabelled: Any, classes_may_follow: bool = False
    ) -> Self:
        super()._fit(X, y, sample_weight, names, unlabelled, classes_may_follow)
        self.encoder_ = self.item_encoder().identity
        return self

    def merge(self, other: HypersphereClassifier) -> Self:
        """Add everything that another classifier, with the same encoder, was fitted to."""
        check_is_fitted(self)
        check_is_fitted(other)
        theirs = getattr(other, "encoder_", None)
        if theirs is None or not same_vectors(theirs, self.encoder_):
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, the other to those of "
                f"{encoder_in_words(theirs) if theirs else 'an encoder that it does not name'}; "
                "only those of one can be merged"
            )
        return super().merge(other)

    @property
    def examples_(self) -> dict[int, str]:
        """Texts, or paths of images, of the examples that are kept, by their numbers."""
        check_is_fitted(self)
        return self._memory.named_examples()

    def diagnose(self) -> Diagnosis:
        """Report on every class, and on the examples that look wrong; the examples must have been kept."""
        return replace(super().diagnose(), items=self.examples_)

    def save(self, folder: str | PathLike[str], *, unlabelled: bool = False) -> None:
        """Write the classifier to a folder, whole or not at all: a JSON file and a safetensors file, no pickle.

        The encoder stays where it is: its name, or the folder of its run, is written with a checksum of its weights. A
        callable or a module is not written; `load` takes it again. Vectors of unlabelled items are written only if
        asked for: see `HypersphereClassifier.save`.
        """
        super().save(folder, unlabelled=unlabelled)

    @classmethod
    def load(
        cls, folder: str | PathLike[str], check_encoder: bool = True, *, encoder: Any = None, trust: Trust = None
    ) -> Self:
        """Read a classifier that `save` wrote; files that were cut or changed are refused, and so are other weights.

        `encoder` stands in for the one that was saved: a callable or a module, which is not, or a run that moved.
        Without `check_encoder` the encoder is loaded, and checked, only when items are to be read. `trust` names .py
        files that a run, where that is the encoder, may import.
        """
        trust_files(trust)
        saved = storage.read(Path(folder))
        if encoder is not None:
            saved = replace(saved, parameters={**saved.parameters, "encoder": encoder})
        loaded = cls._from_saved(folder, saved)
        if check_encoder:
            if loaded.encoder is None:
                raise DataError(
                    f"{folder}: was fitted to vectors of {encoder_in_words(loaded.encoder_)}, which is not stored; "
                    f"give it again: {cls.__name__}.load(folder, encoder=...)"
                )
            loaded.check_encoder()
        return loaded

    def check_encoder(self) -> None:
        """Make sure that the encoder is the one that the fit used."""
        check_is_fitted(self)
        if self.encoder_.get("name") == "run" and isinstance(self.encoder, str) and run_folder(self.encoder) is None:
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, and there is no run in "
                f"{self.encoder}; if it moved, say where: load(folder, encoder=...) or set_params(encoder=...)"
            )
        found = self.item_encoder().identity
        if not same_vectors(found, self.encoder_):
            raise DataError(
                f"this classifier was fitted to vectors of {encoder_in_words(self.encoder_)}, but "
                f"{_named(self.encoder)} is now {encoder_in_words(found)}; use the encoder of the fit, or fit again"
            )

    def _chosen(self, fitting: bool = False) -> Any:
        """The parameters, with what "auto" stands for with this encoder; a fit asks the encoder, all else the fit."""
        if AUTO not in (self.feature_transform, self.prior_ratio):
            return self
        if not fitting:
            identity = self.encoder_ if hasattr(self, "encoder_") else {}
        else:
            identity = {} if run_folder(self.encoder) is None else self.item_encoder().identity
        transform: str | None = self.feature_transform
        ratio: Any = self.prior_ratio
        if transform == AUTO:
            transform = "none" if identity.get("name") == "run" else "unit"
        if ratio == AUTO:
            ratio = identity.get("prior_ratio", {}).get(_transform_of_both(identity, transform), PRIOR_RATIO)
        return SimpleNamespace(**{**vars(self), "feature_transform": transform, "prior_ratio": ratio})

    def _parameters(self) -> dict[str, Any]:
        """As they are, but for the encoder: a run's whole path, and nothing for what cannot be written."""
        named = fspath(self.encoder) if isinstance(self.encoder, str | PathLike) else None
        folder = run_folder(self.encoder)
        return {**super()._parameters(), "encoder": named if folder is None else str(folder)}

    def _origin(self) -> Mapping[str, Any]:
        return self.encoder_

    def _take_origin(self, encoder: Mapping[str, Any] | None) -> None:
        if encoder is None:
            raise DataError(f"the model does not say which encoder made its vectors; {storage.AGAIN}")
        self.encoder_ = encoder

    def _input(self, X: Any) -> Any:
        return X if isinstance(X, list | tuple) else self.item_encoder().check(X)

    def _named(self, X: Any) -> dict[int, str]:
        """Texts or paths; pixels have no name."""
        items = () if X is None else X
        return {row: str(fspath(item)) for row, item in enumerate(items) if isinstance(item, str | PathLike)}

    def _others(self, rows: Any, reset: bool) -> Floats:
        return super()._others(self._vectors(rows, not reset, "unlabelled"), reset)

    def _batch(self, X: Any, y: Any, sample_weight: Any, reset: bool = False) -> tuple[Batch, Floats | None]:
        X = self._input(X)
        check_consistent_length(X, y)  # before the long part
        return super()._batch(self._vectors(X, not reset), y, sample_weight, reset)

    def _rows(self, X: Any) -> Floats:
        check_is_fitted(self)
        return super()._rows(self._vectors(X, True))

    def _vectors(self, X: Any, check: bool, name: str = "X") -> Floats:
        if check:
            self.check_encoder()
        vectors: Floats = self.item_encoder().encode(X, name)
        return vectors

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """The settings of the encoder, which the constructor names, and those of the classifier."""
        return sorted({*super()._get_param_names(), *HypersphereClassifier._get_param_names()})

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The encoder, then whatever differs from the defaults."""
        defaults = type(self)().get_params(deep=False)
        given = self.get_params(deep=False)
        changed = [name for name in given if name != "encoder" and given[name] != defaults[name]]
        words = [f"encoder={_named(self.encoder)}", *(f"{name}={given[name]!r}" for name in changed)]
        text = f"{type(self).__name__}({', '.join(words)})"
        return text if len(text) <= N_CHAR_MAX else f"{text[: N_CHAR_MAX - 4]}...)"


def same_vectors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two encoders give the same vectors: what a run measured beside them does not matter."""
    if _options(one) != _options(other):
        return False
    return all(one.get(key) == other.get(key) for key in ("name", "sha256"))


def _options(identity: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an identity; version 0.1 left out the length at which a sentence-transformer of a run cut texts.

    >>> _options({"name": "run", "options": {"encoder": "sentence-transformer"}})
    {'max_length': 128, 'encoder': 'sentence-transformer'}
    """
    options = identity.get("options", {})
    texts = {identity.get("name"), options.get("encoder")} & {"sentence-transformer", "SentenceTransformer"}
    return {"max_length": 128, **options} if texts else dict(options)


def _transform_of_both(identity: Mapping[str, Any], transform: str | None) -> str | None:
    """What a run's transform and the classifier's come to; None for "center-unit" of examples, as nothing measured it.

    >>> _transform_of_both({"options": {"transform": "none"}}, "unit")
    'unit'
    """
    own = identity.get("options", {}).get("transform", "none")
    if transform in (None, "none"):
        return str(own)
    return None if transform != "unit" else "unit" if own == "none" else str(own)


def encoder_in_words(identity: Mapping[str, Any]) -> str:
    """An identity as messages say it."""
    options = [f"{name}={value!r}" for name, value in sorted(identity["options"].items())]
    weights = [f"weights {identity['sha256'][:12]}"] if identity["sha256"] else []
    said = "; ".join([", ".join(options)] * bool(options) + weights)
    return f"{identity['name']} ({said})" if said else str(identity["name"])


def _named(encoder: Any) -> str:
    """An encoder in a few words: a module, or a callable, by its type or name."""
    if isinstance(encoder, str | PathLike):
        return repr(fspath(encoder))
    return f"<{getattr(encoder, '__qualname__', type(encoder).__qualname__)}>"
