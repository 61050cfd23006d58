"""Programs over third-party libraries that train, search and sample as their users do: losses from
labels, whole steps of optimizers, schedulers, acquisition functions, augmentations, metrics.

Enters: nothing. Leaves: rows of `library_programs.PROGRAMS`. A row with `steps=True` is called as
it stands, with gradients on, and keeps what it has learned from one call to the next; each answers
its loss and what the step has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.conformance.library_programs import (
    Made,
    declare_vision_ops,
    images,
    program,
    rows,
    tokens,
)

Step = Callable[..., Any]


def _changed(owner: nn.Module) -> list[torch.Tensor]:
    """What a step may have changed, as it is now."""
    kept = [*owner.parameters(), *owner.buffers()]
    return [one.detach().clone() for one in kept]


# ---------------------------------------------------------------------------- vision transformers


def _timm(label: str, name: str, size: int = 64, **more: Any) -> None:
    def make() -> Made:
        declare_vision_ops()
        import timm

        net = timm.create_model(name, pretrained=False, num_classes=10, **more)
        return net, lambda n: images(n, size)

    make.__name__ = label
    program("timm", trains=True)(make)


_timm("timm_vit", "vit_tiny_patch16_224", img_size=64, depth=2)
_timm("timm_deit", "deit_tiny_distilled_patch16_224", img_size=64, depth=2)
_timm(
    "timm_swin",
    "swin_tiny_patch4_window7_224",
    size=56,
    img_size=56,
    depths=(2, 2),
    embed_dim=24,
    num_heads=(2, 4),
)
_timm("timm_maxvit", "maxvit_rmlp_pico_rw_256", size=64, img_size=64)
_timm("timm_levit", "levit_128s", size=224)
_timm("timm_mobilevit", "mobilevit_xxs")
_timm("timm_mixer", "mixer_s32_224", img_size=64, num_blocks=2)
_timm("timm_xcit", "xcit_nano_12_p16_224", depth=2)
_timm("timm_densenet", "densenet121", growth_rate=8, block_config=(2, 2, 2))
_timm("timm_edgenext", "edgenext_xx_small")
_timm("timm_nfnet", "test_nfnet")
_timm("timm_mambaout", "test_mambaout")
_timm("timm_efficientformer", "efficientformerv2_s0", size=224)
_timm("timm_beit", "beit_base_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=4)
_timm("timm_eva", "eva02_tiny_patch14_224", size=56, img_size=56, depth=2)
_timm("timm_poolformer", "poolformer_s12", layers=(1, 1, 1, 1))
_timm("timm_hrnet", "hrnet_w18_small")
_timm("timm_repvgg", "repvgg_a0")
_timm("timm_cait", "cait_xxs24_224", img_size=64, depth=2)
_timm("timm_davit", "davit_tiny", embed_dims=(24, 48), depths=(1, 1), num_heads=(2, 2))


# ------------------------------------------------------------------------------------ transformers


class _Loss(nn.Module):
    """A model of transformers with its labels: the loss, and what it was made of."""

    def __init__(self, net: nn.Module, names: tuple[str, ...], more: dict[str, Any]) -> None:
        super().__init__()
        self.net, self.names, self.more = net, names, more

    def forward(self, *given: torch.Tensor) -> Any:
        found = self.net(**dict(zip(self.names, given, strict=True)), **self.more)
        return found.loss, found.logits


def _labelled(
    label: str,
    model: str,
    config: str,
    names: tuple[str, ...] = ("input_ids", "labels"),
    given: Callable[[int], tuple[Any, ...]] = lambda n: (*tokens(n), *tokens(n)),
    asked: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    def make() -> Made:
        declare_vision_ops()
        import transformers

        made = getattr(transformers, f"{config}Config")(**more)
        net = getattr(transformers, model)(made)
        return _Loss(net, names, asked or {}), given

    make.__name__ = label
    program("transformers", trains=True)(make)


_SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_FED = {"intermediate_size": 64, "num_key_value_heads": 1}
_LONG = {"max_position_embeddings": 64, **_FED, **_SMALL}
_ROPE = {"rope_theta": 10000.0}


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, **_ROPE, **more}}


def _classes(n: int) -> tuple[torch.Tensor, ...]:
    return *tokens(n), torch.arange(n) % 2


_labelled("llama_loss", "LlamaForCausalLM", "Llama", **_LONG)
_labelled(
    "llama_dynamic_rope",
    "LlamaForCausalLM",
    "Llama",
    **{**_LONG, "max_position_embeddings": 8},
    **_rope("dynamic", factor=2.0),
)
_labelled(
    "llama_yarn",
    "LlamaForCausalLM",
    "Llama",
    **_LONG,
    **_rope("yarn", factor=4.0, original_max_position_embeddings=16),
)
_labelled(
    "phi3_longrope",
    "Phi3ForCausalLM",
    "Phi3",
    **{**_LONG, "original_max_position_embeddings": 8, "pad_token_id": 0},
    **_rope(
        "longrope",
        short_factor=[1.0] * 8,
        long_factor=[2.0] * 8,
        original_max_position_embeddings=8,
    ),
)
_labelled("mistral_window", "MistralForCausalLM", "Mistral", **_LONG, sliding_window=4, head_dim=16)
_labelled("gemma3_loss", "Gemma3ForCausalLM", "Gemma3Text", **_LONG, sliding_window=4, head_dim=16)
_labelled(
    "mixtral_router",
    "MixtralForCausalLM",
    "Mixtral",
    asked={"output_router_logits": True},
    **_LONG,
    num_local_experts=4,
)
_labelled(
    "deepseek_v3",
    "DeepseekV3ForCausalLM",
    "DeepseekV3",
    **{**_LONG, "num_key_value_heads": 2},
    moe_intermediate_size=16,
    n_routed_experts=8,
    num_experts_per_tok=2,
    n_group=2,
    topk_group=1,
    q_lora_rank=8,
    kv_lora_rank=8,
    qk_rope_head_dim=8,
    qk_nope_head_dim=8,
    v_head_dim=8,
    first_k_dense_replace=1,
)
_labelled(
    "t5_loss",
    "T5ForConditionalGeneration",
    "T5",
    vocab_size=64,
    d_model=32,
    d_kv=16,
    d_ff=64,
    num_layers=2,
    num_heads=2,
    decoder_start_token_id=0,
)
_labelled(
    "bart_loss",
    "BartForConditionalGeneration",
    "Bart",
    vocab_size=64,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
)
_labelled("bert_masked", "BertForMaskedLM", "Bert", intermediate_size=64, **_SMALL)
_labelled(
    "bert_classes",
    "BertForSequenceClassification",
    "Bert",
    given=_classes,
    intermediate_size=64,
    **_SMALL,
)
_labelled(
    "vit_classes",
    "ViTForImageClassification",
    "ViT",
    names=("pixel_values", "labels"),
    given=lambda n: (*images(n), torch.arange(n) % 2),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
)
_labelled(
    "segformer_loss",
    "SegformerForSemanticSegmentation",
    "Segformer",
    names=("pixel_values", "labels"),
    given=lambda n: (*images(n), torch.randint(0, 3, (n, 32, 32))),
    num_labels=3,
    hidden_sizes=[8, 16, 16, 32],
    decoder_hidden_size=16,
    depths=[1, 1, 1, 1],
    num_attention_heads=[1, 1, 2, 2],
)
_labelled(
    "whisper_loss",
    "WhisperForConditionalGeneration",
    "Whisper",
    names=("input_features", "labels"),
    given=lambda n: (torch.randn(n, 80, 60), *tokens(n)),
    vocab_size=64,
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_source_positions=30,
    max_target_positions=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)
_labelled(
    "wav2vec2_ctc",
    "Wav2Vec2ForCTC",
    "Wav2Vec2",
    names=("input_values", "labels"),
    given=lambda n: (torch.randn(n, 1200), torch.randint(1, 32, (n, 3))),
    intermediate_size=64,
    **{**_SMALL, "vocab_size": 32},
    conv_dim=(16, 16),
    conv_kernel=(10, 3),
    conv_stride=(5, 2),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
    mask_time_prob=0.0,
    layerdrop=0.0,
    # None is drawn, so that float64 may judge.
    hidden_dropout=0.0,
    activation_dropout=0.0,
    attention_dropout=0.0,
    feat_proj_dropout=0.0,
    final_dropout=0.0,
)


@program("transformers")
def decoded() -> Made:
    """Greedy decoding by hand, with a cache that grows."""
    declare_vision_ops()
    import transformers

    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_LONG)).eval()

    def f(ids: torch.Tensor) -> torch.Tensor:
        cache = transformers.DynamicCache(config=net.config)
        token, found = ids, [ids]
        for _ in range(4):
            logits = net(input_ids=token, past_key_values=cache, use_cache=True).logits
            token = logits[:, -1:].argmax(-1)
            found.append(token)
        return torch.cat(found, 1)

    return f, tokens


@program("transformers")
def generated() -> Made:
    """`generate` with a static cache, compiled as a whole."""
    declare_vision_ops()
    import transformers

    net = transformers.LlamaForCausalLM(transformers.LlamaConfig(pad_token_id=0, **_LONG)).eval()

    def f(ids: torch.Tensor) -> Any:
        return net.generate(
            ids,
            max_new_tokens=4,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
            eos_token_id=None,
        )

    return f, tokens


# --------------------------------------------------------------------------------------- diffusion


def _diffusion_schedule(name: str, label: str) -> None:
    def make() -> Made:
        declare_vision_ops()
        import diffusers

        schedule = getattr(diffusers, name)()
        schedule.set_timesteps(4)

        def f(x: torch.Tensor) -> torch.Tensor:
            if hasattr(schedule, "_step_index"):  # what `set_timesteps` does, in NumPy otherwise
                schedule._step_index = None
            for t in schedule.timesteps:
                x = schedule.step((x * 0.5).tanh(), t, x).prev_sample
            return x

        return f, rows(3, 4, 4)

    make.__name__ = label
    program("diffusers")(make)


_diffusion_schedule("DDPMScheduler", "ddpm")
_diffusion_schedule("DDIMScheduler", "ddim")
_diffusion_schedule("EulerDiscreteScheduler", "euler")
_diffusion_schedule("FlowMatchEulerDiscreteScheduler", "flow_match")


@program("diffusers", trains=True)
def conditioned() -> Made:
    declare_vision_ops()
    from diffusers import UNet2DConditionModel

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = UNet2DConditionModel(
                sample_size=8,
                layers_per_block=1,
                block_out_channels=(16, 32),
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                cross_attention_dim=16,
                norm_num_groups=8,
                attention_head_dim=8,
            )

        def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            steps = torch.arange(x.shape[0])
            return self.net(x, steps, encoder_hidden_states=words).sample

    return Denoiser(), lambda n: (torch.randn(n, 4, 8, 8), torch.randn(n, 5, 16))


@program("diffusers", trains=True)
def autoencoder() -> Made:
    declare_vision_ops()
    from diffusers import AutoencoderKL

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = AutoencoderKL(
                block_out_channels=(8, 16),
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                norm_num_groups=4,
            )

        def forward(self, x: torch.Tensor) -> Any:
            found = self.net.encode(x).latent_dist
            return self.net.decode(found.sample()).sample, found.kl()

    return Net(), lambda n: images(n, 16)


@program("diffusers", trains=True)
def diffusion_transformer() -> Made:
    declare_vision_ops()
    from diffusers import DiTTransformer2DModel

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = DiTTransformer2DModel(
                num_attention_heads=2,
                attention_head_dim=8,
                in_channels=4,
                out_channels=4,
                num_layers=2,
                sample_size=8,
                num_embeds_ada_norm=10,
                norm_num_groups=4,
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            there = torch.arange(x.shape[0]) % 5
            return self.net(x, timestep=there, class_labels=there).sample

    return Net(), rows(4, 8, 8)


# ------------------------------------------------------------------------------------------ graphs


def _layer(name: str, *sizes: Any, **more: Any) -> None:
    def make() -> Made:
        import torch_geometric.nn as layers

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = getattr(layers, name)(*sizes, **more)

            def forward(self, x: torch.Tensor, edges: torch.Tensor, of: torch.Tensor) -> Any:
                return layers.global_mean_pool(self.layer(x, edges).relu(), of)

        def given(n: int) -> tuple[torch.Tensor, ...]:
            there = torch.arange(4 * n)
            return torch.randn(4 * n, 8), torch.stack([there, (there + 1) % (4 * n)]), there // 4

        return Net(), given

    make.__name__ = f"layer_{name}"
    program("torch_geometric", trains=True)(make)


_layer("GATv2Conv", 8, 8, heads=2)
_layer("TransformerConv", 8, 8, heads=2)
_layer("ChebConv", 8, 8, K=3)
_layer("EdgeConv", nn.Sequential(nn.Linear(16, 8), nn.ReLU()))
_layer("GraphConv", 8, 8)
_layer("ARMAConv", 8, 8)


@program("torch_geometric", trains=True)
def pooled_graph() -> Made:
    from torch_geometric.nn import GCNConv, TopKPooling, global_max_pool

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.pool = GCNConv(8, 16), TopKPooling(16, ratio=0.5)
            self.second = GCNConv(16, 4)

        def forward(self, x: torch.Tensor, edges: torch.Tensor, of: torch.Tensor) -> Any:
            x = self.first(x, edges).relu()
            x, edges, _, of, *_ = self.pool(x, edges, batch=of)
            return global_max_pool(self.second(x, edges), of)

    def given(n: int) -> tuple[torch.Tensor, ...]:
        there = torch.arange(4 * n)
        return torch.randn(4 * n, 8), torch.stack([there, (there + 1) % (4 * n)]), there // 4

    return Net(), given


# ----------------------------------------------------------------------------------- probabilities


@program("gpytorch", steps=True)
def exact_process() -> Made:
    """A step of training of an exact Gaussian process."""
    import gpytorch

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    x = torch.linspace(0, 1, 12)
    y = (x * 6).sin()
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood).train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def f(weight: torch.Tensor) -> Any:
        optimizer.zero_grad()
        found = -loss(model(x), y) * weight.mean()
        found.backward()
        optimizer.step()
        return found.detach(), _changed(model)

    return f, lambda n: (torch.ones(n),)


@program("botorch")
def improvement() -> Made:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    torch.manual_seed(3)
    x = torch.rand(8, 2, dtype=torch.float64)
    y = x.sum(-1, keepdim=True).sin()
    found = LogExpectedImprovement(SingleTaskGP(x, y).eval(), best_f=y.max())
    return lambda x: found(x), lambda n: (torch.rand(n, 1, 2, dtype=torch.float64),)


@program("botorch")
def sampled_improvement() -> Made:
    from botorch.acquisition import qExpectedImprovement
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    torch.manual_seed(3)
    x = torch.rand(8, 2, dtype=torch.float64)
    y = x.sum(-1, keepdim=True).sin()
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=1)
    found = qExpectedImprovement(SingleTaskGP(x, y).eval(), best_f=y.max(), sampler=sampler)
    return lambda x: found(x), lambda n: (torch.rand(n, 2, 2, dtype=torch.float64),)


@program("pyro-ppl", steps=True)
def variational() -> Made:
    """A step of stochastic variational inference."""
    import pyro
    import pyro.distributions as dist

    pyro.clear_param_store()

    def model(data: torch.Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(data)):
            pyro.sample("seen", dist.Normal(mean, 1.0), obs=data)

    def guide(data: torch.Tensor) -> None:
        place = pyro.param("place", torch.tensor(0.5))
        scale = pyro.param("scale", torch.tensor(0.5), constraint=dist.constraints.positive)
        pyro.sample("mean", dist.Normal(place, scale))

    loss = pyro.infer.Trace_ELBO()

    def f(data: torch.Tensor) -> Any:
        found = loss.differentiable_loss(model, guide, data)
        return found

    return f, lambda n: (torch.randn(n),)


# ------------------------------------------------------------------------------- steps of training


@program("lightning", steps=True)
def manual_lightning() -> Made:
    declare_vision_ops()
    import lightning

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                # A bias before a norm has no gradient but rounding, which AdamW makes large.
                nn.Linear(8, 16, bias=False),
                nn.BatchNorm1d(16),
                nn.Linear(16, 2),
            )
            self.save_hyperparameters()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        loss = net.training_step((x, y), 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), _changed(net)

    return f, lambda n: (torch.randn(n, 8), torch.arange(n) % 2)


@program("peft", steps=True)
def low_rank_step() -> Made:
    declare_vision_ops()
    import transformers
    from peft import LoraConfig, get_peft_model

    config = transformers.GPT2Config(
        vocab_size=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        n_positions=32,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    net = get_peft_model(
        transformers.GPT2LMHeadModel(config),
        LoraConfig(target_modules=["c_attn"], r=2, lora_dropout=0.1, fan_in_fan_out=True),
    )
    optimizer = torch.optim.AdamW([one for one in net.parameters() if one.requires_grad], lr=1e-3)

    def f(ids: torch.Tensor) -> Any:
        loss = net(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach(), [
            one.detach().clone() for one in net.parameters() if one.requires_grad
        ]

    return f, tokens


@program("stable-baselines3", steps=True)
def clipped_policy() -> Made:
    """One update of PPO over a mini-batch."""
    import gymnasium
    from stable_baselines3.common.policies import ActorCriticPolicy

    box = gymnasium.spaces.Box(-1.0, 1.0, (4,))
    policy = ActorCriticPolicy(box, gymnasium.spaces.Discrete(3), lambda _: 1e-3)

    def f(seen: torch.Tensor, acted: torch.Tensor, old: torch.Tensor, gain: torch.Tensor) -> Any:
        values, told, entropy = policy.evaluate_actions(seen, acted)
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        ratio = torch.exp(told - old)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        loss = -torch.min(gain * ratio, gain * clipped).mean()
        loss = loss + 0.5 * nn.functional.mse_loss(gain, values.flatten()) - 0.01 * entropy.mean()
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        policy.optimizer.step()
        return loss.detach(), _changed(policy)

    return f, lambda n: (torch.randn(n, 4), torch.arange(n) % 3, -torch.rand(n), torch.randn(n))


@program("stable-baselines3", steps=True)
def value_policy() -> Made:
    """One update of DQN, and its slow copy's."""
    import gymnasium
    from stable_baselines3.common.utils import polyak_update
    from stable_baselines3.dqn.policies import DQNPolicy

    box = gymnasium.spaces.Box(-1.0, 1.0, (4,))
    policy = DQNPolicy(box, gymnasium.spaces.Discrete(3), lambda _: 1e-3)

    def f(seen: torch.Tensor, then: torch.Tensor, acted: torch.Tensor, gain: torch.Tensor) -> Any:
        with torch.no_grad():
            following = policy.q_net_target(then).max(dim=1)[0].reshape(-1, 1)
            wanted = gain + 0.99 * following
        found = torch.gather(policy.q_net(seen), dim=1, index=acted.long())
        loss = nn.functional.smooth_l1_loss(found, wanted)
        policy.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10)
        policy.optimizer.step()
        polyak_update(policy.q_net.parameters(), policy.q_net_target.parameters(), 0.1)
        return loss.detach(), _changed(policy)

    return f, lambda n: (
        torch.randn(n, 4),
        torch.randn(n, 4),
        (torch.arange(n) % 3)[:, None],
        torch.randn(n, 1),
    )


