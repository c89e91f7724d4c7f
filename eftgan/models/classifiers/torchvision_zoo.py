"""torchvision's own classifiers and their published weights.

torchvision is imported where it is used: it takes seconds, and only these functions need it.
"""

from __future__ import annotations

from urllib.error import URLError

from torch import Tensor, nn

from eftgan.errors import UserError

# Two return extra outputs while training; the others end in a convolution, so no head can be told apart.
UNSUITED = ("googlenet", "inception_v3", "squeezenet1_0", "squeezenet1_1")


def torchvision_names() -> list[str]:
    """The classifiers that end in one linear layer."""
    from torchvision import models

    return models.list_models(module=models, exclude=UNSUITED)


def torchvision_network(name: str, num_classes: int) -> nn.Module:
    """An untrained network of torchvision."""
    from torchvision import models

    return models.get_model(name, num_classes=num_classes)


def torchvision_weights(name: str, weights: str) -> dict[str, Tensor]:
    """Published weights, such as DEFAULT or IMAGENET1K_V1; downloaded on first use."""
    from torchvision import models

    published = models.get_model_weights(name)
    if weights not in published.__members__:
        known = ", ".join(published.__members__) or "none"
        raise UserError(f"no file and no torchvision weights {weights!r} for {name}; published: {known}")
    try:
        return published[weights].get_state_dict(progress=False, check_hash=True)
    except URLError as error:
        raise UserError(f"cannot download {weights} of {name}: {error.reason}; give a file instead") from error
