"""The correction in your own training loop: LabelLoop adds only the lines between the dashes."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from labelloop import combine, fit_corrector, fit_simplex_weights, stratified_split


def train(x, noisy_labels, x_clean, clean_labels, num_classes, epochs=40, warm_up=20, every=5):
    """Returns your network and a corrected soft label for every noisy row."""
    encoder, head = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU()), nn.Linear(128, num_classes)
    noisy_head = nn.Linear(128, num_classes)  # learns the given labels, to simulate them on the clean rows
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters(), *noisy_head.parameters()], lr=1e-3)
    noisy = np.eye(num_classes, dtype=np.float32)[noisy_labels]
    targets, past, weights = noisy, [], None
    fit_rows, val_rows = stratified_split(clean_labels, 0.8, np.random.default_rng(0))
    for epoch in range(1, epochs + 1):
        y, y_noisy = torch.from_numpy(targets), torch.from_numpy(noisy)
        for i in torch.randperm(len(x)).split(64):
            z = encoder(torch.from_numpy(x)[i])
            loss = F.cross_entropy(head(z), y[i]) + 0.5 * F.cross_entropy(noisy_head(z), y_noisy[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch >= warm_up and epoch % every == 0:  # --------------------------------------------------------------
            with torch.no_grad():
                z, z_clean = encoder(torch.from_numpy(x)), encoder(torch.from_numpy(x_clean))
                simulated = noisy_head(z_clean).softmax(dim=1).numpy()
            columns = {"features": z_clean.numpy()}
            corrector = fit_corrector(simulated, columns, clean_labels, fit_rows, val_rows, seed=epoch)
            past.append((corrector(noisy, {"features": z.numpy()}), corrector(simulated, columns)))
            val = [component[val_rows] for component in (simulated, *(clean for _, clean in past))]
            weights = fit_simplex_weights(val, clean_labels[val_rows], weights)
            targets = combine([noisy, *(corrected for corrected, _ in past)], weights)  # ---------------------------
    return nn.Sequential(encoder, head), targets
