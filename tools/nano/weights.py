"""A model's weights as float16 in one .npz file: small enough to leave a lent machine, enough to export or to go on from."""
import json

import numpy as np
import torch

from .model import Config, Nano


def load_checkpoint(path):
    """What train.py saved, on the CPU."""
    newer = {"weights_only": False} if int(torch.__version__.split(".")[0]) >= 2 else {}
    return torch.load(path, map_location="cpu", **newer)


def save(path, model, step, steps):
    arrays = {"w " + name: x.detach().half().cpu().numpy() for name, x in model.state_dict().items()}
    about = json.dumps({"config": model.c.as_dict(), "step": step, "steps": steps})
    np.savez(path, about=np.frombuffer(about.encode(), np.uint8), **arrays)


def load(path, device):
    """(model, step, steps)"""
    with np.load(path) as file:
        about = json.loads(file["about"].tobytes())
        model = Nano(Config(**about["config"]))
        model.load_state_dict({name[2:]: torch.from_numpy(file[name]).float() for name in file.files if name.startswith("w ")})
    return model.to(device), about["step"], about["steps"]
