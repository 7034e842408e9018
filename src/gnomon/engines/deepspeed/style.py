"""What DeepSpeed's optimizers hold and run: gradients of 16 bits as autograd leaves them, or summed up in fp32."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.engines.training.traits import Optimizer, Update

_CLEAN = (Update("optimizer.unscale", 4, 4), Update("optimizer.norm", 4, 0), Update("optimizer.scale", 4, 4))


def optimizers(wide: bool) -> Mapping[str, Optimizer]:
    """AdamW over fp32 weights and moments. In fp16 each micro-batch adds to gradients of 16 bits, of which a rank
    widens its part before the update; in bf16 (`BF16_Optimizer`, `wide`) it adds to fp32 sums beside them, which ZeRO 1
    does not shard: four bytes more per parameter, as BLOOM's authors note."""
    return {
        "adamw": Optimizer(
            weight_bytes=2.0,
            gradient_bytes=6.0 if wide else 2.0,
            state_bytes=12.0,
            widened_bytes=0.0 if wide else 4.0,
            sharded_weight_bytes=2.0,
            updates=(
                *(() if wide else (Update("optimizer.widen", 2, 4),)),
                *_CLEAN,
                Update("optimizer.adamw", 16, 12),
                Update("optimizer.copy_back", 4, 2),
            ),
            accumulate=Update("optimizer.accumulate", 6, 6) if wide else Update("optimizer.accumulate", 4, 2),
            clear=Update("optimizer.zero", 0, 4 if wide else 2),
        )
    }
