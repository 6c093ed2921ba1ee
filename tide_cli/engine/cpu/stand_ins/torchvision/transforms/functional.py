from .. import InterpolationMode, absent

__all__ = ["InterpolationMode"]
__getattr__ = absent("torchvision.transforms.functional")
