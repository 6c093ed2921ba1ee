from ... import InterpolationMode, absent
from . import functional

__all__ = ["InterpolationMode", "functional"]
__getattr__ = absent("torchvision.transforms.v2")
