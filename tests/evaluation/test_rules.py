"""Rules of task inference against values computed by hand."""

import dataclasses
import math

import pytest
import torch

from eftgan.errors import UserError
from eftgan.evaluation.rules import AUTO, RULES, Said, rule_named
from eftgan.evaluation.rules.calibrated import fit_temperature
from eftgan.evaluation.rules.confidence import entropy
from eftgan.evaluation.rules.discriminant import shrinkage


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fitted(rule, classes: int = 3, seed: int = 0) -> tuple[Said, torch.Tensor]:
    """What a task says of 200 training images, beside what it keeps of them; and their labels."""
    labels = torch.arange(200) % classes
    features = 3 * drawn(classes, 5, seed=seed)[labels] + drawn(200, 5, seed=seed + 1) * torch.tensor([1, 2, 3, 1, 0.5])
    logits = 2 * torch.nn.functional.one_hot(labels, classes) + 2 * drawn(200, classes, seed=seed + 2)
    common = features[:, :4] + 0.1 * drawn(200, 4, seed=seed + 3)
    statistics = torch.cat([common, drawn(200, 2, seed=seed + 4)], 1)
    own = Said(logits, features, common, statistics=statistics, textures=statistics[:, [0, 1, 4, 5]])
    return dataclasses.replace(own, kept=rule.fit(own, labels)), labels


def test_entropy_by_hand():
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [50.0, -50.0]])
    expected = [math.log(2), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), 0.0]
    assert torch.allclose(entropy(logits), torch.tensor(expected), atol=1e-6)


def test_least_entropy_or_largest_logit_names_the_task():
    unsure_but_large = torch.tensor([[9.0, 9.0], [0.0, 4.0]])
    sure_but_small = torch.tensor([[1.0, -5.0, -5.0], [0.1, 0.0, 0.0]])
    said = [Said(unsure_but_large), Said(sure_but_small)]
    assert rule_named(AUTO).scores(said).argmax(0).tolist() == [1, 0]
    assert rule_named(AUTO, joined=True).scores(said).argmax(0).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("max-softmax", [math.log(0.75), math.log(0.5)]),
        ("max-logit", [math.log(3.0), 2.0]),
        ("energy", [math.log(4.0), 2.0 + math.log(2.0)]),
        ("margin", [math.log(3.0), 0.0]),
    ],
)
def test_rules_of_logits_by_hand(name, expected):
    said = Said(torch.tensor([[math.log(3.0), 0.0], [2.0, 2.0]]))
    assert torch.allclose(rule_named(name).score(said), torch.tensor(expected), atol=1e-6)
    assert rule_named(name).keeps == ()


@pytest.mark.parametrize("name", [*RULES, "z-energy", "energy+density", "entropy+relative+common"])
def test_the_surest_task_is_the_one_that_is_inferred_and_rules_keep_what_they_say(name):
    rule = rule_named(name)
    said = [fitted(rule, classes, seed)[0] for seed, classes in enumerate((2, 3, 4))]
    assert all(set(each.kept) == set(rule.kept_by(0)) for each in said)
    sure = rule.certainties(said)
    believed = rule.scores(said).argmax(0)
    assert torch.equal(sure.gather(0, believed[None])[0], sure.amax(0))
    assert bool(((sure >= 0) & (sure <= 1)).all())


def test_a_task_that_knows_nothing_is_as_sure_as_one_class_of_all_it_has():
    even, certain = Said(torch.zeros(1, 4)), Said(torch.tensor([[50.0, 0.0]]))
    assert rule_named("entropy").certainties([even, certain]).flatten().tolist() == pytest.approx([0.25, 1.0])
    assert rule_named("max-logit").certainties([even, even]).flatten().tolist() == pytest.approx([1 / 8, 1 / 8])


