"""Stands in for torchvision where no build of it fits the installed torch.

SGLang and transformers import a few of its names for image inputs. Serving text calls none of them; a name that
is called after all says so.
"""

from enum import Enum

__version__ = "0.0.0"


def absent(module):
    """A module-level __getattr__ under which any name is a function that explains what is missing."""

    def lookup(name):
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_args, **_kwargs):
            raise RuntimeError(f"{module}.{name} needs torchvision, which this installation lacks: no image inputs")

        return missing

    return lookup


class InterpolationMode(Enum):
    """torchvision.transforms.InterpolationMode, read at import time by image processors."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
