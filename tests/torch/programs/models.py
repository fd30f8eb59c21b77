"""`models.py (resnet|llama) DEVICE`: models of torchvision and transformers; prints losses as hexadecimal floats."""

import sys

import torch
from torch.nn import functional as F  # noqa: N812


def resnet(device):
    import torchvision

    model = torchvision.models.resnet18(num_classes=10).to(device)
    x, y = torch.randn(2, 3, 64, 64).to(device), torch.tensor([1, 7]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())
    print("mean", model.bn1.running_mean.double().sum().item().hex())
    model.eval()
    with torch.no_grad():
        print("eval", model(x).double().sum().item().hex())
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]]).to(device)
    print("nms", torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]).to(device), 0.5).tolist())


def llama(device):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)  # fmt: skip
    model = LlamaForCausalLM(config).to(device)
    tokens = torch.randint(0, 128, (2, 16)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        print("loss", loss.item().hex())
    model.eval()
    generated = model.generate(tokens[:1, :4], max_new_tokens=8, do_sample=False, pad_token_id=0)
    print("generated", generated.tolist())


torch.manual_seed(0)
{"resnet": resnet, "llama": llama}[sys.argv[1]](sys.argv[2])
