"""Continual GAN training: the promises of the trainer, on the smallest networks that have every part."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from eftgan.adapters import shared_state, task_state
from eftgan.data.augmentation import centre_crop, multiscale
from eftgan.errors import UserError
from eftgan.files import file_digest
from eftgan.gan.experiment import open_tasks
from eftgan.gan.kind import train_gan
from eftgan.gan.losses import gradient_penalty
from eftgan.gan.networks import build_networks
from eftgan.gan.run import GanRun
from eftgan.gan.trainer import GanTrainer
from eftgan.methods import METHODS
from eftgan.names import GENERATOR
from eftgan.runfolder import RunFolder
from eftgan.tensors import read_tensors
from eftgan.training.ema import Ema
from eftgan.training.launch import make_accelerator
from eftgan.training.stopping import Stopped

FURTHER = "tasks+={name: stripes, data: 'shapes:stripes', limit: 24}"
RESTART = "method={name: eft, discriminator: restart}"
OTHERS_WITH_MEMORY = ("packnet", "mergan", "l2t", "batche", "ccll", "piggyback", "joint", "separate")


def digests(folder: Path) -> dict[str, str]:
    """Every file of a run that must come out the same, whatever happened on the way."""
    kept = [*folder.glob("tasks/*"), *folder.glob("samples/**/*.png"), folder / "shared.safetensors"]
    return {str(path.relative_to(folder)): file_digest(path) for path in kept}


def method_word(name: str) -> str:
    return f"method={{name: {name}{', samples: 4' if name == 'ewc' else ''}}}"


def trainer_for(experiment, **changes) -> tuple[GanTrainer, list]:
    folder = RunFolder(Path(experiment.out))
    accelerator = make_accelerator(folder.path, accumulation=experiment.training.accumulation)
    made = GanTrainer(
        accelerator=accelerator, networks=build_networks(experiment), method=experiment.method,
        options=experiment.training, family=experiment.network,
        seed=experiment.seed, folder=folder, **changes,
    )  # fmt: skip
    return made, open_tasks(experiment, 1)


def images_of(run: GanRun, task: str, after: int) -> torch.Tensor:
    return run.sample(task, 5, seed=1, generator=run.generator(after))


def test_later_tasks_leave_earlier_samples_and_files_bit_identical(tiny):
    first = train_gan(tiny("tasks=[{name: discs, data: 'shapes:discs', limit: 24}]"), "test")
    before, files = images_of(first, "discs", 0), digests(first.folder.path)
    run = train_gan(tiny(), "test")
    assert run.trained == ["discs", "checks"]
    assert torch.equal(images_of(run, "discs", 1), before)
    after = digests(run.folder.path)
    assert {name: after[name] for name in files} == files
    assert not torch.equal(images_of(run, "checks", 1), before)
    grids = [run.folder.sample_grid(run.tasks, after_, 0).read_bytes() for after_ in (0, 1)]
    assert grids[0] == grids[1]


def test_a_task_trained_after_others_sees_the_same_data_and_noise_as_alone(tiny):
    """Random streams come from the seed and the task's name alone."""
    seen = []

    class Watching(GanTrainer):
        def _micro_step(self, task, micro, images, networks, stepping):
            seen.append((task, micro, int(images.sum())))
            return super()._micro_step(task, micro, images, networks, stepping)

    for words, out in [((), "both"), (("tasks=[{name: checks, data: 'shapes:checks', limit: 24}]",), "alone")]:
        trainer, tasks = trainer_for(tiny(*words, out=out))
        trainer.__class__ = Watching
        trainer.run(tasks)
    both, alone = seen[:12], seen[12:]
    assert [step for step in both if step[0] == "checks"] == alone


