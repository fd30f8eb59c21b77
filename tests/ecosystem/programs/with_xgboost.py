"""xgboost trains the same trees on the device as on the CPU, as long as both consider the same splits.

With a least child weight (`min_child_weight`) they do not: on a device a warp takes 32 bins at a time and proposes only
the best one, which is dropped if a child is too light, although another of the 32 might be valid; the CPU checks each
bin. Without that weight the trees are equal. With it each split's gain is compared with the device's own rule."""

from __future__ import annotations

import json

import numpy as np
import xgboost
from report import check, finish

BINS_AT_ONCE = 32
LAMBDA, LEAST_WEIGHT, DEPTH = 1.0, 1.0, 3

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4)).astype("f4")
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype("f4")
ordered = np.sort(x, axis=0)  # fewer values than bins: each value has its own bin


def train(device: str, least_weight: float) -> xgboost.XGBClassifier:
    model = xgboost.XGBClassifier(
        n_estimators=2, max_depth=DEPTH, tree_method="hist", device=device, min_child_weight=least_weight
    )
    return model.fit(x, y)


def best_gain(rows: np.ndarray, gradient: np.ndarray, weight: np.ndarray) -> float:
    """The best gain among the splits that a device considers for a node with these rows."""

    def score(g: np.ndarray, h: np.ndarray) -> np.ndarray:
        return g * g / (h + LAMBDA)

    whole_g, whole_h = gradient[rows].sum(), weight[rows].sum()
    best = 0.0
    for feature in range(x.shape[1]):
        values = x[rows, feature]
        left = np.array([(values < bound) for bound in ordered[:, feature]])
        g, h = left @ gradient[rows], left @ weight[rows]
        gains = score(g, h) + score(whole_g - g, whole_h - h) - score(whole_g, whole_h)
        for first in range(0, len(gains), BINS_AT_ONCE):
            at = first + int(np.argmax(gains[first : first + BINS_AT_ONCE]))
            if min(h[at], whole_h - h[at]) >= LEAST_WEIGHT:
                best = max(best, float(gains[at]))
    return best


def gains_of_first_tree() -> tuple[np.ndarray, np.ndarray]:
    """The gains that the device reports for its splits, and the best gains possible under the device's rule."""
    booster = train("cuda", LEAST_WEIGHT).get_booster()
    probability = float(json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"].strip("[]"))
    gradient, weight = probability - y.astype("f8"), np.full(len(y), probability * (1 - probability))
    told, expected = [], []
    pending = [(json.loads(booster.get_dump(dump_format="json", with_stats=True)[0]), np.arange(len(y)))]
    while pending:
        node, rows = pending.pop()
        if "split" not in node:
            continue
        told.append(node["gain"])
        expected.append(best_gain(rows, gradient, weight))
        below = x[rows, int(node["split"][1:])] < np.float32(node["split_condition"])
        children = {child["nodeid"]: child for child in node["children"]}
        pending += [(children[node["yes"]], rows[below]), (children[node["no"]], rows[~below])]
    return np.array(told), np.array(expected)


check("trees", lambda: train("cuda", 0).predict_proba(x), train("cpu", 0).predict_proba(x), 1e-5)
told, expected = gains_of_first_tree()
assert len(told) == 2**DEPTH - 1
check("gains", lambda: told, expected, 1e-4)
print("xgboost", xgboost.__version__)
finish("xgboost")
