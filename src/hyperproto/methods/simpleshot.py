"""SimpleShot: nearest centroid on centred features of length 1 (CL2N)."""

from hyperproto.methods.protonet import ProtoNet


class SimpleShot(ProtoNet):
    """Wang et al., "SimpleShot: Revisiting Nearest-Neighbor Classification for Few-Shot Learning", 2019.

    The method *is* its transform: what is centred is the training data's mean (without training data, the support's).
    """

    transforms = ("center-unit",)