@pytest.mark.parametrize("stop_at", [1, 3, 8])
def test_a_stopped_run_goes_on_to_the_same_bits(tiny, stop_at):
    whole = train_gan(tiny(out="whole"), "test")
    trainer, tasks = trainer_for(tiny(out="run"))
    steps = 0
    after_step = trainer._after_step

    def stopping(*args):
        nonlocal steps
        steps += 1
        trainer._stop.noted = steps == stop_at
        after_step(*args)

    trainer._after_step = stopping
    with pytest.raises(Stopped):
        trainer.run(tasks)
    run = train_gan(tiny(out="run"), "test")
    assert digests(run.folder.path) == digests(whole.folder.path)
    final = [read_tensors(r.folder.state_files()[-1])[0] for r in (run, whole)]
    assert final[0].keys() == final[1].keys()
    assert all(torch.equal(final[0][key], final[1][key]) for key in final[0])


def test_a_damaged_state_is_passed_over_for_the_one_before(tiny):
    whole = train_gan(tiny(out="whole"), "test")
    trainer, tasks = trainer_for(tiny(out="run"))
    after_step = trainer._after_step

    def failing(*args):
        after_step(*args)
        if trainer.progress.step == 5:
            raise KeyboardInterrupt

    trainer._after_step = failing
    with pytest.raises(KeyboardInterrupt):
        trainer.run(tasks)
    *_, before, last = trainer.folder.state_files()
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match="damaged"):
        run = train_gan(tiny(out="run"), "test")
    assert before.name < last.name
    assert digests(run.folder.path) == digests(whole.folder.path)


def test_the_average_becomes_the_generator_at_the_end_of_a_task(tiny):
    trainer, tasks = trainer_for(tiny("training.ema_decay=0.5"))
    seen = {}
    copy_to_model = Ema.copy_to_model

    def watching(self):
        seen.setdefault("slow", {name: slow.clone() for name, slow in self.state_dict().items()})
        copy_to_model(self)

    Ema.copy_to_model = watching
    try:
        trainer.run(tasks[:1])
    finally:
        Ema.copy_to_model = copy_to_model
    state = trainer.networks[GENERATOR].state_dict()
    assert seen["slow"]
    for name, slow in seen["slow"].items():
        assert torch.equal(state[name], slow)


def test_training_that_touches_frozen_weights_fails_loudly_and_saves_nothing(tiny):
    trainer, tasks = trainer_for(tiny())
    after_step = trainer._after_step

    def vandal(task, *args):
        if task.name == "checks":
            with torch.no_grad():
                next(iter(shared_state(trainer.networks[GENERATOR]).values())).add_(1e-3)
        after_step(task, *args)

    trainer._after_step = vandal
    with pytest.raises(RuntimeError, match="must stay frozen"):
        trainer.run(tasks)
    assert not trainer.folder.task_file(1, "checks").exists()


def watch_optimizers(trainer) -> list[tuple[int, float]]:
    """Filled while training: number of parameters and learning rate of every optimizer that is made."""
    made, original = [], trainer._optimizer

    def noting(role, parameters):
        optimizer = original(role, parameters)
        (group,) = optimizer.param_groups
        made.append((sum(p.numel() for p in group["params"]), group["lr"]))
        return optimizer

    trainer._optimizer = noting
    return made


def test_the_optimizers_see_only_the_new_task(tiny):
    trainer, tasks = trainer_for(tiny())
    made = watch_optimizers(trainer)
    trainer.run(tasks)
    own = {
        role: sum(p.numel() for k, p in task_state(network, "checks").items() if "running" not in k and "num_" not in k)
        for role, network in trainer.networks.items()
    }
    assert [size for size, _ in made[2:]] == list(own.values())


@pytest.mark.parametrize(
    ("method", "rates"),
    [
        ("name: eft", [1e-3, 1e-3, 5e-3, 5e-3]),
        ("name: eft, discriminator: full", [1e-3, 1e-3, 5e-3, 1e-3]),
        ("name: eft, discriminator: full, discriminator_rate: 2", [1e-3, 1e-3, 5e-3, 2e-3]),
        ("name: finetune", [1e-3, 1e-3, 5e-3, 5e-3]),
    ],
)
def test_later_rate_is_for_tasks_after_the_first(tiny, method, rates):
    trainer, tasks = trainer_for(tiny(f"method={{{method}, later_rate: 5}}", "training.learning_rate=1e-3"))
    made = watch_optimizers(trainer)
    trainer.run(tasks)
    assert [rate for _, rate in made] == pytest.approx(rates)


