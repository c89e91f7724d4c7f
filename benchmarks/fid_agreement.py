"""FID of two folders of images by eftgan and by pytorch-fid's own functions: the figures and the times of both.

python -m benchmarks.fid_agreement FOLDER_A FOLDER_B
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from pytorch_fid import inception as theirs
from pytorch_fid.fid_score import calculate_frechet_distance

from eftgan.evaluation.features import InceptionFeatures, find_weights, load_extractor
from eftgan.evaluation.folder_distance import image_files, read_image
from eftgan.evaluation.metrics.fid import frechet_distance
from eftgan.evaluation.statistics import FeatureStatistics

BATCH = 20


def their_network() -> theirs.InceptionV3:
    """pytorch-fid's network with the weights that eftgan found, in place of its download."""
    weights = dict(InceptionFeatures(find_weights()).blocks.state_dict())
    weights |= {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}  # not used for FID
    download, theirs.load_state_dict_from_url = theirs.load_state_dict_from_url, lambda *_, **__: weights
    try:
        return theirs.InceptionV3([3]).eval()
    finally:
        theirs.load_state_dict_from_url = download


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER")
    ours, other = load_extractor(), their_network()
    sides, ratios = [], []
    for folder in parser.parse_args().folders:
        mine, reference = [], []
        images = torch.stack([read_image(path) for path in image_files(folder)])
        for batch in images.split(BATCH):
            started = time.process_time()
            mine.append(ours(batch))
            middle = time.process_time()
            with torch.no_grad():
                reference.append(other(batch.float() / 255)[0].flatten(1))
            ratios.append((middle - started) / (time.process_time() - middle))
        sides.append((torch.cat(mine), torch.cat(reference).double().numpy()))
    started = time.process_time()
    distance = frechet_distance(*(FeatureStatistics.from_features(mine) for mine, _ in sides))
    middle = time.process_time()
    moments = [(features.mean(0), np.cov(features, rowvar=False)) for _, features in sides]
    expected = calculate_frechet_distance(*moments[0], *moments[1])
    ended = time.process_time()
    print(f"images: {' and '.join(str(len(mine)) for mine, _ in sides)}")
    print(f"FID: eftgan {distance:.4f}, pytorch-fid {expected:.4f}, difference {abs(distance - expected):.1e}")
    print(f"CPU time per image, eftgan / pytorch-fid: {statistics.median(ratios):.2f} (batches of {BATCH} by turns)")
    print(f"CPU time of the distance, eftgan / pytorch-fid: {(middle - started) / (ended - middle):.4f}")


if __name__ == "__main__":
    main()
