"""SimpleShot: nearest centroid on centred features of length 1 (CL2N)."""

from hyperproto.methods.protonet import ProtoNet


class SimpleShot(ProtoNet):
    """Wang et al., "SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning", 2019.

    It is ProtoNet on transformed features: minus the mean of the training data (without training data, of the support),
    then scaled to length 1.
    """

    transforms = ("center-unit",)
