"""Every distribution of `torch.distributions`, method by method, and every registered divergence.

    python -m tests.conformance.distributions [Normal Beta ...] [--only sample kl ...] [--show]

A case builds its distribution inside of the compiled function, of tensors that are its arguments,
and asks it one thing. Compared with eager are the answer, gradients with respect to the parameters
where the answer has some, the state of the random generator afterwards, and the exception where
eager raises one. Told is also *how* it ran: in one graph (no break, nothing in eager), or why not.
`close` are answers within `TIGHT`, or at most `FARTHER` times as far from float64's as eager's.
Sums and logarithms of vectors round otherwise than eager's. (Of what is drawn float64 says nothing:
there it is `TOLERANCE`.)
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributions as d
from torch.distributions import kl
from torch.utils import _pytree as pytree

import windfall

TIGHT = {"rtol": 1e-5, "atol": 1e-6}
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
FARTHER = 4.0
Parameters = dict[str, Any]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def _real(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=_generator())


def _positive(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, generator=_generator()) + 0.5


def _unit(*sizes: int) -> torch.Tensor:
    return torch.rand(sizes, generator=_generator()) * 0.8 + 0.1


def _simplex(*sizes: int) -> torch.Tensor:
    return _real(*sizes).softmax(-1)


def _matrix(*sizes: int) -> torch.Tensor:
    """Positive definite ones."""
    factor = _real(*sizes, sizes[-1])
    return factor @ factor.mT + torch.eye(sizes[-1])


def _lower(*sizes: int) -> torch.Tensor:
    return torch.linalg.cholesky(_matrix(*sizes))


def _affine(validate_args: Any = None, **given: Any) -> d.Distribution:
    """A distribution behind two transforms."""
    base = d.Normal(given["loc"], given["scale"], validate_args=validate_args)
    moves = [d.AffineTransform(given["loc"], given["scale"]), d.SigmoidTransform()]
    return d.TransformedDistribution(base, moves, validate_args=validate_args)


def _exponentiated(validate_args: Any = None, **given: Any) -> d.Distribution:
    base = d.Normal(given["loc"], given["scale"], validate_args=validate_args)
    return d.TransformedDistribution(base, [d.ExpTransform()], validate_args=validate_args)


def _independent(validate_args: Any = None, **given: Any) -> d.Distribution:
    base = d.Normal(given["loc"], given["scale"], validate_args=validate_args)
    return d.Independent(base, 1, validate_args=validate_args)


def _mixture(validate_args: Any = None, **given: Any) -> d.Distribution:
    parts = d.Normal(given["loc"], given["scale"], validate_args=validate_args)
    mixing = d.Categorical(given["probs"], validate_args=validate_args)
    return d.MixtureSameFamily(mixing, parts, validate_args=validate_args)


# One row for each way to build a distribution: what is called, and what with.
ROWS: tuple[tuple[str, Callable[..., d.Distribution], Callable[[], Parameters]], ...] = (
    ("Bernoulli", d.Bernoulli, lambda: {"probs": _unit(3)}),
    ("Bernoulli logits", d.Bernoulli, lambda: {"logits": _real(2, 3)}),
    ("Beta", d.Beta, lambda: {"concentration1": _positive(2, 3), "concentration0": _positive(3)}),
    ("Binomial", d.Binomial, lambda: {"total_count": torch.tensor(4.0), "probs": _unit(3)}),
    ("Binomial logits", d.Binomial, lambda: {"total_count": 5, "logits": _real(3)}),
    ("Categorical", d.Categorical, lambda: {"probs": _simplex(2, 4)}),
    ("Categorical logits", d.Categorical, lambda: {"logits": _real(2, 4)}),
    ("Cauchy", d.Cauchy, lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("Chi2", d.Chi2, lambda: {"df": _positive(3)}),
    ("ContinuousBernoulli", d.ContinuousBernoulli, lambda: {"probs": _unit(3)}),
    ("ContinuousBernoulli logits", d.ContinuousBernoulli, lambda: {"logits": _real(3)}),
    ("Dirichlet", d.Dirichlet, lambda: {"concentration": _positive(2, 3)}),
    ("Exponential", d.Exponential, lambda: {"rate": _positive(3)}),
    ("FisherSnedecor", d.FisherSnedecor, lambda: {"df1": _positive(3), "df2": _positive(3) + 4}),
    ("Gamma", d.Gamma, lambda: {"concentration": _positive(3), "rate": _positive(2, 3)}),
    ("GeneralizedPareto", d.GeneralizedPareto,
     lambda: {"loc": _real(3), "scale": _positive(3), "concentration": _positive(3) * 0.2}),
    ("Geometric", d.Geometric, lambda: {"probs": _unit(3)}),
    ("Geometric logits", d.Geometric, lambda: {"logits": _real(3)}),
    ("Gumbel", d.Gumbel, lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("HalfCauchy", d.HalfCauchy, lambda: {"scale": _positive(3)}),
    ("HalfNormal", d.HalfNormal, lambda: {"scale": _positive(3)}),
    ("Independent", _independent, lambda: {"loc": _real(2, 3), "scale": _positive(2, 3)}),
    ("InverseGamma", d.InverseGamma,
     lambda: {"concentration": _positive(3) + 2, "rate": _positive(3)}),
    ("Kumaraswamy", d.Kumaraswamy,
     lambda: {"concentration1": _positive(3), "concentration0": _positive(3)}),
    ("LKJCholesky", d.LKJCholesky, lambda: {"dim": 3, "concentration": _positive(2)}),
    ("Laplace", d.Laplace, lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("LogNormal", d.LogNormal, lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("LogisticNormal", d.LogisticNormal, lambda: {"loc": _real(2, 3), "scale": _positive(2, 3)}),
    ("LowRankMultivariateNormal", d.LowRankMultivariateNormal,
     lambda: {"loc": _real(2, 3), "cov_factor": _real(3, 2), "cov_diag": _positive(3)}),
    ("MixtureSameFamily", _mixture,
     lambda: {"probs": _simplex(2, 3), "loc": _real(2, 3), "scale": _positive(2, 3)}),
    ("Multinomial", d.Multinomial, lambda: {"total_count": 4, "probs": _simplex(2, 3)}),
    ("Multinomial logits", d.Multinomial, lambda: {"total_count": 4, "logits": _real(2, 3)}),
    ("MultivariateNormal", d.MultivariateNormal,
     lambda: {"loc": _real(2, 3), "covariance_matrix": _matrix(3)}),
    ("MultivariateNormal precision", d.MultivariateNormal,
     lambda: {"loc": _real(3), "precision_matrix": _matrix(3)}),
    ("MultivariateNormal tril", d.MultivariateNormal,
     lambda: {"loc": _real(2, 3), "scale_tril": _lower(3)}),
    ("NegativeBinomial", d.NegativeBinomial,
     lambda: {"total_count": _positive(3) * 3, "probs": _unit(3)}),
    ("NegativeBinomial logits", d.NegativeBinomial,
     lambda: {"total_count": _positive(3) * 3, "logits": _real(3)}),
    ("Normal", d.Normal, lambda: {"loc": _real(2, 3), "scale": _positive(3)}),
    ("Normal number", d.Normal, lambda: {"loc": _real(2, 3), "scale": 1.0}),
    ("OneHotCategorical", d.OneHotCategorical, lambda: {"probs": _simplex(2, 3)}),
    ("OneHotCategorical logits", d.OneHotCategorical, lambda: {"logits": _real(2, 3)}),
    ("OneHotCategoricalStraightThrough", d.OneHotCategoricalStraightThrough,
     lambda: {"probs": _simplex(2, 3)}),
    ("Pareto", d.Pareto, lambda: {"scale": _positive(3), "alpha": _positive(3) + 2}),
    ("Poisson", d.Poisson, lambda: {"rate": _positive(3) * 3}),
    ("RelaxedBernoulli", d.RelaxedBernoulli,
     lambda: {"temperature": torch.tensor(0.7), "probs": _unit(3)}),
    ("RelaxedOneHotCategorical", d.RelaxedOneHotCategorical,
     lambda: {"temperature": torch.tensor(0.7), "probs": _simplex(2, 3)}),
    ("StudentT", d.StudentT,
     lambda: {"df": _positive(3) + 3, "loc": _real(3), "scale": _positive(3)}),
    ("TransformedDistribution", _exponentiated, lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("TransformedDistribution affine", _affine,
     lambda: {"loc": _real(3), "scale": _positive(3)}),
    ("Uniform", d.Uniform, lambda: {"low": _real(3), "high": _real(3) + 2}),
    ("VonMises", d.VonMises, lambda: {"loc": _real(3), "concentration": _positive(3)}),
    ("Weibull", d.Weibull, lambda: {"scale": _positive(3), "concentration": _positive(3)}),
    ("Wishart", d.Wishart, lambda: {"df": torch.tensor(5.0), "covariance_matrix": _matrix(3)}),
)  # fmt: skip

# Distributions without parameters of their own: what stands before the comma is one of the above.
ABSTRACT = (d.Distribution, d.ExponentialFamily)


def _value_of(name: str, make: Callable[..., d.Distribution], parameters: Parameters) -> Any:
    """Something in the support, drawn with a seed of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return make(**parameters).sample((2,)).detach()


