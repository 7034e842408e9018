"""A diffusion U-Net, Stable Diffusion 1.5's, on chips you may not have: no weights, no GPU.

pip install 'gnomon[torch]' diffusers
python examples/trace_unet.py
gnomon predict examples/trace_unet.py:build --on H100 --phase train --dtype bf16
"""

import torch
from diffusers import UNet2DConditionModel

import gnomon


def build():
    """The network on the meta device, where tensors have shapes and no values, and one batch of its inputs."""
    with torch.device("meta"):
        unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
        inputs = {
            "sample": torch.empty(4, 4, 64, 64),
            "timestep": torch.empty(4),
            "encoder_hidden_states": torch.empty(4, 77, 768),
        }
    return unet, inputs


if __name__ == "__main__":
    unet, inputs = build()
    for chip in ("A100-SXM-80GB", "H100", "H200"):
        for phase in ("forward", "train"):
            step = gnomon.trace(unet, inputs, on=chip, phase=phase, dtype="bf16")
            print(
                f"{chip:14} {phase:8} {step.time_s.value * 1e3:6.1f} ms ({step.time_s.low * 1e3:.0f} to "
                f"{step.time_s.high * 1e3:.0f})  {step.memory_bytes.value / 1024**3:5.1f} GiB  "
                f"{step.energy_j.value:5.1f} J  bound by {step.bound}"
            )
    for line in step.operators[:5]:
        print(f"  {line.op:20} {line.count:4} kernels {line.time_s.value * 1e3:7.2f} ms  {line.bound}")
