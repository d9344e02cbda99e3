"""Encoder and classifier in one piece: texts or images in, labels out. Nothing imports torch before it is needed."""

from hyperproto.pipelines.image_classifier import FewShotImageClassifier
from hyperproto.pipelines.image_encoder import ImageEncoder
from hyperproto.pipelines.saved import load_classifier
from hyperproto.pipelines.text_classifier import FewShotTextClassifier
from hyperproto.pipelines.text_encoder import TextEncoder

__all__ = ["FewShotImageClassifier", "FewShotTextClassifier", "ImageEncoder", "TextEncoder", "load_classifier"]
