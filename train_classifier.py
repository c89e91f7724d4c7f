"""Train a classifier on one set of classes after another, without forgetting the earlier ones.

    accelerate launch train_classifier.py                              the built-in demo: three tasks, a minute
    accelerate launch train_classifier.py --config configs/classifier/NAME.yaml 'method={name: lwf}' out=runs/mine
    accelerate launch train_classifier.py --resume runs/mine sources.0.take=10

`python train_classifier.py ...` does the same in one process. An unfinished run in the same folder is continued.
"""

from pathlib import Path

from eftgan.entry import run_entry


def train(experiment, command: str) -> None:
    from eftgan.classifier.kind import train_classifier

    run = train_classifier(experiment, command)
    if run is not None:
        print(run.summary())


if __name__ == "__main__":
    run_entry(
        __doc__,
        experiment="eftgan.classifier.experiment:ClassifierExperiment",
        demo=Path(__file__).parent / "configs" / "classifier" / "shapes.yaml",
        train=train,
    )
