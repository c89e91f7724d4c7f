"""What the terminal says of a run while it is trained, and at its end."""

from eftgan.classifier.kind import train_classifier
from eftgan.gan.kind import train_gan
from eftgan.reports.lines import final_lines, score_lines
from eftgan.scores import Score, append_scores


def test_a_task_and_all_tasks_so_far_are_told(make_run, tmp_path):
    finetune, eft = (make_run(tmp_path / method, method) for method in ("finetune", "eft"))
    assert score_lines(eft, 0) == ["cats: FID 29.0 just learned"]
    assert score_lines(eft, 1) == ["birds: FID 44.1 just learned, 36.5 on average over 2 tasks"]
    assert score_lines(finetune, 1) == ["birds: FID 21.2 just learned, 89.0 on average over 2 tasks"]
    assert final_lines(eft, 3) == ["FID 33.1 on average over 4 tasks (lower is better)"]


def test_accuracies_say_what_was_asked(tmp_path):
    lines = [Score("r", "eft", 0, "a", "a", f"accuracy-{kind}", 0.5, 10) for kind in ("TIL", "CIL")]
    append_scores(tmp_path / "run/scores.jsonl", lines)
    assert final_lines(tmp_path / "run", 0) == [
        "accuracy-CIL (class-incremental) 50.0 % (higher is better)",
        "accuracy-TIL (task-incremental) 50.0 % (higher is better)",
    ]


def test_training_says_scores_after_each_task_and_at_the_end(tiny, tiny_classes, capsys):
    measured = tiny("evaluation={features: random, samples: 4}", "training.steps=1")
    summary = train_gan(measured, "test").summary()
    shown = capsys.readouterr().out
    assert shown.index("discs: FD-random ") < shown.index("task 2 of 2") < shown.index("checks: FD-random ")
    assert "  FD-random " in summary
    train_gan(measured, "test")
    assert "just learned" not in capsys.readouterr().out  # nothing new
    run = train_classifier(tiny_classes("sources.0.take=2", out="classes"), "test")
    assert "shapes-2: accuracy-TIL (task-incremental) " in capsys.readouterr().out
    assert "  accuracy-CIL (class-incremental) " in run.summary()
