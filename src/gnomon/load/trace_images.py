"""Images that a trace counts for each request, as those of a load on a model."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError
from gnomon.load.rows import NOTHING_RUN
from gnomon.planning.serving.images import with_image_tokens
from gnomon.spec import Model, ServingLoad
from gnomon.spec.loads.images import RequestImages
from gnomon.spec.plan import LOAD_AWARE
from gnomon.spec.workload import RequestTrace


def with_images_of(load: ServingLoad, trace: RequestTrace | None, model: Model) -> ServingLoad:
    """The load with its images, of the flag or of the trace, and the tokens that one takes in the model's prompts."""
    if trace is None or not trace.pictured:
        return with_image_tokens(load, model)
    where = column_of(trace)
    if load.images is not None:
        raise InputError(f"{trace.file} has a column images", where="--images", hint=f"Leave one out. {NOTHING_RUN}")
    if trace.requests.prefixes is not None or trace.requests.follows is not None:
        hint = f"Leave out one of the columns. {NOTHING_RUN}"
        raise InputError("prompts that begin with images share no beginnings with others", where=where, hint=hint)
    images = RequestImages(count=trace.most_images, tokens=trace.image_tokens)
    return with_image_tokens(replace(load, images=images), model, where)


def refuse_images(trace: RequestTrace | None, why: str) -> None:
    """Raise where a trace has images that are not followed, with the reason."""
    if trace is not None and trace.pictured:
        raise InputError(why, where=column_of(trace), hint=f"Leave the column out. {NOTHING_RUN}")


def refuse_images_beside(trace: RequestTrace | None, *, concurrency: int | None = None, router: str = "") -> None:
    """Requests with images of their own number are served as they arrive, by replicas that are simulated one by one."""
    if concurrency is not None:
        refuse_images(trace, "clients of a closed loop have equally many images: give --images")
    if router in LOAD_AWARE:
        refuse_images(trace, f"replicas behind a {router} router have requests with equally many images: give --images")


def column_of(trace: RequestTrace) -> str:
    return f"{trace.file}, column images"
