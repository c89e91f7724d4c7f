"""Configs and command lines that cannot work."""

import pytest

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks=[]"], "no task"),
        (["tasks=discs"], "tasks"),
        (["tasks.0.name=../x"], "not usable"),
        (["tasks.0.name=/etc/x"], "not usable"),
        (["tasks.0.name=dîscs"], "not usable"),
        (["tasks.0.name='a b'"], "not usable"),
        (["tasks.0.name=''"], "not usable"),
        (["tasks.0.name='discs\n'"], "not usable"),
        (["tasks.0.name=.hidden"], "not usable"),
        ([f"tasks.0.name={'x' * 65}"], "not usable"),
        (["tasks.0.name=previous"], "not usable"),
        (["tasks.0.name=real"], "scores of real images carry it"),
        (["tasks.0.name=checks"], "used twice"),
        (["tasks.0.name=Checks"], "task names Checks and checks differ in case only"),
        (["tasks.0.nmae=discs"], "did you mean"),
        (["tasks.2.name=more"], "not a place in a list of 2"),
        (["tasks.0.data='shapes:blobs'"], "blobs"),
        (["tasks.0.data=nowhere.lmdb"], "no LMDB at"),
        (["tasks.0.data='no\\0where'", 'tasks.0.data="no\\0where"'], "NUL"),
        ([f"tasks.0.data={'x/' * 3000}"], "LMDB"),
        (["tasks.0.limit=0"], "limit"),
        (["tasks.0.limit=3"], "has 3 images"),
        (["training.steps=null"], "how long"),
        (["training.steps=-1"], "training.steps"),
        (["training.steps=many"], "training.steps"),
        (["training.steps=1.5"], "training.steps"),
        (["training.batch=17"], "has 16 images"),
        (["training.learning_rate=.nan"], "learning_rate"),
        (["training.learning_rate=.inf"], "learning_rate"),
        (["training.learning_rate=-1"], "learning_rate"),
        (["training.ema_decay=.nan"], "ema_decay"),
        (["adapters.options={strength: .inf}"], "not a number"),
        (["training.mixed_precision=fp8"], "mixed_precision"),
        (["training.betas=[0.5]"], "betas"),
        (["evaluation.samples=1"], "evaluation.samples"),
        (["evaluation.samples=1000000000000"], "evaluation.samples"),
        (["evaluation.features=vgg"], "evaluation.features"),
        (["network.stages=4"], "stages"),
        (["network.base_size=48"], "base_size"),
        (["adapters={a: 0, b: 0}"], "a=0"),
        (["adapters={sizes: {2001-01-01: [1, 1]}}"], "not a plain mapping"),
        (["method.name=etf"], "eft"),
        (["method=5"], "method"),
        (["method.init=discz"], "task checks: method.init 'discz' is unknown there"),
        (["tasks.1.init=checks"], "task checks: init 'checks' is unknown there"),
        (["method.base=pretrained"], "pretrained and base_weights belong together"),
        (["seed=-1"], "seed"),
        (["seed=18446744073709551616"], "seed"),
        (["seed=!!python/object/apply:os.system ['true']"], "not plain YAML"),
        (["seed=[" + "[" * 3000], "not plain YAML"),
        (["seed=" + "9" * 5000], "...: not plain YAML: a number has too many digits\n"),
        (["seed=0x" + "9" * 5000], "digits"),
        (["seed=" + "9" * 4000], "seed"),
        (["seed=2001-99-99"], "month must be in 1..12"),
        (["tasks." + "9" * 5000 + ".name=x"], "not a place in a list of 2"),
        (["tasks.²=x"], "not a place in a list of 2"),
        (["training={steps: 2, steps: 3}"], "line 1 gives the key steps again (first: line 1)"),
        (["log_with=[nothing]"], "log_with"),
        (["=5"], "expected key=value"),
        (["training.steps"], "expected key=value"),
        (["training.steps.x=1"], "has no keys"),
        (["training.steps+=1"], "not a list"),
        (["out=run/\x01"], "not plain YAML"),
        ([f"out={'x' * 300}"], "File name too long"),
        (["--config", "x.yaml", "--resume", "run"], "not allowed with"),
        (["--frobnicate"], "unrecognized"),
    ],
)
def test_a_mistake_in_a_word_is_refused(call, words, message):
    call.train(message, *words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sources=[]", "name at least one"),
        ("sources=shapes", "sources"),
        ("sources.0.name=shapes/0", "shapes/0"),
        ("sources.0.name=shapes/3", "do not divide"),
        ("sources.0.name=../x", "not usable"),
        ("sources.0.data='shapes:99'", "99"),
        ("sources.0.data=nowhere", "nowhere"),
        ("sources.0.data=torchvision:Nothing:here", "Nothing"),
        ("sources.0.take=0", "sources.0.take"),
        ("sources.0.tkae=1", "did you mean"),
        ("limit=1", "has no training images"),
        ("network.name=resnet1", "resnet1"),
        ("network.name=torchvision:nothing", "nothing"),
        ("network.weights=missing.safetensors", "missing.safetensors"),
        ("network.size=0", "network.size"),
        ("adapters={a: 0, b: 0}", "a=0"),
        ("method.name=mergan", "is for a gan, not for a classifier"),
        ("method={name: si, damping: 0}", "damping"),
        ("method.init=nowhere", "method.init 'nowhere' is unknown there"),
        ("method={name: eft, margin: {form: l2, statistics: stored}}", "needs statistics: live"),
        ("training.batch=64", "fewer than one step"),
        ("training.first.epochs=0", "training.first.epochs"),
        ("training.selection=best", "training.selection"),
        ("pixels.mean=[0.5]", "pixels.mean"),
        ("pixels.mean=[0.5, .inf, 0.5]", "not a number"),
        ("sources.0.test_share=1", "test_share"),
        ("sources.0.test_share=0.1", "shapes:4: test_share has no effect, it has test images of its own"),
        ("tasks=[]", "unknown key tasks"),
    ],
)
def test_a_mistake_in_a_word_for_a_classifier_is_refused(call, word, message):
    call.learn(message, word)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"tasks: [", "not plain YAML"),
        (b"- a\n- b\n", "a mapping"),
        (b"5: 6\n", "a mapping"),
        (b"\xff\xfe\x00", "cannot be read as text"),
        (b"seed: !!python/name:os.system\n", "not plain YAML"),
        (b"seed: !mine 5\n", "not plain YAML"),
        (b"seed: \x00\n", "not plain YAML"),
        (LAUGHS.encode(), "alias *a is not allowed"),
        (b"a: &a [*a]\n", "alias *a is not allowed"),
        (b"seed: 1\ntasks: []\nseed: 2\n", "line 3 gives the key seed again (first: line 1); keep one"),
        (b"training:\n  steps: 1\n  'steps': 2\n", "line 3 gives the key steps again (first: line 2)"),
        (b"seed: " + b"1" * 5000, "x.yaml: not plain YAML: a number has too many digits\n"),
        (b"extends: x.yaml\n", "extends itself"),
        (b"extends: missing.yaml\n", "no such config file"),
        (b"extends: [a, b]\n", "no such config file"),
        (b"{}\n", "tasks is missing"),
        (b"tasks: [{name: a, data: 'shapes:discs'}]\nsede: 1\n", "did you mean seed"),
        (b"tasks: [{name: a, data: 'shapes:discs', ../x: 1}]\n", "unknown key"),
    ],
)
def test_a_broken_config_file_is_refused(call, content, message):
    (call.place / "x.yaml").write_bytes(content)
    call.refuses(message, "train_gan.py", "--config", "x.yaml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config", "missing.yaml"], "no such config file"),
        (["--config", "."], "no such config file"),
        (["--config", "x" * 300], "x" * 300),
        (["--resume", "missing"], "no run there to continue"),
        (["--resume"], "expected one argument"),
    ],
)
def test_a_file_that_is_not_there_is_named(call, words, message):
    call.refuses(message, "train_gan.py", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "missing"], "no run there"),
        (["sample", "run", "--task", "dogs"], "no task 'dogs'"),
        (["sample", "run", "--task", "3"], "no task '3'"),
        (["sample", "run", "--task", "../x"], "no task '../x'"),
        (["sample", "run", "--n", "0"], "at least one"),
        (["sample", "run", "--n", "-5"], "at least one"),
        (["sample", "run", "--truncation", "0"], "positive"),
        (["sample", "run", "--after", "dogs"], "no task 'dogs'"),
        (["sample", "run", "--out", "run/config.yaml/x.png"], "cannot write"),
        (["evaluate", "run", "--features", "random", "--fid-samples", "1"], "at least 2"),
        (["evaluate", "run", "--features", "random", "--tasks", "dogs"], "no task 'dogs'"),
        (["evaluate", "run", "--features", "vgg"], "invalid choice"),
        (["export", "run", "--task", "discs", "--out", "x.zip"], "NAME.pt2"),
        (["report", "missing"], "no run folder"),
        (["report", "run", "--out", "x.pdf"], "HTML"),
        (["info", "missing"], "no run there"),
        (["growth", "--model", "resnet1"], "resnet1"),
        (["growth", "--a", "-1"], "a=-1"),
        (["dance"], "invalid choice"),
    ],
)
def test_a_mistake_in_a_command_is_refused(call, run, words, message):
    call.refuses(message, "eftgan", *words)