@program("torchrl", steps=True)
def clipped_loss() -> Made:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    actor = ProbabilisticActor(
        TensorDictModule(MLP(4, 3, num_cells=[8]), in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
        return_log_prob=True,
    )
    value = ValueOperator(MLP(4, 1, num_cells=[8]), in_keys=["observation"])
    loss = ClipPPOLoss(actor, value)

    def f(seen: torch.Tensor, told: torch.Tensor, gain: torch.Tensor) -> Any:
        n = seen.shape[0]
        given = TensorDict(
            {
                "observation": seen,
                "action": nn.functional.one_hot(torch.arange(n) % 3, 3),
                "action_log_prob": told,
                "advantage": gain,
                "value_target": gain * 0.5,
            },
            batch_size=[n],
        )
        found = loss(given)
        total = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
        return total, torch.autograd.grad(total, list(loss.parameters()), allow_unused=True)

    return f, lambda n: (torch.randn(n, 4), -torch.rand(n), torch.randn(n, 1))


@program("torchrl", steps=True)
def double_values() -> Made:
    from tensordict import TensorDict
    from torchrl.modules import MLP, QValueActor
    from torchrl.objectives import DQNLoss

    loss = DQNLoss(
        QValueActor(MLP(4, 3, num_cells=[8]), in_keys=["observation"], action_space="one_hot"),
        action_space="one_hot",
        delay_value=True,
    )
    loss.make_value_estimator(gamma=0.9)

    def f(seen: torch.Tensor, then: torch.Tensor, gain: torch.Tensor) -> Any:
        n = seen.shape[0]
        over = torch.zeros(n, 1, dtype=torch.bool)
        following = {"observation": then, "reward": gain, "done": over, "terminated": over}
        action = nn.functional.one_hot(torch.arange(n) % 3, 3)
        given = TensorDict(
            {"observation": seen, "action": action, "next": following}, batch_size=[n]
        )
        found = loss(given)["loss"]
        return found, torch.autograd.grad(found, [*loss.parameters()], allow_unused=True)

    return f, lambda n: (torch.randn(n, 4), torch.randn(n, 4), torch.randn(n, 1))


@program("tensordict", trains=True)
def chained_records() -> Made:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = TensorDictSequential(
                TensorDictModule(nn.Linear(4, 8), in_keys=["a"], out_keys=["hidden"]),
                TensorDictModule(nn.Linear(8, 2), in_keys=["hidden"], out_keys=[("b", "c")]),
            )

        def forward(self, x: torch.Tensor) -> Any:
            found = self.net(TensorDict({"a": x}, batch_size=[x.shape[0]]))
            both = torch.stack([found, found.clone()], 1)
            return both["b", "c"], found.select("hidden").to_dict()

    return Net(), rows(4)


@program("x-transformers", trains=True)
def autoregressive() -> Made:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    stack = Decoder(dim=32, depth=2, heads=2, attn_qk_norm=True, use_scalenorm=True)
    net = TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=stack, num_memory_tokens=2)
    return AutoregressiveWrapper(net), tokens


