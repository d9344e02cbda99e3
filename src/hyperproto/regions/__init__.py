"""Classes as regions of embedding space: points, spheres, cones and Gaussians, on arrays of any library.

    sphere = Sphere.fit(support, labels, way=5)      # support (..., S, D), labels (..., S)
    sphere.measure(queries).argmin(-1)               # (..., Q, N), lower is more likely
    sphere.inside(queries)                           # (..., Q, N), closer to a centre than a typical example

All functions are pure and written against the array API standard: NumPy arrays need no torch, and torch tensors carry
gradients.
"""

from hyperproto.regions.arrays import Array
from hyperproto.regions.base import FIT_MODES, ClosedForm, LinearForm, Region, check_mode
from hyperproto.regions.bayes import PRIOR_RATIO
from hyperproto.regions.cone import Cone, cone_overlap_loss
from hyperproto.regions.evidence import Evidence
from hyperproto.regions.gaussian import Gaussian
from hyperproto.regions.point import Point
from hyperproto.regions.sphere import Sphere
from hyperproto.regions.statistics import ClassStatistics, ExampleStatistics, Moments, Statistics
from hyperproto.regions.whitening import Whitening

REGIONS: dict[str, type[Region]] = {"point": Point, "sphere": Sphere, "cone": Cone, "gaussian": Gaussian}

__all__ = [
    "FIT_MODES",
    "PRIOR_RATIO",
    "REGIONS",
    "Array",
    "ClassStatistics",
    "ClosedForm",
    "Cone",
    "Evidence",
    "ExampleStatistics",
    "Gaussian",
    "LinearForm",
    "Moments",
    "Point",
    "Region",
    "Sphere",
    "Statistics",
    "Whitening",
    "check_mode",
    "cone_overlap_loss",
]
