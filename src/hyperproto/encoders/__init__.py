"""Encoders of items to vectors or maps: one file and one registry line each."""

from typing import Any

from hyperproto.data import Pool
from hyperproto.encoders.base import Encoder, Units, default_device, moved
from hyperproto.encoders.features import Features, FeatureTransform
from hyperproto.encoders.parts import pretrained
from hyperproto.errors import ConfigError, DataError, HyperProtoError
from hyperproto.registry import Registry, check_options

__all__ = [
    "ENCODERS",
    "Encoder",
    "FeatureTransform",
    "Features",
    "Units",
    "default_device",
    "make_encoder",
    "moved",
    "resolve_encoder",
]

ENCODERS = Registry(
    "encoder",
    "hyperproto.encoders",
    {
        "conv4": "hyperproto.encoders.conv4:Conv4",
        "efficientnet-lite0": "hyperproto.encoders.efficientnet:EfficientNetLite0",
        "glove": "hyperproto.encoders.glove:GloVe",
        "identity": "hyperproto.encoders.identity:Identity",
        "relation-cnn": "hyperproto.encoders.relation_cnn:RelationCNN",
        "relation-transformer": "hyperproto.encoders.relation_transformer:RelationTransformer",
        "resnet12": "hyperproto.encoders.resnet12:ResNet12",
        "resnet18": "hyperproto.encoders.resnet18:ResNet18",
        "sentence-transformer": "hyperproto.encoders.sentence_transformer:SentenceTransformer",
        "token-transformer": "hyperproto.encoders.token_transformer:TokenTransformer",
        "wrn28_10": "hyperproto.encoders.wrn28_10:WRN28_10",
    },
    base="hyperproto.encoders:Encoder",
)

_READERS = ("token-transformer", "relation-transformer", "sentence-transformer")  # they accept a language model


def resolve_encoder(spec: str, options: dict[str, Any], pool: Pool) -> tuple[str, dict[str, Any]]:
    """Resolve a spec (`NAME` or `NAME:ARGUMENT`) and options to a name and the complete options for a pool.

    The alias of a language model alone, such as `minilm`, selects the transformer encoder that reads such items.
    """
    name, _, argument = _with_reader(spec, pool).partition(":")
    cls: type[Encoder] = ENCODERS.get(name)
    if argument:
        if cls.argument is None:
            raise ConfigError(f"encoder {spec!r}: {name} takes no argument after the colon; write {name!r}")
        options = {cls.argument: argument, **options}
    options = {**cls.options_for(pool), **options}
    check_options("encoder", name, cls, options)
    return name, options


def _with_reader(spec: str, pool: Pool) -> str:
    if spec not in pretrained.ALIASES:
        return spec
    problems = []
    for name in _READERS:
        try:
            ENCODERS.get(name).options_for(pool)
        except DataError as error:
            problems.append(str(error))
        else:
            return f"{name}:{spec}"
    raise DataError(f"encoder {spec!r} is a language model, and none of them reads these data\n" + "\n".join(problems))


def make_encoder(name: str, options: dict[str, Any]) -> Encoder:
    """Return a new encoder by registry name; `options` must be complete."""
    cls: type[Encoder] = ENCODERS.get(name)
    try:
        encoder = cls(**options)
    except (HyperProtoError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # errors of torch for impossible sizes
        raise ConfigError(f"the encoder {name!r} cannot be made with {options} ({error})") from error
    if 0 in encoder.feature_shape:
        raise ConfigError(f"the encoder {name!r} made with {options} gives vectors of size 0; check its options")
    encoder.made_from = name, options
    return encoder