# --------------------------------------------------------------------- augmentations and metrics


@program("kornia")
def augmentations() -> Made:
    import kornia.augmentation as augmentation

    change = augmentation.AugmentationSequential(
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        augmentation.RandomAffine(10.0, p=1.0),
    )
    return lambda x: change(x), images


@program("kornia")
def homography() -> Made:
    import kornia

    def f(x: torch.Tensor) -> torch.Tensor:
        here = torch.tensor([[0.0, 0.0], [31.0, 0.0], [31.0, 31.0], [0.0, 31.0]])
        points = here.expand(x.shape[0], 4, 2)
        there = kornia.geometry.get_perspective_transform(points, points * 0.9 + 1)
        return kornia.geometry.warp_perspective(x, there, (32, 32))

    return f, images


@program("torchmetrics", steps=True)
def collected() -> Made:
    declare_vision_ops()
    from torchmetrics import MeanMetric, MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

    metrics = MetricCollection([MulticlassAccuracy(5), MulticlassF1Score(5)])
    mean = MeanMetric()

    def f(logits: torch.Tensor, labels: torch.Tensor) -> Any:
        mean.update(nn.functional.cross_entropy(logits, labels))
        metrics.update(logits, labels)
        return mean.compute(), metrics.compute()

    return f, lambda n: (torch.randn(n, 5), torch.arange(n) % 5)


