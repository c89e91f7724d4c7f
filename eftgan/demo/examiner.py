"""What classifiers say of pictures that somebody drops on a page."""

import random
import threading
from pathlib import Path

import torch
from PIL import Image
from torch import nn

from eftgan.classifier.run import Answer, ClassifierRun
from eftgan.data.grid import to_pillow
from eftgan.data.images import decode_rgb, fit_square, to_chw
from eftgan.errors import UserError

SHOWN = 192  # pixels of a small test image on the page


class Examiner:
    """Asks one run about images. May be called from several threads."""

    def __init__(self, run: ClassifierRun) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._network: nn.Module | None = None

    def ask(self, image: Image.Image) -> tuple[list[Answer], int]:
        """What each task says of a picture of any size, and which one is believed."""
        square = torch.from_numpy(to_chw(fit_square(image, self.run.experiment.network.size)))
        with self._lock:
            if self._network is None:
                self._network = self.run.classifier(len(self.run.trained) - 1)
            return self.run.answers(square, self._network, self.run.trained)

    def test_image(self) -> tuple[Image.Image, str]:
        """One of the run's own test images, enlarged to be seen, and what it is."""
        tasks = self.run.labelled[: len(self.run.trained)]
        task = random.choice(tasks)
        image, label = task.test[random.randrange(len(task.test))]
        times = max(1, SHOWN // image.shape[-1])
        enlarged = to_pillow(image.repeat_interleave(times, 1).repeat_interleave(times, 2))
        return enlarged, f"a test image of task {task.name}: {task.classes[label]}"


def read_image(path: str) -> Image.Image:
    """A picture that somebody dropped."""
    try:
        return decode_rgb(Path(path).read_bytes())
    except Exception as error:  # decoders raise whatever a damaged file makes of them
        raise UserError(f"this cannot be read as an image ({error})") from error
