"""From names to encoders: ours, a user's own, and every way in which a name can be wrong."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from labelloop.errors import UsageError
from labelloop.models import NETWORKS, as_encoder, build_encoder, is_convolutional


class Own(nn.Module):
    """A user's encoder with everything a dry run could disturb: batch normalisation, dropout, noise in evaluation."""

    def __init__(self, input_dim: int, width: int = 6) -> None:
        super().__init__()
        self.linear = nn.Linear(input_dim, width)
        self.bn = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(0.5)
        self.seen: list[tuple[int, ...]] = []
        self.modes: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(tuple(x.shape))
        self.modes.append(self.training)
        return self.dropout(self.bn(self.linear(x.flatten(1)))) + 0 * torch.rand(1)


class Returns(nn.Module):
    def __init__(self, value) -> None:
        super().__init__()
        self.value = value

    def forward(self, x):
        return self.value


class Says(nn.Flatten):
    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim


@pytest.fixture
def own(monkeypatch):
    """An importable module of a user."""
    module = types.ModuleType("own_networks")
    module.by_name = lambda width=6, *, input_shape: Own(input_shape[0], width)
    module.by_place = lambda shape, width=6: Own(shape[0], width)
    module.by_options = lambda input_dim, width=6: Own(input_dim, width)
    module.Nested = types.SimpleNamespace(flatten=nn.Flatten)
    module.number = 7
    module.no_module = lambda: 7
    module.maps = lambda: nn.Conv2d(3, 5, 3)
    module.several = lambda: Returns((torch.zeros(2, 3), torch.zeros(2)))
    module.one_row = lambda: Returns(torch.zeros(1, 3))
    module.says_right = lambda: Says(12)
    module.says_wrong = lambda: Says(11)
    monkeypatch.setitem(sys.modules, "own_networks", module)
    return module


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_maps_images_to_its_features(name):
    encoder = build_encoder(name, (3, 16, 16)).eval()
    with torch.no_grad():
        assert encoder(torch.zeros(2, 3, 16, 16)).shape == (2, encoder.feature_dim)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_seed_gives_the_same_network(name):
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        states.append(build_encoder(name, (3, 16, 16)).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert len(states[0]) > 3


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"mlp"}))
def test_a_convolutional_network_on_a_matrix_is_refused_by_shape(name):
    with pytest.raises(UsageError, match=rf"'{name}' needs images .* shape \(512,\); use 'mlp'"):
        build_encoder(name, (512,))


def test_unknown_names_name_the_nearest():
    with pytest.raises(UsageError, match=r"unknown network 'resnet43' .*did you mean 'resnet34'"):
        build_encoder("resnet43", (3, 32, 32))
    with pytest.raises(UsageError, match=r"unknown network 'zzz' .*'module:factory'.* known: mlp, small-cnn, resnet18"):
        build_encoder("zzz", (3, 32, 32))


def test_unknown_options_name_the_nearest():
    with pytest.raises(UsageError, match=r"'mlp' has no option 'hiden': did you mean 'hidden'\?"):
        build_encoder("mlp", (5,), {"hiden": [3]})
    with pytest.raises(UsageError, match=r"'resnet18' has no option 'depth'"):
        build_encoder("resnet18", (3, 32, 32), {"depth": 3})


@pytest.mark.parametrize("factory", ["by_name", "by_place", "by_options"])
def test_an_own_network_gets_shape_and_options_as_it_asks(own, factory):
    options = {"width": 4, "input_dim": 5} if factory == "by_options" else {"width": 4}
    encoder = build_encoder(f"own_networks:{factory}", (5,), options)
    assert encoder.feature_dim == 4
    assert encoder.linear.in_features == 5
    assert encoder.seen == [(2, 5)]
    assert encoder.modes == [False]


def test_an_own_network_may_be_a_class_inside_something(own):
    assert build_encoder("own_networks:Nested.flatten", (3, 2, 2)).feature_dim == 12
    assert build_encoder("torch.nn:Flatten", (3, 2, 2)).feature_dim == 12


def test_the_dry_run_leaves_buffers_modes_and_random_state():
    torch.manual_seed(0)
    module = Own(5)
    module.bn.eval()  # a frozen part stays frozen
    module.bn.running_mean.fill_(3)
    state = {key: value.clone() for key, value in module.state_dict().items()}
    random_state = torch.get_rng_state()
    assert as_encoder(module, (5,)) is module
    assert module.feature_dim == 6
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in state.items())
    assert (module.training, module.bn.training, module.dropout.training) == (True, False, True)
    assert all(p.grad is None for p in module.parameters())
    torch.rand(1)
    assert not torch.equal(random_state, torch.get_rng_state())


def test_modes_come_back_after_a_dry_run_that_fails():
    module = Own(5)
    with pytest.raises(UsageError):
        as_encoder(module, (6,))
    assert module.training
    assert module.bn.training


def test_feature_dim_of_its_own_must_be_true(own):
    assert build_encoder("own_networks:says_right", (3, 2, 2)).feature_dim == 12
    with pytest.raises(UsageError, match="says feature_dim is 11, but returns 12 features"):
        build_encoder("own_networks:says_wrong", (3, 2, 2))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:make", r"cannot import 'no_such_module' \(ModuleNotFoundError.*PYTHONPATH"),
        (":make", "cannot import ''"),
        ("own_networks:absent", "'own_networks' has no 'absent'"),
        ("own_networks:", "'own_networks' has no ''"),
        ("own_networks:number", "the factory is not callable, it is of type int"),
        ("own_networks:no_module", "must return a torch module, not int"),
        ("own_networks:maps", r"must return features \[B, D\], but .* \(2, 3, 8, 8\) gave shape \(2, 5, 6, 6\)"),
        ("own_networks:several", r"must return a tensor of features \[B, D\], not tuple"),
        ("own_networks:one_row", r"must return features \[B, D\], but .* gave shape \(1, 3\)"),
        ("own_networks:by_place", r"does not take a batch of shape \(2, 3, 8, 8\): mat1 and mat2"),
        ("builtins:dict", "signature.*wrap it in a function"),
    ],
)
def test_own_networks_that_do_not_fit(own, name, message):
    with pytest.raises(UsageError, match=message) as caught:
        build_encoder(name, (3, 8, 8))
    assert repr(name) in str(caught.value)


def test_a_module_that_fails_on_import_is_named(tmp_path, monkeypatch):
    (tmp_path / "failing_networks.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"cannot import 'failing_networks' \(RuntimeError: no licence\)"):
        build_encoder("failing_networks:make", (5,))


def test_options_an_own_factory_does_not_take(own):
    with pytest.raises(UsageError, match=r"the factory\(shape, width=6\) does not take the options \['depth'\]"):
        build_encoder("own_networks:by_place", (5,), {"depth": 3})


def test_channels_last_pays_for_convolutions_alone():
    found = {name: is_convolutional(build_encoder(name, (3, 16, 16))) for name in NETWORKS}
    assert found == {name: name != "mlp" for name in NETWORKS}
    assert not is_convolutional(nn.Conv1d(3, 3, 1))
