"""xgboost trains on the device what it trains on the CPU."""

import numpy as np
import xgboost
from report import check, finish

rng = np.random.default_rng(0)
x = rng.normal(size=(200, 4)).astype("f4")
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype("f4")


def predict(device):
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=3, tree_method="hist", device=device)
    return model.fit(x, y).predict_proba(x)


check("hist", lambda: predict("cuda"), predict("cpu"), 1e-5)
print("xgboost", xgboost.__version__)
finish("xgboost")
