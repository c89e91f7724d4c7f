"""Train a generator on one image collection after another, without forgetting the earlier ones.

    accelerate launch train_gan.py                          the built-in demo: four collections, minutes
    accelerate launch train_gan.py --config cats_birds_churches_towers_32 training.steps=2000 out=runs/mine
    accelerate launch train_gan.py --resume runs/shapes 'tasks+={name: rings, data: rings.lmdb}'

`python train_gan.py ...` does the same in one process, as does `eftgan train gan ...`. An unfinished run in the same
folder is continued.
"""

from eftgan.commands.train import run_script

if __name__ == "__main__":
    run_script("gan", __doc__)
