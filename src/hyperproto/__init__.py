"""Few-shot learning in which a class is a region of embedding space, not a point.

Importing this package loads nothing else: each public name is fetched from its module on first use, so a command-line
start is fast and `pip install hyperproto` without torch still gives the regions and the estimator.
"""

__version__ = "0.2.0"

TYPE_CHECKING = False  # type checkers know the name; `typing` itself takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from hyperproto.api import check_data as check_data
    from hyperproto.api import compare as compare
    from hyperproto.api import distant_data as distant_data
    from hyperproto.api import evaluate as evaluate
    from hyperproto.api import figure as figure
    from hyperproto.api import fit_tagger as fit_tagger
    from hyperproto.api import grid as grid
    from hyperproto.api import list_data as list_data
    from hyperproto.api import list_methods as list_methods
    from hyperproto.api import list_recipes as list_recipes
    from hyperproto.api import report as report
    from hyperproto.api import reproduce as reproduce
    from hyperproto.api import submit as submit
    from hyperproto.api import tag as tag
    from hyperproto.api import train as train
    from hyperproto.api.advise import fix as fix
    from hyperproto.api.advise import suggest as suggest
    from hyperproto.api.files import add as add
    from hyperproto.api.files import export as export
    from hyperproto.api.files import fit as fit
    from hyperproto.api.files import predict as predict
    from hyperproto.data import OUTSIDE as OUTSIDE
    from hyperproto.data import Pool as Pool
    from hyperproto.data import open_pool as open_pool
    from hyperproto.episodes import Episode as Episode
    from hyperproto.episodes import EpisodeSampler as EpisodeSampler
    from hyperproto.errors import BusyError as BusyError
    from hyperproto.errors import ConfigError as ConfigError
    from hyperproto.errors import DataError as DataError
    from hyperproto.errors import EpisodeError as EpisodeError
    from hyperproto.errors import HyperProtoError as HyperProtoError
    from hyperproto.estimators import EntityTagger as EntityTagger
    from hyperproto.estimators import FewShotImageClassifier as FewShotImageClassifier
    from hyperproto.estimators import FewShotTextClassifier as FewShotTextClassifier
    from hyperproto.estimators import HypersphereClassifier as HypersphereClassifier
    from hyperproto.estimators import ImageEncoder as ImageEncoder
    from hyperproto.estimators import MultiLabelClassifier as MultiLabelClassifier
    from hyperproto.estimators import TextEncoder as TextEncoder
    from hyperproto.estimators import load_classifier as load_classifier
    from hyperproto.estimators.storage import model_lock as model_lock
    from hyperproto.evaluation import Result as Result
    from hyperproto.exported import ExportedClassifier as ExportedClassifier
    from hyperproto.reports.comparison import Comparison as Comparison
    from hyperproto.training import Run as Run

_HOME = {
    "BusyError": "errors",
    "Comparison": "reports.comparison",
    "ConfigError": "errors",
    "DataError": "errors",
    "EntityTagger": "estimators",
    "Episode": "episodes",
    "EpisodeError": "errors",
    "EpisodeSampler": "episodes",
    "ExportedClassifier": "exported",
    "FewShotImageClassifier": "estimators",
    "FewShotTextClassifier": "estimators",
    "HyperProtoError": "errors",
    "HypersphereClassifier": "estimators",
    "ImageEncoder": "estimators",
    "MultiLabelClassifier": "estimators",
    "OUTSIDE": "data",
    "Pool": "data",
    "Result": "evaluation",
    "Run": "training",
    "TextEncoder": "estimators",
    "add": "api.files",
    "check_data": "api",
    "compare": "api",
    "distant_data": "api",
    "evaluate": "api",
    "export": "api.files",
    "figure": "api",
    "fit": "api.files",
    "fit_tagger": "api",
    "fix": "api.advise",
    "grid": "api",
    "list_data": "api",
    "list_methods": "api",
    "list_recipes": "api",
    "load_classifier": "estimators",
    "model_lock": "estimators.storage",
    "open_pool": "data",
    "predict": "api.files",
    "report": "api",
    "reproduce": "api",
    "submit": "api",
    "suggest": "api.advise",
    "tag": "api",
    "train": "api",
}

__all__ = [*sorted(_HOME), "__version__"]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module 'hyperproto' has no attribute {name!r}")
    return getattr(import_module(f"hyperproto.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