def test_a_pretrained_base_has_the_rates_of_later_tasks_from_the_first_on(tiny):
    base = train_gan(tiny("tasks=[{name: stripes, data: 'shapes:stripes', limit: 24}]", out="base"), "test")
    method = "name: eft, base: pretrained, discriminator: full, discriminator_rate: 2, later_rate: 5"
    words = [f"method={{{method}}}", f"base_weights={base.folder.path}", "training.learning_rate=1e-3"]
    trainer, tasks = trainer_for(tiny(*words, out="pretrained"))
    made = watch_optimizers(trainer)
    trainer.run(tasks)
    assert [rate for _, rate in made] == pytest.approx([5e-3, 2e-3] * 2)


@pytest.mark.parametrize(
    ("decay", "shares"),
    [(0, [1, 1, 1, 1, 1, 1]), (0.5, [1, 1, 1, 1, 2 / 3, 1 / 3]), (1, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])],
)
def test_the_learning_rates_fall_over_the_last_part_of_every_task(tiny, decay, shares):
    trainer, tasks = trainer_for(tiny("method={name: eft, later_rate: 5}", f"training.decay={decay}"))
    micro_step, rates = trainer._micro_step, []

    def noting(*args):
        rates.append({role: optimizer.param_groups[0]["lr"] for role, optimizer in trainer.optimizers.items()})
        return micro_step(*args)

    trainer._micro_step = noting
    trainer.run(tasks)
    first = trainer.options.learning_rate
    for role in trainer.networks:
        wanted = [first * share for share in shares] + [5 * first * share for share in shares]
        assert [each[role] for each in rates] == pytest.approx(wanted)


def test_the_r1_penalty_flattens_the_discriminators_where_the_real_images_are(tiny):
    slopes = {}
    for strength in (0, 100):
        trainer, tasks = trainer_for(tiny(f"training.r1={strength}", "training.steps=48", out=f"r1-{strength}"))
        trainer.run(tasks[:1])
        images = torch.stack([tasks[0].images[i] for i in range(24)])
        (real,) = multiscale(centre_crop(images, 32), [32])
        real.requires_grad_()
        slopes[strength] = gradient_penalty(trainer.networks["discriminator32"](real), real).item()
    assert slopes[100] < 0.7 * slopes[0]


def test_separate_networks_have_no_later_rate(tiny):
    with pytest.raises(UserError, match=r"method.later_rate: separate trains every task as a first one"):
        tiny("method={name: separate, later_rate: 2}")


@pytest.mark.parametrize("accumulation", [1, 2])
def test_an_optimizer_step_takes_as_many_batches_as_asked(tiny, accumulation):
    trainer, tasks = trainer_for(tiny(f"training.accumulation={accumulation}", "training.batch=2"))
    counted = {"batches": 0}
    micro_step, prepare = trainer._micro_step, trainer._prepare
    steps = {}

    def micro(*args):
        counted["batches"] += 1
        return micro_step(*args)

    def watched_prepare(**options):
        for role, optimizer in trainer.optimizers.items():
            optimizer.register_step_post_hook(lambda *_, role=role: steps.update({role: steps.get(role, 0) + 1}))
        return prepare(**options)

    trainer._micro_step, trainer._prepare = micro, watched_prepare
    trainer.run(tasks[:1])
    assert counted["batches"] == 6 * accumulation
    assert steps == {"generator": 6, "discriminator32": 6}


