"""Frameworks that train what they are given: a compiled module is trained as the original is, and
what they call of it is compiled. Each needs its package."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import windfall

pytestmark = pytest.mark.filterwarnings("ignore")


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))


def _samples() -> Any:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 8, generator=generator), torch.randn(32, 1, generator=generator)
    return torch.utils.data.TensorDataset(x, y)


def _assert_same(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert torch.allclose(value, other.state_dict()[name], atol=1e-5), name


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_compiles_the_steps_of_a_module(package: str) -> None:
    """`training_step` and `validation_step`, each one graph before `self.log`."""
    framework = pytest.importorskip(package)
    logging.getLogger(package).setLevel(logging.ERROR)

    class Model(framework.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = _network()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.mse_loss(self.net(x), y)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            x, y = batch
            self.log("error", (self.net(x) - y).abs().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(model: Any) -> dict[str, float]:
        trainer = framework.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(_samples(), batch_size=4)
        trainer.fit(model, loader, loader)
        return {name: float(value) for name, value in trainer.callback_metrics.items()}

    model = Model()
    original = copy.deepcopy(model)
    compiled = windfall.compile(model)
    assert fit(compiled) == pytest.approx(fit(original), abs=1e-5)
    _assert_same(compiled, original)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 2 and not told.fallbacks
    assert {one.detail.rpartition(" ")[2] for one in told.breaks} == {"log"}


def test_accelerate_prepares_a_compiled_module() -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)

    def train(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(_samples(), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    original, model = _network(), _network()
    compiled = windfall.compile(model)
    train(original)
    train(compiled)
    _assert_same(compiled, original)
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and not told.fallbacks and not told.breaks


def test_trainer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    tokens = torch.randint(0, 32, (16, 12), generator=torch.Generator().manual_seed(0))
    samples = [{"input_ids": one, "labels": one} for one in tokens]

    def train(model: nn.Module) -> float:
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=4, per_device_train_batch_size=4, use_cpu=True,
            report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
            learning_rate=1e-3, optim="sgd",
        )  # fmt: skip
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=samples)
        return float(trainer.train().training_loss)

    torch.manual_seed(0)
    original = transformers.GPT2LMHeadModel(config)
    compiled = windfall.compile(copy.deepcopy(original))
    assert train(compiled) == pytest.approx(train(original), abs=1e-4)
    _assert_same(compiled, original)
    told = windfall.explanation(compiled)
    assert told.graphs and not told.fallbacks


def test_steps_are_found_by_the_base_of_a_module() -> None:
    """As Lightning's, whose base class is known by its name."""

    def log(self: Any, name: str, value: torch.Tensor) -> None:
        self.logged.append((name, float(value)))

    log.__module__ = "lightning.pytorch.core.module"
    base = type(
        "LightningModule",
        (nn.Module,),
        {"__module__": "lightning.pytorch.core.module", "log": log, "test_step": log},
    )

    class Model(base):  # type: ignore[valid-type,misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = _network()
            self.logged: list[Any] = []

        def training_step(self, batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.net(batch).pow(2).mean()
            self.log("loss", loss)
            return loss

    x = torch.randn(4, 8)
    model = Model()
    compiled = windfall.compile(model)
    expected = copy.deepcopy(model).training_step(x)
    for _ in range(2):
        assert torch.allclose(compiled.training_step(x), expected, atol=1e-6)
    assert len(model.logged) == 2 and type(compiled).test_step is log
    assert compiled.training_step.__wrapped__ is Model.training_step
    told = windfall.explanation(compiled)
    assert len(told.graphs) == 1 and len(told.breaks) == 1
    again = copy.deepcopy(compiled)
    again.training_step(x)
    assert len(again.logged) == 3 and len(model.logged) == 2
    assert len(windfall.explanation(again).graphs) == 1
