"""More programs over third-party libraries: models, losses and what trains them.

Enters: nothing. Leaves: rows of `library_programs.PROGRAMS`. Small sizes, random weights: what is
asked is how a library's Python is followed, and whether the answer is eager's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.conformance.library_programs import (
    Arguments,
    Made,
    declare_vision_ops,
    images,
    program,
    rows,
    tokens,
)

# ----------------------------------------------------------------------------------- frameworks


@program("lightning", trains=True)
def lightning_module() -> Made:
    declare_vision_ops()
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.training_step((x, x[:, :2]), 0)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)

    return Net(), rows(8)


@program("accelerate", trains=True)
def prepared() -> Made:
    declare_vision_ops()
    from accelerate import Accelerator

    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
    return Accelerator(cpu=True).prepare(net), rows(8)


@program("torchrl", trains=True)
def actor() -> Made:
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP

    class Actor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            net = MLP(in_features=4, out_features=2, num_cells=[16, 16])
            self.policy = TensorDictModule(net, in_keys=["observation"], out_keys=["action"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.policy(observation=x)

    return Actor(), rows(4)


@program("torchrl")
def advantages() -> Made:
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate

    def f(value: torch.Tensor, following: torch.Tensor, reward: torch.Tensor) -> Any:
        done = torch.zeros_like(reward, dtype=torch.bool)
        return vec_generalized_advantage_estimate(
            0.99, 0.95, value, following, reward, done, terminated=done
        )

    return f, lambda n: tuple(torch.randn(n, 6, 1) for _ in range(3))


@program("torchrl")
def bounded_normal() -> Made:
    from torchrl.modules import TanhNormal

    def f(mean: torch.Tensor) -> torch.Tensor:
        made = TanhNormal(mean, torch.ones_like(mean), low=-1.0, high=1.0)
        return made.log_prob(made.deterministic_sample * 0.9)

    return f, rows(3)


# ---------------------------------------------------------------------------------- probabilities


@program("botorch")
def test_function() -> Made:
    from botorch.test_functions import Hartmann
    from botorch.utils.transforms import normalize, unnormalize

    problem = Hartmann(dim=6)

    def f(x: torch.Tensor) -> torch.Tensor:
        bounds = problem.bounds.to(x)
        return problem(unnormalize(normalize(x, bounds), bounds))

    return f, lambda n: (torch.rand(n, 6, dtype=torch.float64),)


@program("botorch")
def posterior() -> Made:
    from botorch.models import SingleTaskGP

    torch.manual_seed(3)
    x = torch.rand(8, 2, dtype=torch.float64)
    model = SingleTaskGP(x, x.sum(-1, keepdim=True).sin()).eval()

    def f(x: torch.Tensor) -> Any:
        found = model.posterior(x)
        return found.mean, found.variance

    return f, lambda n: (torch.rand(n, 2, dtype=torch.float64),)


@program("gpytorch", trains=True)
def likelihood() -> Made:
    import gpytorch

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mean(x) + self.covariance(x).to_dense().sum(-1)

    return Loss(), rows(2)


@program("nflows", trains=True)
def flow() -> Made:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
    from nflows.transforms.base import CompositeTransform
    from nflows.transforms.permutations import ReversePermutation

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            steps = [ReversePermutation(4), MaskedAffineAutoregressiveTransform(4, 16)]
            self.flow = Flow(CompositeTransform(steps), StandardNormal([4]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(x)

    return Density(), rows(4)


@program("normflows", trains=True)
def coupling() -> Made:
    import normflows

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            steps = []
            for _ in range(2):
                net = normflows.nets.MLP([1, 16, 2], init_zeros=True)
                steps += [normflows.flows.AffineCouplingBlock(net), normflows.flows.Permute(2)]
            base = normflows.distributions.DiagGaussian(2, trainable=False)
            self.flow = normflows.NormalizingFlow(base, steps)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.flow.forward_kld(x)

    return Density(), rows(2)


# ----------------------------------------------------------------------------------------- vision


@program("torchvision", trains=True)
def vision_resnet18() -> Made:
    declare_vision_ops()
    import torchvision

    return torchvision.models.resnet18(num_classes=10), images


@program("torchvision", trains=True)
def vision_mobilenet() -> Made:
    declare_vision_ops()
    import torchvision

    return torchvision.models.mobilenet_v3_small(num_classes=10, dropout=0.0), images


@program("torchvision")
def augmented() -> Made:
    declare_vision_ops()
    from torchvision.transforms.v2 import functional

    def f(x: torch.Tensor) -> torch.Tensor:
        small = functional.resize(x, [16, 16], antialias=True)
        return functional.normalize(functional.hflip(small), [0.5] * 3, [0.25] * 3)

    return f, images


@program("monai", trains=True)
def volume_unet() -> Made:
    declare_vision_ops()
    from monai.networks.nets import UNet

    net = UNet(2, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    return net, rows(1, 16, 16)


@program("monai")
def dice() -> Made:
    declare_vision_ops()
    from monai.losses import DiceLoss

    loss = DiceLoss(sigmoid=True)
    return loss, lambda n: (torch.randn(n, 2, 8, 8), torch.randint(0, 2, (n, 2, 8, 8)).float())


@program("segmentation-models-pytorch", trains=True)
def segmented() -> Made:
    declare_vision_ops()
    import segmentation_models_pytorch

    net = segmentation_models_pytorch.Unet(
        "resnet18", encoder_weights=None, decoder_channels=(32, 16, 8, 8, 4), classes=2
    )
    return net, lambda n: images(n, 64)


@program("segmentation-models-pytorch")
def jaccard() -> Made:
    declare_vision_ops()
    from segmentation_models_pytorch.losses import JaccardLoss

    loss = JaccardLoss("multilabel")
    return loss, lambda n: (torch.randn(n, 2, 8, 8), torch.randint(0, 2, (n, 2, 8, 8)).float())


@program("open_clip", trains=True)
def clip() -> Made:
    declare_vision_ops()
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    vision = CLIPVisionCfg(layers=2, width=32, head_width=16, patch_size=8, image_size=32)
    text = CLIPTextCfg(context_length=16, vocab_size=64, width=32, heads=2, layers=2)
    return CLIP(16, vision, text), lambda n: (*images(n), *tokens(n))


@program("pytorch-msssim")
def structure() -> Made:
    from pytorch_msssim import ssim

    return lambda x: ssim(x, x * 0.9, data_range=1.0, win_size=5), images


@program("fvcore")
def focal() -> Made:
    from fvcore.nn import giou_loss, sigmoid_focal_loss

    def f(x: torch.Tensor) -> torch.Tensor:
        corners = torch.cat([x, x + 1], -1)
        found = giou_loss(corners, corners + 0.25, reduction="sum")
        return found + sigmoid_focal_loss(x, (x > 0).float(), reduction="mean")

    return f, rows(2)


@program("denoising-diffusion-pytorch", trains=True)
def diffusion_unet() -> Made:
    declare_vision_ops()
    from denoising_diffusion_pytorch import Unet

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x, torch.arange(x.shape[0]))

    return Net(), lambda n: images(n, 16)


@program("siren-pytorch", trains=True)
def siren() -> Made:
    from siren_pytorch import SirenNet

    return SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=3), rows(2)


@program("lightly")
def contrast() -> Made:
    declare_vision_ops()
    from lightly.loss import NTXentLoss

    loss = NTXentLoss()
    return loss, lambda n: (torch.randn(n, 8), torch.randn(n, 8))


@program("pytorch-metric-learning")
def triplets() -> Made:
    from pytorch_metric_learning.losses import ContrastiveLoss

    loss = ContrastiveLoss()
    return loss, lambda n: (torch.randn(4 * n, 8), torch.arange(4 * n) % 3)


# ------------------------------------------------------------------------------ text, time, graphs


def _transformer(name: str, model: str, **more: Any) -> None:
    def make() -> Made:
        declare_vision_ops()
        import transformers

        config = getattr(transformers, f"{model}Config")(**more)
        net = getattr(transformers, f"{model}Model")(config)

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, ids: torch.Tensor) -> torch.Tensor:
                given = {"decoder_input_ids": ids} if config.is_encoder_decoder else {}
                return self.net(input_ids=ids, **given).last_hidden_state

        return Net(), tokens

    make.__name__ = name
    program("transformers", trains=True)(make)


_SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_transformer("bert", "Bert", intermediate_size=64, **_SMALL)
_transformer("gpt2", "GPT2", vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=32)
_transformer("llama", "Llama", intermediate_size=64, num_key_value_heads=1, **_SMALL)
_transformer("t5", "T5", vocab_size=64, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
_transformer("mixtral", "Mixtral", intermediate_size=64, num_key_value_heads=1, **_SMALL)


@program("sentence-transformers", trains=True)
def sentence_pooling() -> Made:
    declare_vision_ops()
    from sentence_transformers.models import Dense, Normalize, Pooling

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(64, 16)
            self.parts = nn.ModuleList([Pooling(16, "mean"), Dense(16, 8), Normalize()])

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            features = {
                "token_embeddings": self.embedding(ids),
                "attention_mask": (ids > 3).long(),
            }
            for part in self.parts:
                features = part(features)
            return features["sentence_embedding"]

    return Sentences(), tokens


@program("local-attention", trains=True)
def local() -> Made:
    from local_attention import LocalTransformer

    net = LocalTransformer(
        num_tokens=64, dim=32, depth=2, heads=2, max_seq_len=16, local_attn_window_size=4
    )
    return net, tokens


@program("performer-pytorch", trains=True)
def performer() -> Made:
    from performer_pytorch import Performer

    return Performer(dim=32, depth=2, heads=2, dim_head=16), rows(16, 32)


@program("rotary-embedding-torch")
def rotary() -> Made:
    from rotary_embedding_torch import RotaryEmbedding

    turn = RotaryEmbedding(dim=8)
    return lambda q: turn.rotate_queries_or_keys(q), rows(2, 16, 16)


@program("entmax")
def sparse_attention() -> Made:
    from entmax import entmax15, sparsemax

    return lambda x: entmax15(x, dim=-1) + sparsemax(x, dim=-1), rows(8)


def _graph(batch: int) -> Arguments:
    nodes = 4 * batch
    there = torch.arange(nodes)
    return torch.randn(nodes, 8), torch.stack([there, (there + 1) % nodes])


def _convolution(name: str, **more: Any) -> None:
    def make() -> Made:
        from torch_geometric.nn import models

        return getattr(models, name)(8, 16, num_layers=2, out_channels=4, **more), _graph

    make.__name__ = f"graph_{name}"
    program("torch_geometric", trains=True)(make)


for _name in ("GCN", "GraphSAGE", "GAT", "GIN"):
    _convolution(_name)


@program("pytorch-forecasting", trains=True)
def gated() -> Made:
    from pytorch_forecasting.models.temporal_fusion_transformer.sub_modules import (
        GatedResidualNetwork,
    )

    return GatedResidualNetwork(8, 16, 4), rows(8)


@program("pytorch-forecasting")
def quantiles() -> Made:
    from pytorch_forecasting.metrics import QuantileLoss

    loss = QuantileLoss()
    return lambda x, y: loss.loss(x, y), lambda n: (torch.randn(n, 5, 7), torch.randn(n, 5))


@program("asteroid-filterbanks")
def filterbank() -> Made:
    from asteroid_filterbanks import STFTFB, Encoder

    encode = Encoder(STFTFB(n_filters=32, kernel_size=32, stride=16))
    return lambda x: encode(x), rows(1, 128)


@program("julius")
def lowpass() -> Made:
    import julius

    return lambda x: julius.lowpass_filter(x, 0.1), rows(1, 256)


@program("snntorch", trains=True)
def spikes() -> Made:
    import snntorch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 16)
            self.neuron = snntorch.Leaky(beta=0.9)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            memory = self.neuron.init_leaky()
            kept = []
            for _ in range(4):
                _, memory = self.neuron(self.first(x), memory)
                kept.append(memory)
            return torch.stack(kept)

    return Net(), rows(8)


@program("torchao")
def int8_weights() -> Made:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    quantize_(net, Int8WeightOnlyConfig())
    return net, rows(32)


@program("ema-pytorch")
def averaged() -> Made:
    from ema_pytorch import EMA

    average = EMA(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)), beta=0.9)
    return lambda x: average(x), rows(8)