def test_a_task_file_is_little_more_than_its_adapters_and_normalisation(tiny):
    run = train_gan(tiny("network.ngf=8", "network.ndf=8", "training.steps=2"), "test")
    trainer, _ = trainer_for(run.experiment)
    trainer.run(open_tasks(run.experiment, 1))
    tensors = sum(
        t.numel() * t.element_size() for net in trainer.networks.values() for t in task_state(net, "checks").values()
    )
    size = run.folder.task_file(1, "checks").stat().st_size
    assert tensors <= size <= tensors * 1.05 + 8192  # the header of names
    assert len(list(run.folder.path.glob("shared*"))) == 1


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.suits("gan")])
def test_every_method_trains_the_sequence_and_its_cells_can_be_drawn_again(tiny, method):
    run = train_gan(tiny(method_word(method)), "test")
    early = images_of(run, "discs", 0)
    late = images_of(run, "discs", 1)
    assert torch.equal(early, late) == (method in ("eft", "batche", "ccll", "piggyback", "packnet", "separate"))


@pytest.mark.parametrize(
    "word",
    [
        method_word("ewc"),
        *(pytest.param(method_word(name), marks=pytest.mark.slow) for name in OTHERS_WITH_MEMORY),
        RESTART,
        "training.decay=0.8",
        "training.r1=1",
    ],
)
def test_memory_rates_and_lazy_penalties_survive_a_stop_to_the_same_bits(tiny, word):
    words = (word,)
    whole = train_gan(tiny(*words, out="whole"), "test")
    trainer, tasks = trainer_for(tiny(*words, out="run"))
    after_step = trainer._after_step

    def stopping(*args):
        trainer._stop.noted = trainer.progress.total == 9
        after_step(*args)

    trainer._after_step = stopping
    with pytest.raises(Stopped):
        trainer.run(tasks)
    run = train_gan(tiny(*words, out="run"), "test")
    names = [path.name for path in sorted((run.folder.path / "tasks").iterdir())]
    assert [file_digest(run.folder.path / "tasks" / n) for n in names] == [
        file_digest(whole.folder.path / "tasks" / n) for n in names
    ]


@pytest.mark.slow
def test_all_methods_start_from_the_same_first_task(tiny):
    grids = set()
    for method in ("eft", "finetune", "mergan", "ewc", "l2t", "joint"):
        run = train_gan(tiny(method_word(method), "training.steps=3", out=method), "test")
        grids.add(run.folder.sample_grid(run.tasks, 0, 0).read_bytes())
    assert len(grids) == 1


def test_whole_discriminators_stay_out_of_the_task_file(tiny):
    run = train_gan(tiny("method={name: eft, discriminator: full}"), "test")
    tensors, _ = read_tensors(run.folder.task_file(1, "checks"))
    assert {key.split("/")[0] for key in tensors} == {"generator"}
    assert torch.equal(images_of(run, "discs", 0), images_of(run, "discs", 1))


def test_restarting_discriminators_begin_every_later_task_as_the_first_left_them(tiny):
    """Also in a task that is added to a finished run."""
    begun = []

    class Watching(GanTrainer):
        def _train_steps(self, task, images, ema):
            if self.progress.step == 0:
                begun.append({k: t.clone() for k, t in self.networks["discriminator32"].state_dict().items()})
            super()._train_steps(task, images, ema)

    for words in (RESTART,), (RESTART, FURTHER):
        trainer, tasks = trainer_for(tiny(*words))
        trainer.__class__ = Watching
        trainer.run(tasks)
    _, second, third = begun
    first = train_gan(tiny("tasks=[{name: discs, data: 'shapes:discs', limit: 24}]", out="first"), "test")
    left = read_tensors(first.folder.state_files()[-1])[0]
    assert len(second) > 10
    for key in second:
        assert torch.equal(second[key], third[key])
        assert torch.equal(second[key], left[f"network/discriminator32/{key}"])
    last = trainer.networks["discriminator32"].state_dict()
    assert not all(torch.equal(second[key], last[key]) for key in second)