Question = Callable[[Any, Any], Any]
METHODS: dict[str, Question] = {
    "sample": lambda made, value: made.sample(),
    "sample of a shape": lambda made, value: made.sample((2, 3)),
    "rsample": lambda made, value: made.rsample((2,)),
    "log_prob": lambda made, value: made.log_prob(value),
    "entropy": lambda made, value: made.entropy(),
    "cdf": lambda made, value: made.cdf(value),
    "icdf": lambda made, value: made.icdf(made.cdf(value)),
    "mean": lambda made, value: made.mean,
    "variance": lambda made, value: made.variance,
    "stddev": lambda made, value: made.stddev,
    "mode": lambda made, value: made.mode,
    "perplexity": lambda made, value: made.perplexity(),
    "expand": lambda made, value: made.expand((5, *made.batch_shape)).mean,
    "support": lambda made, value: made.support.check(value),
    "enumerate_support": lambda made, value: made.enumerate_support(),
}


@dataclass(frozen=True)
class Case:
    """One question to one distribution, or the divergence of two."""

    name: str
    method: str
    validate: bool | None
    function: Callable[..., Any] = field(compare=False, repr=False)
    arguments: Callable[[], tuple[Any, ...]] = field(compare=False, repr=False)

    def __str__(self) -> str:
        how = {None: "", True: " validated", False: " unchecked"}[self.validate]
        return f"{self.name} {self.method}{how}"


