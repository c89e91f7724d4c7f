"""Train a classifier on one set of classes after another, without forgetting the earlier ones.

    accelerate launch train_classifier.py                   the built-in demo: three tasks, a minute
    accelerate launch train_classifier.py --config cifar100_20_cpu method=lwf out=runs/mine
    accelerate launch train_classifier.py --resume runs/mine sources.0.take=10

`python train_classifier.py ...` does the same in one process, as does `eftgan train classifier ...`. An unfinished run
in the same folder is continued.
"""

from eftgan.commands.train import run_script

if __name__ == "__main__":
    run_script("classifier", __doc__)
