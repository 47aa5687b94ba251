"""Run from tools/: python3 -m nano.tests.model_test. Seconds on a CPU."""
import torch

from ..delta_net import gated_delta_net, recurrent, unit_lower_inverse
from ..model import Nano, Where, toy_config


def starts(lengths):
    return torch.cat([torch.arange(n) for n in lengths])


def net_inputs(B, T, H, d):
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    base = torch.randn(B, 1, H, d)  # keys that resemble each other: the hard case for the inverse
    return (unit(torch.randn(B, T, H, d)), unit(torch.randn(B, T, H, d) + base), torch.randn(B, T, H, d),
            -torch.rand(B, T, H) * 0.3, torch.rand(B, T, H))


def test_inverse_is_exact():
    A = torch.tril(torch.rand(3, 64, 64) * 0.9, -1)
    eye = torch.eye(64)
    want = torch.linalg.inv((A + eye).double())
    got = unit_lower_inverse(A)
    assert (got - want).abs().max() / want.abs().max() < 1e-4


def test_chunks_equal_the_recurrence_over_documents():
    x = net_inputs(2, 200, 3, 16)
    start = torch.stack([starts([70, 1, 2, 127]), starts([64, 64, 72])])
    want = recurrent(*x, start)
    got = gated_delta_net(*x, start)
    assert (got - want).abs().max() < 2e-4, (got - want).abs().max()


def test_chunks_have_the_recurrence_s_gradients():
    x = [t.requires_grad_() for t in net_inputs(1, 150, 2, 8)]
    start = starts([90, 60]).unsqueeze(0)
    weight = torch.randn(1, 150, 2, 8)
    want = torch.autograd.grad((recurrent(*x, start) * weight).sum(), x)
    got = torch.autograd.grad((gated_delta_net(*x, start) * weight).sum(), x)
    for a, b in zip(got, want):
        assert (a - b).norm() / b.norm() < 1e-4, (a - b).norm() / b.norm()


def test_packed_documents_do_not_see_each_other():
    model = Nano(toy_config(100)).eval()
    a, b = torch.randint(100, (1, 37)), torch.randint(100, (1, 50))
    with torch.no_grad():
        both, drafts = model(torch.cat([a, b], 1), torch.cat([starts([37]), starts([50])]).unsqueeze(0))
        alone, drafts_alone = model(b, starts([50]).unsqueeze(0))
    assert (both[:, 37:] - alone).abs().max() < 2e-4
    assert (drafts[:, 37:] - drafts_alone).abs().max() < 2e-4


def test_later_tokens_change_nothing_before_them():
    model = Nano(toy_config(100)).eval()
    ids = torch.randint(100, (1, 80))
    other = ids.clone()
    other[:, 40:] = torch.randint(100, (1, 40))
    start = starts([80]).unsqueeze(0)
    with torch.no_grad():
        assert (model(ids, start)[0][:, :40] - model(other, start)[0][:, :40]).abs().max() < 2e-4


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
