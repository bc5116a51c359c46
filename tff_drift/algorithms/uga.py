"""UGA: unbiased gradient aggregation.

Yao et al. (2019), Federated Learning with Unbiased Gradient Aggregation and
Controllable Meta Updating, section 3.1. https://arxiv.org/abs/1910.08234
"""

from __future__ import annotations

import tensorflow_federated as tff
from typing_extensions import Unpack

from tff_drift import client_works, optimizers
from tff_drift.algorithms.composition import compose
from tff_drift.algorithms.options import TrainingOptions, explicit_options, split
from tff_drift.method_specs import Method, register


@explicit_options(TrainingOptions)
def build_uga(
    model_fn: client_works.ModelFn,
    client_learning_rate: float,
    server_optimizer_fn: optimizers.OptimizerOrRate,
    *,
    local_epochs: int,
    **options: Unpack[TrainingOptions],
) -> tff.learning.templates.LearningProcess:
    """Builds UGA, which sends the gradient through local training.

    Yao et al. (2019), Algorithm 1. https://arxiv.org/abs/1910.08234

    Each client k of the cohort trains for E - 1 epochs from the server model ω and
    evaluates its whole data D_k in epoch E; it sends the gradient of that loss with
    respect to ω, through all of its local steps:

    ```
    ω⁽ⁱ⁾ = ω⁽ⁱ⁻¹⁾ - η ∇L(ω⁽ⁱ⁻¹⁾; B_i),  i = 1 … K,  ω⁽⁰⁾ = ω
    g_k = ∇_ω L(ω⁽ᴷ⁾(ω); D_k) = (I - ηH₁) … (I - ηH_K) ∇L(ω⁽ᴷ⁾; D_k)
    ω <- ω - η_g Σ (n_k / n) g_k
    ```

    with H_i the Hessian of L(·; B_i) at ω⁽ⁱ⁻¹⁾. All g_k are gradients with respect to
    the same ω, so that their mean is one too, which the model differences of FedAvg
    are not.

    | paper | argument |
    |---|---|
    | η | `client_learning_rate`, per local step |
    | η_g | the rate of `server_optimizer_fn`, per round |
    | E | `local_epochs` |
    | n_k / n | `client_weighting`, by default by numbers of examples |
    | B | the batch size belongs to the clients' datasets |

    Every client's dataset holds its E epochs, as it does for the other methods (see
    `tff_drift.simulation.ClientDatasets`), so that methods can be compared on the
    same batches. `local_epochs` says how many there are: the first E - 1 are trained
    on, the last is D_k. `run_training` refuses `ClientDatasets` of another number of
    epochs. A dataset whose batches are not E epochs of equally many examples ends the
    round with an `InvalidArgumentError` that says so.

    The degenerate cases: with E = 1 no step is taken, and UGA is FedSGD on the
    clients' whole data with step η_g. With one traced step it is Per-FedAvg's
    g = (I - ηH(ω)) ∇L(ω⁽¹⁾).

    `client_weight_decay` λ and `gradient_clipping_norm` shape the traced steps, whose
    factors are then I - η (H_i clip'(∇L) + λ I); ∇L(·; D_k) is the gradient of the
    data's loss alone.

    Dropout is on in the traced steps and in the evaluation, and the masks of a step
    are repeated when it is differentiated: the layer to use is
    `tff_drift.layers.Dropout`.

    A client holds, besides what training needs, the K iterates ω⁽ⁱ⁾ and its batches:
    O(Kn) of RAM for n weights. A traced step costs a gradient and a Hessian-vector
    product. Measured by `benchmarks/uga.py --rounds=3` on the task `emnist_digits`
    (n = 1.66 million, E = 5, B = 64, K of about 8, 10 clients one after the other, in
    process, two busy cores): 15.4 processor seconds per round, where FedAvg takes 4.7
    with the same epochs, 3.3 times as many; the peak RAM of the program rises from
    0.91 to 1.58 GB, of which the iterates are 0.05.

    The type signatures are those of `build_fed_avg`; the metrics `train` are over the
    batches of all E epochs.

    Args:
      model_fn: As in `build_fed_avg`. The loss must be differentiable twice.
      client_learning_rate: η, finite and greater than 0. The local steps are plain
        SGD.
      server_optimizer_fn: As in `build_fed_avg`. The paper takes SGD with η_g = 0.002.
      local_epochs: E, at least 1.
      **options: See `tff_drift.algorithms.TrainingOptions`. The loops are over the
        batches in RAM: `loop_implementation` has no effect.

    Returns:
      A `tff.learning.templates.LearningProcess`.

    Raises:
      TypeError: If an argument has the wrong type; the message names it.
      ValueError: If a rate is not a finite positive number, `local_epochs` is below
        1, or the model has an operation without a second-order gradient or one that
        draws other random numbers at every call, which the message names, or sets its
        weights when it is called.
    """
    local, shared = split(options, TrainingOptions)
    return compose(
        model_fn,
        client_works.KeepTraceSgd(client_learning_rate, local_epochs, **local),
        # No step that measures the clients' x - y_i, whose mean is not what it gets.
        optimizers.as_optimizer("server_optimizer_fn", server_optimizer_fn),
        **shared,
    )


METHOD = register(
    Method(
        name="uga",
        builder=build_uga,
        paper=(
            "Yao et al. (2019), Federated Learning with Unbiased Gradient "
            "Aggregation and Controllable Meta Updating"
        ),
        url="https://arxiv.org/abs/1910.08234",
        sends_gradients=True,
        second_gradients=True,
        needs=("local_epochs",),
    )
)
