"""Train a generator on one image collection after another, without forgetting the earlier ones.

    accelerate launch train_gan.py                                    the built-in demo: four collections, minutes
    accelerate launch train_gan.py --config configs/gan/NAME.yaml training.steps=2000 out=runs/mine
    accelerate launch train_gan.py --resume runs/shapes 'tasks+={name: rings, data: rings.lmdb}'

`python train_gan.py ...` does the same in one process. An unfinished run in the same folder is continued.
"""

from pathlib import Path

from eftgan.entry import run_entry


def train(experiment, command: str) -> None:
    from eftgan.gan.kind import train_gan

    run = train_gan(experiment, command)
    if run is not None:
        print(run.summary())


if __name__ == "__main__":
    run_entry(
        __doc__,
        experiment="eftgan.gan.experiment:GanExperiment",
        demo=Path(__file__).parent / "configs" / "gan" / "shapes.yaml",
        train=train,
    )
