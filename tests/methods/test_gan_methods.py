"""The methods that serve GANs too, on the tiny GAN."""

import pytest
import torch

from eftgan.adapters import registry_of
from eftgan.errors import UserError
from eftgan.gan.kind import train_gan
from eftgan.gan.trainer import GanTrainer
from eftgan.methods import METHODS
from eftgan.tensors import read_tensors
from eftgan.training.ema import Ema

STEPS = "training.steps=3"
PAIR = ("joint", "finetune")


def test_separate_gans_equal_gans_trained_alone(tiny):
    together = train_gan(tiny(STEPS, "method={name: separate}", out="together"), "test")
    only = "tasks=[{name: checks, data: 'shapes:checks', limit: 24}]"
    alone = train_gan(tiny(STEPS, "method={name: separate}", only, out="alone"), "test")
    ours, _ = read_tensors(together.folder.task_file(1, "checks"))
    theirs, _ = read_tensors(alone.folder.task_file(0, "checks"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_ewc_holds_generator_and_discriminators(tiny):
    experiment = tiny(STEPS, "method={name: ewc, strength: 1.0, samples: 2}")
    train_gan(experiment, "test")
    importance = experiment.method.memory["importance"]
    assert set(importance) == {"generator", "discriminator32"}
    assert all(any(bool(tensor.any()) for tensor in found.values()) for found in importance.values())


@pytest.mark.slow
def test_l2_transfer_keeps_a_gan_nearer_to_its_last_task_the_stronger_it_is(tiny):
    """Anchors are the averaged weights of the generator; discriminators have theirs."""
    far = []
    for strength in (0, 100, 10_000):
        words = (f"method={{name: l2t, strength: {strength}}}", "training.learning_rate=1e-3")
        run = train_gan(tiny(*words, out=str(strength)), "test")
        files = [read_tensors(run.folder.task_file(*task))[0] for task in enumerate(run.tasks)]
        trained = [key for key in files[0] if "running" not in key and "num_" not in key]
        far.append(sum((files[1][key] - files[0][key]).square().sum().item() for key in trained))
    assert far[0] > far[1] > far[2] > 0


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.suits("gan")])
def test_methods_that_need_labels_are_refused(tiny, name):
    with pytest.raises(UserError, match=f"{name} is for a classifier"):
        train_gan(tiny(f"method={{name: {name}}}"), "test")


def state_of(run):
    return read_tensors(run.folder.state_files()[-1])[0]


def test_joint_training_of_one_task_is_fine_tuning_bit_for_bit(tiny):
    one = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"
    joint, plain = (state_of(train_gan(tiny(STEPS, f"method={{name: {m}}}", one, out=m), "test")) for m in PAIR)
    assert joint.keys() == plain.keys()
    assert all(torch.equal(joint[key], plain[key]) for key in joint)


def test_joint_training_takes_turns_over_the_seen_tasks(tiny, monkeypatch):
    seen, averaged = [], []
    micro_step, ema = GanTrainer._micro_step, Ema.__init__

    def watching(self, task, micro, images, networks, stepping):
        (name,) = {registry_of(network).active_names for network in self.networks.values()}
        seen.append((task, name[0], images))
        return micro_step(self, task, micro, images, networks, stepping)

    def averaging(self, *args):
        ema(self, *args)
        averaged.append(self.names)

    monkeypatch.setattr(GanTrainer, "_micro_step", watching)
    monkeypatch.setattr(Ema, "__init__", averaging)
    run = train_gan(tiny("method={name: joint}"), "test")
    tasks = [(task, of) for task, of, _ in seen]
    assert tasks == [("discs", "discs")] * 6 + [("checks", of) for of in ("discs", "checks") * 3]
    pictures = {name: run.real_images(index).images for index, name in enumerate(run.tasks)}
    for _, of, images in seen:
        assert all((image == pictures[of]).flatten(1).all(1).any() for image in images)
    norms = [name for name in averaged[1] if ".tasks.t00" in name]
    assert {name.split(".tasks.")[1][:4] for name in norms} == {"t001", "t002"}


def test_joint_training_moves_all_that_the_seen_tasks_own_and_nothing_is_lost(tiny):
    run = train_gan(tiny(STEPS, "method={name: joint}"), "test")
    early, late = (run.generator(after).state_dict() for after in (0, 1))
    layers = {key for key in early if ".tasks." not in key and key.endswith("weight")}
    norms = {key for key in early if ".tasks.t001." in key and "running_mean" in key}
    moved = {key for key in early if not torch.equal(early[key], late[key])}
    patterns = {key for key in layers if key.replace(".layer.weight", ".tasks.t001.running_mean") in norms}
    assert norms <= moved
    assert layers - patterns <= moved
    assert {key for key in late if ".tasks.t002." in key and "running_mean" in key}
    discriminator = [key for key in state_of(run) if key.startswith("network/discriminator32/") and "t002" in key]
    assert any("logits" in key for key in discriminator)
