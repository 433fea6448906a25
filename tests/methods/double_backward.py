"""The same gradients by the book: a backward through a backward. Slow; what the fast form is compared with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labelloop.methods.bilevel import Batch, outputs_at, parameters_of
from labelloop.methods.l2b import both_losses


def gradients_kept(loss: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient, as a function that can be differentiated again; zeros where the loss does not depend on it."""
    found = torch.autograd.grad(loss, list(parameters.values()), create_graph=True, allow_unused=True)
    pairs = zip(parameters.items(), found, strict=True)
    return {name: torch.zeros_like(value) if grad is None else grad for (name, value), grad in pairs}


def clean_loss(model: nn.Module, parameters: dict[str, Tensor], batch: Batch) -> Tensor:
    return F.cross_entropy(outputs_at(model, parameters, batch.clean_x).logits, batch.clean_labels)


def weighting_gradient(model: nn.Module, losses: Tensor, shares: Tensor, lr: float, batch: Batch) -> Tensor:
    """In place of mwnet.weighting_gradient."""
    parameters = parameters_of(model)
    shares = shares.detach().requires_grad_()
    moved = gradients_kept((shares * losses).sum(), parameters)
    virtual = {name: value - lr * moved[name] for name, value in parameters.items()}
    return torch.autograd.grad(clean_loss(model, virtual, batch), shares)[0]


def gains(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> Tensor:
    """In place of l2b.gains."""
    parameters, group = parameters_of(model), optimizer.param_groups[0]
    torch.manual_seed(batch.draw)
    losses = both_losses(outputs_at(model, parameters, batch.x).logits, batch.labels)  # [2, B]
    weights = torch.zeros_like(losses, requires_grad=True)
    moved = gradients_kept((weights * losses).sum(), parameters)
    virtual = {}
    for name, value in parameters.items():
        velocity = optimizer.state.get(value, {}).get("momentum_buffer")
        velocity = torch.zeros_like(value) if velocity is None else velocity
        change = group["momentum"] * velocity + moved[name] + group["weight_decay"] * value
        virtual[name] = value - group["lr"] * change
    return -torch.autograd.grad(clean_loss(model, virtual, batch), weights)[0]


def target_gradient(model: nn.Module, optimizer: torch.optim.Optimizer, targets: Tensor, batch: Batch) -> Tensor:
    """How the clean loss after one step of the student changes with the targets of that step [B, C]."""
    parameters, group = parameters_of(model), optimizer.param_groups[0]
    targets = targets.detach().requires_grad_()
    torch.manual_seed(batch.draw + 1)
    log_posterior = F.log_softmax(outputs_at(model, parameters, batch.x).logits, dim=1)
    moved = gradients_kept(-(targets * log_posterior).sum() / len(targets), parameters)
    virtual = {}
    for name, value in parameters.items():
        velocity = optimizer.state.get(value, {}).get("momentum_buffer")
        velocity = torch.zeros_like(value) if velocity is None else velocity
        change = group["momentum"] * velocity + moved[name] + group["weight_decay"] * value
        virtual[name] = value - group["lr"] * change
    return torch.autograd.grad(clean_loss(model, virtual, batch), targets)[0]
