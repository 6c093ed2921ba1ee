from .. import InterpolationMode, absent
from . import functional, v2

__all__ = ["InterpolationMode", "functional", "v2"]
__getattr__ = absent("torchvision.transforms")