def test_the_temperature_makes_up_for_logits_that_are_too_large():
    true = 2 * drawn(20_000, 4)
    labels = torch.multinomial(true.softmax(1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    assert float(fit_temperature(true, labels)) == pytest.approx(1.0, abs=0.05)
    assert float(fit_temperature(7 * true, labels)) == pytest.approx(7 * float(fit_temperature(true, labels)), rel=1e-4)


def test_density_is_the_mixture_of_the_classes_with_one_shrunk_covariance():
    rule = rule_named("density")
    said, labels = fitted(rule)
    assert said.features is not None
    features = said.features.double()
    means = torch.stack([features[labels == label].mean(0) for label in range(3)])
    apart = features - means[labels]
    covariance = apart.T @ apart / 200
    covariance = 0.9 * covariance + 0.1 * covariance.diagonal().mean() * torch.eye(5)
    away = features[:, None] - means[None]
    squares = torch.einsum("ncf,fg,ncg->nc", away, torch.linalg.inv(covariance), away)
    assert torch.allclose(rule.score(said).double(), (-squares / 2).logsumexp(1), rtol=1e-4, atol=1e-4)
    assert sum(tensor.numel() for tensor in said.kept.values()) == 3 * 5 + 5 * 6 / 2


def test_relative_density_is_less_that_of_one_gaussian_for_the_whole_task():
    rule = rule_named("relative")
    said, labels = fitted(rule)
    assert said.features is not None
    features = said.features.double()

    def log_density(means: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        apart = features - means[of]
        covariance = apart.T @ apart / 200
        precision = torch.linalg.inv(0.5 * covariance + 0.5 * covariance.diagonal().mean() * torch.eye(5))
        away = features[:, None] - means[None]
        return (-torch.einsum("ncf,fg,ncg->nc", away, precision, away) / 2).logsumexp(1)

    means = torch.stack([features[labels == label].mean(0) for label in range(3)])
    expected = log_density(means, labels) - log_density(features.mean(0, keepdim=True), torch.zeros_like(labels))
    assert torch.allclose(rule.score(said).double(), expected, rtol=1e-4, atol=1e-4)


def test_later_tasks_keep_means_in_the_first_tasks_space_and_use_its_covariance():
    rule = rule_named("common")
    first, _ = fitted(rule)
    precision = first.kept["common/precision"]
    labels = torch.arange(50) % 2
    own = Said(drawn(50, 2), common=drawn(50, 4, seed=9), kept={"common/precision": precision})
    kept = rule.fit(own, labels)
    assert set(kept) == {"common/means"} == set(rule.kept_by(1))
    assert own.common is not None
    assert torch.allclose(kept["common/means"][1], own.common[labels == 1].mean(0), atol=1e-6)
    said = Said(own.logits, common=own.common, kept={**kept, "common/precision": precision})
    factor = torch.zeros(4, 4)
    factor[tuple(torch.tril_indices(4, 4))] = precision
    away = (own.common[:, None] - kept["common/means"][None]) @ factor
    assert torch.allclose(rule.score(said), (-away.square().sum(2) / 2).logsumexp(1), rtol=1e-4, atol=1e-4)


def test_the_discriminant_has_the_covariance_of_all_tasks_so_far_which_each_hands_on():
    rule = rule_named("lda")
    first, first_labels = fitted(rule)
    labels = torch.arange(90) % 2
    own = Said(drawn(90, 2), statistics=2 * drawn(90, 6, seed=9), kept=first.kept)
    kept = rule.fit(own, labels)
    assert set(kept) == {"lda/means", "lda/covariance", "lda/images"} == set(rule.kept_by(1))
    assert rule.added_by(0) == rule.kept_by(0)
    assert rule.added_by(1) == ("lda/means",)
    assert kept["lda/images"] == 200 + 90

    apart = []
    for said, its_labels in ((first, first_labels), (own, labels)):
        means = torch.stack([said.statistics[its_labels == label].mean(0) for label in its_labels.unique()])
        apart.append((said.statistics - means[its_labels]).double())
    everything = torch.cat(apart)
    covariance = everything.T @ everything / 290
    share = shrinkage(6, 290)
    shrunk = (1 - share) * covariance + share * covariance.diagonal().mean() * torch.eye(6)
    away = (own.statistics[:, None] - means[None]).double()  # the second task's
    squares = torch.einsum("ncf,fg,ncg->nc", away, torch.linalg.inv(shrunk), away)
    score = rule.score(dataclasses.replace(own, kept=kept)).double()
    assert torch.allclose(score, (-squares / 2).logsumexp(1), rtol=1e-4, atol=1e-3)


def test_a_covariance_of_few_images_is_shrunk_to_equal_variances():
    assert shrinkage(600, 22_500) == 1e-4
    assert shrinkage(600, 600) == pytest.approx(0.1)
    assert shrinkage(600, 60) == 1.0


def test_the_joint_discriminant_names_the_class_that_network_and_discriminant_agree_on():
    kept = {
        "lda/means": torch.tensor([[0.0, 0.0], [2.0, 0.0]]),
        "lda/covariance": torch.tensor([1.0, 0.0, 1.0]),  # the identity
        "lda/images": torch.tensor(1000.0),
    }
    said = Said(torch.tensor([[1.0, 0.0]]), statistics=torch.tensor([[2.0, 0.0]]), kept=kept)
    rule, logs = rule_named("lda-joint"), torch.tensor([1.0, 0.0]).log_softmax(0)
    expected = torch.tensor([[float(logs[0]) - 2.0, float(logs[1])]])
    assert torch.allclose(rule.class_scores(said), expected, atol=1e-6)
    assert torch.allclose(rule.score(said), expected[:, 1], atol=1e-6)
    assert torch.equal(rule_named("energy+lda-joint").class_scores(said), rule.class_scores(said))


def test_textures_are_judged_as_statistics_are_by_numbers_of_their_own():
    said, _ = fitted(rule_named("lda+texture"))
    alone = dataclasses.replace(said, statistics=said.textures, kept={})
    kept = {name.replace("texture/", "lda/"): each for name, each in said.kept.items() if name.startswith("texture/")}
    assert {each.shape for each in kept.values()} == {(3, 4), (4 * 5 // 2,), ()}
    for rule in ("lda", "lda-joint"):
        expected = rule_named(rule).score(dataclasses.replace(alone, kept=kept))
        assert torch.equal(rule_named(rule.replace("lda", "texture")).score(said), expected)
    assert not torch.equal(rule_named("texture").score(said), rule_named("lda").score(said))


def test_the_joint_rule_names_the_class_that_both_networks_agree_on():
    precision = torch.tensor([1.0, 0.0, 1.0])  # the identity
    kept = {"common/means": torch.tensor([[0.0, 0.0], [2.0, 0.0]]), "common/precision": precision}
    said = Said(torch.tensor([[1.0, 0.0]]), common=torch.tensor([[2.0, 0.0]]), kept=kept)
    rule, logs = rule_named("joint"), torch.tensor([1.0, 0.0]).log_softmax(0)
    expected = torch.tensor([[float(logs[0]) - 2.0, float(logs[1])]])  # the first class is 2 away: d^2 / 2 = 2
    assert torch.allclose(rule.class_scores(said), expected, atol=1e-6)
    assert torch.allclose(rule.score(said), expected[:, 1], atol=1e-6)
    assert torch.equal(rule_named("energy+joint").class_scores(said), rule.class_scores(said))
    assert torch.equal(rule_named("energy+common").class_scores(said), said.logits)


def test_scores_that_tasks_have_in_common_are_added_as_they_are():
    rule = rule_named("margin+common")
    said, _ = fitted(rule)
    assert "common/scale" not in said.kept
    assert torch.allclose(rule.score(said), rule_named("z-margin").score(said) + rule_named("common").score(said))


def test_a_sum_of_rules_is_that_of_scores_standardised_by_the_tasks_own_training_images():
    rule = rule_named("energy+margin")
    said, _ = fitted(rule)
    parts = [rule_named(name).score(said) for name in ("energy", "margin")]
    expected = sum((part - part.mean()) / part.std() for part in parts)
    assert torch.allclose(rule.score(said), expected, atol=1e-4)


def test_an_unknown_rule_is_refused_with_those_that_there_are():
    with pytest.raises(UserError, match=r"no rule 'entropi'; there are auto, entropy, .*entropy\+lda-joint"):
        rule_named("entropi")
    with pytest.raises(UserError, match="no rule ''"):
        rule_named("energy+")