@program("torchmetrics", steps=True)
def forwarded() -> Made:
    declare_vision_ops()
    from torchmetrics import MeanSquaredError
    from torchmetrics.classification import BinaryAUROC

    error, curve = MeanSquaredError(), BinaryAUROC(thresholds=5)

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return error(x, y.float()), curve(x.sigmoid(), y), error.compute(), curve.compute()

    return f, lambda n: (torch.randn(n), torch.arange(n) % 2)


@program("monai", trains=True)
def volume_transformer() -> Made:
    declare_vision_ops()
    from monai.networks.nets import UNETR

    net = UNETR(
        1, 2, img_size=16, feature_size=4, hidden_size=16, mlp_dim=32, num_heads=2, spatial_dims=2
    )
    return net, rows(1, 16, 16)


@program("monai")
def windows() -> Made:
    declare_vision_ops()
    from monai.inferers import sliding_window_inference

    net = nn.Conv2d(1, 2, 3, padding=1)
    return lambda x: sliding_window_inference(x, (8, 8), 4, net, overlap=0.25), rows(1, 12, 12)


@program("torchvision")
def boxes() -> Made:
    declare_vision_ops()
    import torchvision.ops

    def f(x: torch.Tensor) -> Any:
        corners = torch.cat([x, x + 1 + x.abs()], -1)
        near = torchvision.ops.box_iou(corners, corners)
        better = torchvision.ops.generalized_box_iou(corners, corners)
        turned = torchvision.ops.box_convert(corners, "xyxy", "cxcywh")
        return near, better, turned, torchvision.ops.complete_box_iou_loss(corners, corners + 0.1)

    return f, rows(2)


@program("torchvision", trains=True)
def pyramid() -> Made:
    declare_vision_ops()
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    net = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    return net, lambda n: images(n, 64)


@program("torchvision")
def drawn() -> Made:
    """Random augmentations of torchvision."""
    declare_vision_ops()
    from torchvision.transforms import v2

    change = v2.Compose(
        [v2.RandomHorizontalFlip(0.5), v2.RandomErasing(1.0), v2.GaussianBlur(3), v2.RandomCrop(24)]
    )
    return lambda x: change(x), images


@program("einops", trains=True)
def packed() -> Made:
    from einops import pack, rearrange, unpack
    from einops.layers.torch import EinMix

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = EinMix("b n c -> b n d", weight_shape="c d", bias_shape="d", c=4, d=4)

        def forward(self, x: torch.Tensor) -> Any:
            cells = rearrange(x, "b (h w) c -> b h w c", h=2)
            both, how = pack([cells, x], "b * c")
            return unpack(self.mix(both), how, "b * c")

    return Net(), rows(6, 4)
