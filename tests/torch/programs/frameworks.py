"""`frameworks.py NAME DEVICE`: a training by a framework's own loop; prints losses as hexadecimal floats."""

import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

STEPS = 4


def trainer(device):
    """transformers' Trainer, checkpoints, and generate() from the last one."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32)  # fmt: skip
    torch.manual_seed(0)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 12))]
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(output_dir=folder, max_steps=STEPS, per_device_train_batch_size=4, logging_steps=1,
                                    save_steps=2, report_to=[], disable_tqdm=True, learning_rate=1e-3, seed=0,
                                    use_cpu=device == "cpu", dataloader_pin_memory=device != "cpu")  # fmt: skip
        run = Trainer(model=LlamaForCausalLM(config), args=options, train_dataset=rows)
        run.train()
        print("device", run.model.device.type == device)
        for entry in run.state.log_history[:STEPS]:
            print("loss", float(entry["loss"]).hex())
        again = LlamaForCausalLM.from_pretrained(f"{folder}/checkpoint-{STEPS}").to(device)
        prompt = torch.tensor([[1, 2, 3]], device=device)
        print("generated", again.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0).tolist())


def lightning(device):
    import pytorch_lightning

    class Regression(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

        def training_step(self, batch, _):
            x, y = batch
            loss = F.mse_loss(self.layers(x), y)
            print("loss", loss.item().hex())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=device != "cpu")
    model = Regression()
    with tempfile.TemporaryDirectory() as folder:
        run = pytorch_lightning.Trainer(max_epochs=2, accelerator="gpu" if device == "cuda" else "cpu", devices=1,
                                        logger=False, enable_progress_bar=False, enable_model_summary=False,
                                        default_root_dir=folder, gradient_clip_val=1.0)  # fmt: skip
        run.fit(model, loader)
    print("device", run.strategy.root_device.type == device)


def vision(device):
    """torchvision's own operators with gradients, and a detector in training and evaluation."""
    import torchvision
    from torchvision import ops

    torch.manual_seed(0)
    features = torch.randn(1, 4, 16, 16).to(device).requires_grad_()
    boxes = torch.tensor([[0, 1.0, 1.0, 9.0, 9.0], [0, 3.0, 2.0, 12.0, 14.0]]).to(device)
    offsets, weight = torch.randn(1, 18, 16, 16).to(device), torch.randn(4, 4, 3, 3).to(device)
    for name, value in {
        "roi_align": ops.roi_align(features, boxes, 3),
        "roi_pool": ops.roi_pool(features, boxes, 3),
        "ps_roi_align": ops.ps_roi_align(features, boxes, 2),
        "deform_conv2d": ops.deform_conv2d(features, offsets, weight, padding=1),
    }.items():
        (gradient,) = torch.autograd.grad(value.sum(), features)
        print(name, value.double().sum().item().hex(), gradient.double().sum().item().hex())
    scores = torch.tensor([0.9, 0.8]).to(device)
    print("nms", ops.batched_nms(boxes[:, 1:], scores, torch.zeros(2, dtype=torch.long).to(device), 0.3).tolist())
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None,
                                                                       num_classes=3).to(device)  # fmt: skip
    images = [torch.rand(3, 64, 64).to(device)] * 2
    targets = [{"boxes": torch.tensor([[4.0, 4.0, 40.0, 40.0]]).to(device), "labels": torch.tensor([1]).to(device)}] * 2
    losses = model(images, targets)
    sum(losses.values()).backward()
    for name, loss in losses.items():
        print(name, loss.item().hex())
    model.eval()
    print("detected", [len(found["boxes"]) for found in model(images)])


if __name__ == "__main__":
    {"trainer": trainer, "lightning": lightning, "vision": vision}[sys.argv[1]](sys.argv[2])