def test_a_task_that_starts_from_the_first_in_all_networks_does_not_depend_on_those_between(tiny):
    word = "method={name: eft, discriminator: restart, init: discs}"
    third = train_gan(tiny(word, FURTHER, out="third"), "test")
    two = "tasks=[{name: discs, data: 'shapes:discs', limit: 24}, {name: stripes, data: 'shapes:stripes', limit: 24}]"
    second = train_gan(tiny(word, two, out="second"), "test")
    files = [third.folder.task_file(2, "stripes"), second.folder.task_file(1, "stripes")]
    late, early = (read_tensors(path)[0] for path in files)
    assert late.keys() == early.keys()
    assert all(torch.equal(late[key], early[key]) for key in late)


def test_a_further_task_leaves_a_finished_run_as_it_was(tiny):
    run = train_gan(tiny(), "test")
    before = digests(run.folder.path)
    longer = train_gan(tiny(FURTHER), "test")
    after = digests(longer.folder.path)
    assert longer.trained == ["discs", "checks", "stripes"]
    assert {name: after[name] for name in before} == before


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(tiny):
    trainer, tasks = trainer_for(tiny("training.learning_rate=1e30", "training.steps=40"))
    with pytest.raises(UserError, match="infinite or NaN"):
        trainer.run(tasks)
    for path in trainer.folder.state_files():
        assert all(t.isfinite().all() for k, t in read_tensors(path)[0].items() if k.startswith("ema"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks.0.data='shapes:blobs'"], "shapes:blobs"),
        (["tasks.0.data=nowhere.lmdb"], "nowhere.lmdb"),
        (["training.batch=25"], "has 24 images"),
        (["tasks.1.name=discs"], "discs"),
        (["tasks.1.name=../x"], "not usable"),
        (["tasks=[]"], "no task"),
        (["network.stages=4"], "stages"),
        (["network.base_size=48"], "base_size"),
        (["adapters={a: 0, b: 0}"], "a=0"),
        (["training.steps=null"], "how long"),
        (["training.mixed_precision=fp8"], "mixed_precision"),
        (["method.name=etf"], "eft"),
        (["method={name: eft, discriminator_rate: 2}"], "discriminator: full or restart"),
    ],
)
def test_bad_experiments_are_refused_before_anything_is_written(tiny, tmp_path, words, message):
    with pytest.raises(UserError) as caught:
        train_gan(tiny(*words), "test")
    assert message in str(caught.value)
    assert not list(tmp_path.glob("run/tasks/*"))
    assert not (tmp_path / "run" / "state").exists()


def test_another_experiment_is_kept_out_of_a_run_folder(tiny):
    train_gan(tiny("training.steps=2"), "test")
    with pytest.raises(UserError, match=r"training\.steps=2"):
        train_gan(tiny("training.steps=3"), "test")


def test_a_second_writer_is_refused(tiny):
    experiment = tiny()
    with RunFolder(Path(experiment.out)).locked(), pytest.raises(UserError, match="another process"):
        train_gan(experiment, "test")


def test_run_facts_name_what_the_figures_depend_on(tiny):
    run = train_gan(tiny("training.steps=2"), "python train_gan.py x=1")
    facts = json.loads(run.folder.facts.read_text())
    assert facts["command"] == "python train_gan.py x=1"
    assert facts["tasks"] == ["discs", "checks"]
    assert {"torch", "eftgan", "python"} <= set(facts["versions"])


def test_a_state_too_many_goes_when_a_finished_run_is_repeated(tiny):
    """As after a kill between writing the last state and removing the one before the last two."""
    run = train_gan(tiny(), "test")
    kept = run.folder.state_files()
    shutil.copy(kept[0], kept[0].with_name("00000001.safetensors"))
    train_gan(tiny(), "test")
    assert run.folder.state_files() == kept


class Readings(TorchDispatchMode):
    """Counts how often the host asks a tensor for its value, which on a GPU means waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*args, **kwargs or {})


def test_steps_between_two_log_lines_read_no_tensor(tiny):
    counts = []
    for steps in (2, 4):
        words = f"training={{batch: 4, steps: {steps}, log_every_steps: 100, save_every_steps: 0}}"
        with Readings() as readings:
            train_gan(tiny(words, out=str(steps)), "test")
        counts.append(readings.count)
    assert counts[0] == counts[1]