@dataclass
class Outcome:
    """What became of it."""

    equal: str = "bits"  # or "close", "raises" (as eager does), or what differs
    graphs: int = 0
    breaks: tuple[str, ...] = ()
    in_eager: dict[str, int] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.equal in ("bits", "close", "raises")

    @property
    def is_one_graph(self) -> bool:
        return not self.breaks and not self.in_eager and self.graphs <= 1


def _asking(make: Callable[..., Any], ask: Question, validate: bool | None) -> Callable[..., Any]:
    def function(parameters: Parameters, value: Any) -> Any:
        return ask(make(**parameters, validate_args=validate), value)

    return function


def _cases_of_methods(names: tuple[str, ...]) -> Iterator[Case]:
    for name, make, parameters in ROWS:
        if names and name.split()[0] not in names:
            continue
        for method, ask in METHODS.items():
            for validate in (None, False) if method in ("log_prob", "cdf") else (None,):
                arguments = _arguments(name, make, parameters)
                yield Case(name, method, validate, _asking(make, ask, validate), arguments)


def _arguments(name: str, make: Any, parameters: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: (parameters(), _value_of(name, make, parameters()))


def _diverging(one: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def function(first: Parameters, second: Parameters) -> Any:
        return d.kl_divergence(one(**first), other(**second))

    return function


def _cases_of_pairs(names: tuple[str, ...]) -> Iterator[Case]:
    """One for each pair for which torch has a formula, of the first row of each class."""
    rows: dict[str, Any] = {}
    for name, make, parameters in ROWS:
        rows.setdefault(name.split()[0], (make, parameters))
    for left, right in kl._KL_REGISTRY:
        one, other = left.__name__, right.__name__
        if one not in rows or other not in rows or (names and not {one, other} & {*names}):
            continue
        (make, first), (remake, second) = rows[one], rows[other]
        arguments = _pair_of(first, second)
        yield Case(f"{one} | {other}", "kl", None, _diverging(make, remake), arguments)


def _pair_of(first: Any, second: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: (first(), second())


def cases(names: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> Iterator[Case]:
    """All of them, or those of some distributions, or some methods."""
    for case in itertools.chain(_cases_of_methods(names), _cases_of_pairs(names)):
        if not only or case.method in only:
            yield case


def missing() -> list[str]:
    """Distributions that no row builds."""
    known = {name.split()[0] for name, _, _ in ROWS}
    found = [getattr(d, name) for name in d.__all__]
    classes = [one for one in found if isinstance(one, type) and issubclass(one, d.Distribution)]
    return sorted(one.__name__ for one in classes if one.__name__ not in known | _abstract())


def _abstract() -> set[str]:
    return {one.__name__ for one in ABSTRACT}


@dataclass
class _Run:
    """All that can be seen of one call."""

    answer: Any = None
    error: str = ""
    gradients: list[Any] = field(default_factory=list)
    generator: Any = None


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Run:
    made = _Run()
    leaves = [one for one in arguments[0].values() if _is_leaf(one)]
    for one in leaves:
        one.requires_grad_()
    torch.manual_seed(5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.answer = function(*arguments)
            if isinstance(made.answer, torch.Tensor) and made.answer.requires_grad:
                weights = torch.randn(made.answer.shape, generator=_generator())
                (made.answer * weights).nan_to_num(0, 0, 0).sum().backward()
    except Exception as error:
        made.error = f"{type(error).__name__}: {error}"
    made.gradients = [one.grad for one in leaves]
    made.generator = torch.get_rng_state()
    return made


def _is_leaf(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.is_floating_point()


def _in_float64(case: Case) -> _Run | None:
    """What eager answers in float64; None: it draws numbers, which are others there, or raises."""
    given = pytree.tree_map_only(
        torch.Tensor,
        lambda one: one.double() if one.is_floating_point() else one,
        case.arguments(),
    )
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = _run(case.function, given)
    return None if found.error or not torch.equal(found.generator, before) else found


def _compared(mine: _Run, wanted: _Run, case: Case) -> str:
    if mine.error != wanted.error:
        return f"raises {mine.error or 'nothing'!r}, not {wanted.error or 'nothing'!r}"
    if not torch.equal(mine.generator, wanted.generator):
        return "other random numbers were drawn"
    found = "raises" if wanted.error else "bits"
    exact = functools.cache(functools.partial(_in_float64, case))
    pairs = zip([mine.answer, *mine.gradients], [wanted.answer, *wanted.gradients], strict=True)
    for place, (one, other) in enumerate(pairs):
        how = _alike(one, other)
        if how == "judge":
            judge = exact()
            truth = None if judge is None else [judge.answer, *judge.gradients][place]
            how = _judged(one, other, truth)
        if how not in ("bits", "close"):
            return how
        found = "close" if how == "close" and found == "bits" else found
    return found


def _alike(one: Any, other: Any) -> str:
    if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
        return "bits" if type(one) is type(other) and one == other else f"{one!r}, not {other!r}"
    if (one.dtype, one.shape, one.requires_grad) != (other.dtype, other.shape, other.requires_grad):
        return f"{one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
    if torch.equal(one, other):
        return "bits"
    return "close" if torch.allclose(one, other, equal_nan=True, **TIGHT) else "judge"


def _judged(one: torch.Tensor, other: torch.Tensor, truth: Any) -> str:
    """By what float64 answers, if it does."""
    if truth is None and torch.allclose(one, other, equal_nan=True, **TOLERANCE):
        return "close"
    wide, wanted = one.detach().double(), other.detach().double()
    shown = f"differs by {(wide - wanted).abs().max().item():.2e}"
    if truth is None or not torch.equal(wide.isfinite(), wanted.isfinite()):
        return shown
    mine, theirs = ((each - truth.detach()).nan_to_num(0, 0, 0).norm() for each in (wide, wanted))
    return "close" if mine <= FARTHER * theirs else f"{shown}, float64: {mine:.1e}, {theirs:.1e}"


def check(case: Case) -> Outcome:
    """Two calls, compiled and in eager."""
    windfall.reset()
    function = windfall.compile(case.function)
    outcome = Outcome()
    for _ in range(2):
        wanted = _run(case.function, case.arguments())
        found = _compared(_run(function, case.arguments()), wanted, case)
        if outcome.is_right and found != "bits":
            outcome.equal = found
    told = windfall.explanation(function)
    outcome.graphs = len(told.graphs)
    outcome.breaks = tuple(f"W{one.number:04d} {one.detail}" for one in told.breaks)
    outcome.in_eager = {**told.eager, **{one: 1 for one in told.fallbacks}}
    if wanted.error:  # what raises ends in eager: that is how its exception is eager's
        outcome.graphs, outcome.breaks, outcome.in_eager = 0, (), {}
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Print a table; not 0 where an answer differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--show", action="store_true", help="breaks and what ran in eager")
    given = parser.parse_args(arguments)
    found: list[tuple[Case, Outcome]] = []
    for case in cases(tuple(given.names), tuple(given.only)):
        outcome = check(case)
        found.append((case, outcome))
        if not outcome.is_right:
            print(f"WRONG {case}: {outcome.equal}", flush=True)
        if given.show and not outcome.is_one_graph:
            print(f"{case}: {outcome.graphs} graphs, eager {outcome.in_eager}", flush=True)
            for one in dict.fromkeys(outcome.breaks):
                print(f"    {one[:150]}")
    _print_table(found)
    return 0 if all(one.is_right for _, one in found) else 1


def _print_table(found: list[tuple[Case, Outcome]]) -> None:
    rows: dict[str, list[Outcome]] = collections.defaultdict(list)
    reasons: collections.Counter[str] = collections.Counter()
    for case, outcome in found:
        rows[case.method].append(outcome)
        reasons.update(dict.fromkeys((*outcome.breaks, *outcome.in_eager), 1))
    print(f"{'':20}{'cases':>7}{'equal':>7}{'raise':>7}{'one graph':>11}")
    for name, group in [*rows.items(), ("all", [one for _, one in found])]:
        right = sum(one.is_right for one in group)
        raising = sum(one.equal == "raises" for one in group)
        whole = sum(one.is_one_graph for one in group)
        print(f"{name:20}{len(group):7}{right:7}{raising:7}{whole:11}")
    for reason, count in reasons.most_common(20):
        print(f"{count:5} {reason[:110]}")


if __name__ == "__main__":
    sys.exit(main())
