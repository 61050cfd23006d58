"""The cases that are whole models: `examples/models.py` under the names of tables.

Enters: nothing. Leaves: cases for steady state, first results and memory. Invariant: what a case
compiles is what a user would: the model for inference, the model with its loss for training;
backward and AdamW's step are called outside, as in any training loop, and are part of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.case import Case, Subject
from benchmarks.programs import Maker
from examples.models import RECIPES, adamw

# Behind a relu, one bit may decide over a gradient: eager does not agree with itself better than so
# when its weights are moved by a bit. (`tests/models` compares in float64 too.)
TOLERANCES = {"resnet-18": 5e-2}

# Name in tables, recipe, batch of a training step.
MODELS = (
    ("BERT, 4 layers", "bert-4", 2),
    ("BERT, 12 layers", "bert-12", 2),
    ("GPT-2, 6 layers", "gpt2-6", 2),
    ("ResNet-18", "resnet-18", 8),
)
BATCHES = (1, 8)  # of inference
QUICK = ("bert-4", "gpt2-6", "resnet-18")

STEADY_GOALS = {"eager": 1.0, "torch.compile": 1.1}
CHECKPOINT_GOALS = {"eager": 0.9, "torch.compile": 1.0}
FIRST_GOALS = {"torch.compile": 1 / 6}
MEMORY_GOALS = {"eager": 1.1}


def model_cases() -> list[Case]:
    """Steady state: inference with small and large batches, and training steps."""
    return [*_inference(), *model_training(), *model_checkpointed()]


def _inference() -> Iterator[Case]:
    for title, recipe, _ in MODELS:
        for batch in BATCHES:
            quick = recipe in QUICK and batch == BATCHES[0]
            make = inference_subject(recipe, batch)
            yield Case(f"{title}, batch {batch}", make, goals=STEADY_GOALS, quick=quick)


def model_training() -> list[Case]:
    """One whole training step of each model."""
    return [_training(title, recipe, batch) for title, recipe, batch in MODELS]


def model_checkpointed() -> list[Case]:
    """The same with checkpoints around layers."""
    case = _training("GPT-2, 6 layers, checkpointed", "gpt2-6 checkpointed", 2)
    return [replace(case, goals=CHECKPOINT_GOALS, quick=False)]


def _training(title: str, recipe: str, batch: int) -> Case:
    return Case(
        f"{title}, batch {batch}",
        training_subject(recipe, batch),
        "training",
        goals=STEADY_GOALS,
        tolerance=TOLERANCES.get(recipe, 1e-3),
        quick=recipe == QUICK[0],
        random=True,
    )


def model_memory() -> list[Case]:
    """The same steps, for what they need at their peak."""
    return [replace(case, goals=MEMORY_GOALS) for case in model_training()]


def model_first_results() -> list[Case]:
    """First results: inference of one sequence or image, and the first training step."""
    small = [case for case in _inference() if case.name.endswith(f"batch {BATCHES[0]}")]
    return [replace(case, goals=FIRST_GOALS, quick=False) for case in (*small, *model_training())]


def inference_subject(recipe: str, batch: int) -> Maker:
    def make() -> Subject:
        made = RECIPES[recipe]()
        return Subject(made.model(), made.inputs(batch))

    return make


def training_subject(recipe: str, batch: int) -> Maker:
    def make() -> Subject:
        made = RECIPES[recipe]()
        objective = made.objective()
        return Subject(objective, made.batch(batch), adamw(objective))

    return make
