"""Programs over third-party libraries, one function each, as their users write them.

Enters: nothing. Leaves: `PROGRAMS`: the library, a name, and what makes a module or function and
its arguments for a batch size. Libraries are imported when a program is made: which are there is
asked of the machine (`pip install -e '.[dev-libraries]'`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Arguments = tuple[Any, ...]
Made = tuple[Callable[..., Any], Callable[[int], Arguments]]


@dataclass(frozen=True)
class LibraryProgram:
    """One program of a library; `trains`: gradients of its parameters are compared too; `steps`:
    it is a step of training, and called as it stands."""

    library: str
    name: str
    make: Callable[[], Made]
    trains: bool = False
    draws_numpy: bool = False  # its random numbers are NumPy's, which are seeded as well
    steps: bool = False

    def __str__(self) -> str:
        return f"{self.library} {self.name}"

    @property
    def ways(self) -> tuple[str, ...]:
        """How it is run: what a row is."""
        return ("step",) if self.steps else ("inference", "training")[: 1 + self.trains]


PROGRAMS: list[LibraryProgram] = []


def program(
    library: str, *, trains: bool = False, draws_numpy: bool = False, steps: bool = False
) -> Any:
    """A row."""

    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        PROGRAMS.append(LibraryProgram(library, make.__name__, make, trains, draws_numpy, steps))
        return make

    return register


def images(batch: int, size: int = 32) -> Arguments:
    return (torch.rand(batch, 3, size, size),)


def rows(*sizes: int) -> Callable[[int], Arguments]:
    return lambda batch: (torch.randn(batch, *sizes),)


def tokens(batch: int) -> Arguments:
    return (torch.randint(0, 64, (batch, 16)),)


def declare_vision_ops() -> None:
    """torchvision from the registry is built for CUDA, and does not load its ops beside a torch for
    the CPU. It wants to be told of two when it is imported; none is called."""
    if not _LIBRARIES and not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)


_LIBRARIES: list[Any] = []


# -------------------------------------------------------------------------------------- einops


@program("einops")
def patches() -> Made:
    from einops import rearrange, reduce, repeat

    def f(x: torch.Tensor) -> torch.Tensor:
        tiles = rearrange(x, "b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4)
        mean = reduce(tiles, "b n d -> b d", "mean")
        return mean + repeat(x.mean((1, 2, 3)), "b -> b d", d=48)

    return f, images


@program("einops", trains=True)
def layers() -> Made:
    from einops.layers.torch import Rearrange, Reduce

    net = nn.Sequential(
        Rearrange("b c h w -> b (h w) c"), nn.Linear(3, 8), Reduce("b n d -> b d", "max")
    )
    return net, images


@program("einops")
def contraction() -> Made:
    from einops import einsum

    weight = torch.randn(8, 16)
    return lambda x: einsum(x, weight, "b n d, h d -> b n h"), rows(5, 16)


# ---------------------------------------------------------------------------------- transformers


def _vit(name: str, **more: Any) -> Made:
    declare_vision_ops()
    import vit_pytorch

    cls = getattr(vit_pytorch, name)
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 10, "dim": 32}
    return cls(**sizes, depth=2, heads=2, mlp_dim=64, **more), images


@program("vit-pytorch", trains=True)
def vit() -> Made:
    return _vit("ViT")


@program("vit-pytorch", trains=True)
def simple_vit() -> Made:
    return _vit("SimpleViT")


@program("x-transformers", trains=True)
def decoder() -> Made:
    from x_transformers import Decoder, TransformerWrapper

    stack = Decoder(dim=32, depth=2, heads=2)
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=stack), tokens


@program("x-transformers", trains=True)
def rotary_encoder() -> Made:
    from x_transformers import Encoder, TransformerWrapper

    stack = Encoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, ff_glu=True)
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=stack), tokens


@program("x-transformers", trains=True)
def relative_encoder() -> Made:
    from x_transformers import ContinuousTransformerWrapper, Encoder

    stack = Encoder(dim=32, depth=2, heads=2, rel_pos_bias=True, use_rmsnorm=True)
    net = ContinuousTransformerWrapper(dim_in=8, dim_out=4, max_seq_len=32, attn_layers=stack)
    return net, rows(16, 8)


@program("mambapy", trains=True)
def mamba() -> Made:
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=16, n_layers=2)), rows(8, 16)


# ---------------------------------------------------------------------------------------- vision


def _timm(name: str) -> None:
    def make() -> Made:
        declare_vision_ops()
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10), lambda n: images(n, 64)

    make.__name__ = name
    program("timm", trains=True)(make)


for _name in (
    "resnet18",
    "efficientnet_b0",
    "mobilenetv3_small_050",
    "convnext_atto",
    "regnetx_002",
    "ghostnet_050",
):
    _timm(_name)


@program("kornia")
def blur() -> Made:
    import kornia

    def f(x: torch.Tensor) -> torch.Tensor:
        smooth = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        return smooth + kornia.color.rgb_to_grayscale(x)

    return f, images


@program("kornia")
def rotation() -> Made:
    import kornia

    def f(x: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
        return kornia.geometry.transform.rotate(x, angle)

    return f, lambda batch: (torch.rand(batch, 3, 16, 16), torch.rand(batch) * 90)


@program("kornia")
def edges() -> Made:
    import kornia

    return lambda x: kornia.filters.sobel(kornia.color.rgb_to_hsv(x)), images


@program("kornia")
def similarity() -> Made:
    import kornia

    return lambda x: kornia.losses.ssim_loss(x, x * 0.9, 5), images


# --------------------------------------------------------------------------------- quantisation


@program("vector-quantize-pytorch")
def codebook() -> Made:
    from vector_quantize_pytorch import VectorQuantize

    return VectorQuantize(dim=16, codebook_size=32), rows(10, 16)


@program("vector-quantize-pytorch", trains=False)
def finite_scalars() -> Made:
    from vector_quantize_pytorch import FSQ

    return FSQ(levels=[4, 4, 4]), rows(10, 3)


# ------------------------------------------------------------------------------------- equations


@program("torchdiffeq")
def runge_kutta() -> Made:
    from torchdiffeq import odeint

    net = nn.Linear(4, 4)
    times = torch.linspace(0, 1, 5)
    return lambda y: odeint(lambda t, y: net(y).tanh(), y, times, method="rk4"), rows(4)


@program("torchdiffeq")
def adaptive() -> Made:
    from torchdiffeq import odeint

    net = nn.Linear(4, 4)
    times = torch.linspace(0, 1, 3)
    return lambda y: odeint(lambda t, y: net(y).tanh(), y, times), rows(4)


@program("torchsde", draws_numpy=True)
def diffusion() -> Made:
    import torchsde

    class Equation(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return -y

        def g(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return 0.1 * torch.ones_like(y)

    equation, times = Equation(), torch.linspace(0, 1, 3)
    return lambda y: torchsde.sdeint(equation, y, times, dt=0.25), rows(2)


# --------------------------------------------------------------------------------- probabilities


@program("pyro-ppl")
def pyro_density() -> Made:
    import pyro.distributions as dist

    return lambda x: dist.Normal(x, 1.0).to_event(1).log_prob(x * 2), rows(3)


@program("pyro-ppl")
def pyro_delta() -> Made:
    import pyro.distributions as dist

    def f(x: torch.Tensor) -> torch.Tensor:
        mixture = dist.MaskedMixture(x > 0, dist.Normal(x, 1.0), dist.Laplace(x, 1.0))
        return mixture.log_prob(x + 1)

    return f, rows(3)


@program("gpytorch")
def kernel() -> Made:
    import gpytorch

    covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    return lambda x: covariance(x).to_dense(), rows(2)


@program("linear_operator")
def solve() -> Made:
    from linear_operator import to_linear_operator

    def f(x: torch.Tensor) -> torch.Tensor:
        matrix = x @ x.mT + torch.eye(x.shape[-2])
        return to_linear_operator(matrix).matmul(x)

    return f, rows(4, 3)


@program("stable-baselines3")
def gaussian_policy() -> Made:
    from stable_baselines3.common.distributions import DiagGaussianDistribution

    policy = DiagGaussianDistribution(3)

    def f(mean: torch.Tensor) -> Any:
        made = policy.proba_distribution(mean, torch.zeros(3))
        return made.log_prob(mean + 1), made.entropy(), made.sample()

    return f, rows(3)


@program("stable-baselines3")
def categorical_policy() -> Made:
    from stable_baselines3.common.distributions import CategoricalDistribution

    policy = CategoricalDistribution(4)

    def f(logits: torch.Tensor) -> Any:
        made = policy.proba_distribution(logits)
        return made.log_prob(made.mode()), made.entropy()

    return f, rows(4)


# -------------------------------------------------------------------------------------- the rest


@program("torchmetrics")
def accuracy() -> Made:
    declare_vision_ops()
    from torchmetrics.functional import accuracy as measured

    def f(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return measured(logits, labels, task="multiclass", num_classes=5, validate_args=False)

    return f, lambda batch: (torch.randn(batch, 5), torch.randint(0, 5, (batch,)))


@program("torchmetrics")
def regression() -> Made:
    declare_vision_ops()
    from torchmetrics.functional import mean_squared_error, r2_score

    def f(x: torch.Tensor) -> torch.Tensor:
        return mean_squared_error(x[:, 0], x[:, 1]) + r2_score(x[:, 0], x[:, 1])

    return f, rows(2)


@program("tensordict")
def records() -> Made:
    from tensordict import TensorDict

    def f(x: torch.Tensor) -> torch.Tensor:
        made = TensorDict({"a": x, "b": x + 1}, batch_size=[x.shape[0]])
        return made["a"] + made["b"] * 2

    return f, rows(4)


@program("diffusers")
def noise() -> Made:
    declare_vision_ops()
    from diffusers import DDIMScheduler

    schedule = DDIMScheduler()
    schedule.set_timesteps(10)
    steps = torch.tensor([3])
    return lambda x, e: schedule.add_noise(x, e, steps), lambda batch: (
        torch.randn(batch, 3, 4, 4),
        torch.randn(batch, 3, 4, 4),
    )


@program("diffusers", trains=True)
def denoiser() -> Made:
    declare_vision_ops()
    from diffusers import UNet2DModel

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = UNet2DModel(
                sample_size=16,
                layers_per_block=1,
                block_out_channels=(32, 32),
                down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
                norm_num_groups=8,
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x, torch.tensor([3])).sample

    return Denoiser(), lambda batch: images(batch, 16)


@program("peft", trains=True)
def low_rank() -> Made:
    declare_vision_ops()
    from peft import LoraConfig, get_peft_model

    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    return get_peft_model(net, LoraConfig(target_modules=["0", "2"], r=2)), rows(8)
