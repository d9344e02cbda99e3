"""Few-shot methods: one file and one registry line each; other packages add theirs by entry point."""

from typing import Any

from hyperproto.errors import ConfigError, HyperProtoError
from hyperproto.methods.base import TRAITS, Group, Method
from hyperproto.methods.task import PAD, Task, TaskItems, gather_task, with_names
from hyperproto.registry import Registry, check_options

__all__ = [
    "METHODS",
    "PAD",
    "TRAITS",
    "Group",
    "Method",
    "Task",
    "TaskItems",
    "gather_task",
    "make_method",
    "with_names",
]

METHODS = Registry(
    "method",
    "hyperproto.methods",
    {
        "baseline-plus": "hyperproto.methods.baseline_plus:BaselinePlus",
        "act2param": "hyperproto.methods.act2param:Act2Param",
        "awgim": "hyperproto.methods.awgim:AWGIM",
        "bd-cspn": "hyperproto.methods.bd_cspn:BDCSPN",
        "bert-pair": "hyperproto.methods.bert_pair:BertPair",
        "classifier": "hyperproto.methods.classifier:Classifier",
        "cosine": "hyperproto.methods.cosine:Cosine",
        "covamnet": "hyperproto.methods.covamnet:CovaMNet",
        "gnn": "hyperproto.methods.gnn:GNN",
        "hyperproto": "hyperproto.methods.hyperproto:HyperProto",
        "hyperproto-closed": "hyperproto.methods.hyperproto_closed:HyperProtoClosed",
        "hyperproto-cone": "hyperproto.methods.hyperproto_cone:HyperProtoCone",
        "hyperproto-gaussian": "hyperproto.methods.hyperproto_gaussian:HyperProtoGaussian",
        "hyperproto-named": "hyperproto.methods.hyperproto_named:HyperProtoNamed",
        "imp": "hyperproto.methods.imp:IMP",
        "label-propagation": "hyperproto.methods.label_propagation:LabelPropagation",
        "leo": "hyperproto.methods.leo:LEO",
        "logistic": "hyperproto.methods.logistic:LogisticRegression",
        "matchingnet": "hyperproto.methods.matchingnet:MatchingNet",
        "maml": "hyperproto.methods.maml:MAML",
        "metanet": "hyperproto.methods.metanet:MetaNet",
        "metanet-conv": "hyperproto.methods.metanet:MetaNetConv",
        "mlman": "hyperproto.methods.mlman:MLMAN",
        "mtb": "hyperproto.methods.mtb:MTB",
        "mtb-pretrain": "hyperproto.methods.mtb:MTBPretrain",
        "nearest": "hyperproto.methods.nearest:NearestNeighbour",
        "nnshot": "hyperproto.methods.nearest:NNShot",
        "proto-adv": "hyperproto.methods.proto_adv:ProtoADV",
        "proto-hatt": "hyperproto.methods.proto_hatt:ProtoHATT",
        "protonet": "hyperproto.methods.protonet:ProtoNet",
        "regrab": "hyperproto.methods.regrab:REGRAB",
        "s2m2": "hyperproto.methods.s2m2:S2M2",
        "relationnet": "hyperproto.methods.relationnet:RelationNet",
        "self-training": "hyperproto.methods.self_training:SelfTraining",
        "simpleshot": "hyperproto.methods.protonet:SimpleShot",
        "snail": "hyperproto.methods.snail:SNAIL",
        "soft-kmeans": "hyperproto.methods.soft_kmeans:SoftKMeans",
        "structshot": "hyperproto.methods.nearest:StructShot",
        "traml": "hyperproto.methods.traml:TRAML",
        "variational": "hyperproto.methods.variational:Variational",
        "two-stage": "hyperproto.methods.two_stage:TwoStage",
    },
    base="hyperproto.methods:Method",
)


def make_method(name: str, *, feature_shape: tuple[int, ...], n_classes: int = 0, **options: Any) -> Method:
    """Return a new method by registry name."""
    cls: type[Method] = METHODS.get(name)
    check_options("method", name, cls, options)
    try:
        return cls(feature_shape=feature_shape, n_classes=n_classes, **options)
    except HyperProtoError:
        raise
    except Exception as error:  # errors of torch for impossible sizes
        raise ConfigError(
            f"the method {name!r} cannot be made for units of shape {feature_shape} with {options} ({error})"
        ) from error
